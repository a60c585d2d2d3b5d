"""A public :class:`Schema` of a table, and how tables are read: one value at a time, with nothing learnt from records.

The names and the types of the columns are public. The values are not: nothing here raises or warns because of a value,
and a value that is not a number does not affect the others.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from dphypo import _validate
from dphypo.mechanisms.mechanism import or_none
from dphypo.training.split import record_bytes

Floats = npt.NDArray[np.float64]
_WIDE = 1000  # a range from about 0 to this or more; most values of such columns lie in a small part of it


class Schema(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a frame into numbers by public knowledge of its columns. It learns nothing from the records.

    A number is clipped to its range and mapped to [-1, 1]; a missing one becomes the middle of the range, or what
    ``missing`` says. A category becomes one column of 0 and 1 for each value that it may take; another value, or none,
    is 0 in all of them. Every value is read by itself, so no record can affect another. Columns that the schema does
    not name are dropped.

    Args:
        columns: for each column its range ``(low, high)``, or the list of its categories.
        missing: for columns with a range, the number that replaces a missing value.

    >>> import pandas as pd
    >>> schema = Schema({"age": (20, 60), "gain": (0, 10), "work": ["office", "outside"]}, missing={"gain": 0})
    >>> frame = pd.DataFrame({"age": [30, None], "gain": [5, None], "work": ["outside", "at home"]})
    >>> schema.fit_transform(frame)
    array([[-0.5,  0. ,  0. ,  1. ],
           [ 0. , -1. ,  0. ,  0. ]])
    >>> schema.get_feature_names_out().tolist()
    ['age', 'gain', 'work=office', 'work=outside']
    """

    def __init__(
        self,
        columns: Mapping[str, tuple[float, float] | Sequence[Any]],
        missing: Mapping[str, float] | None = None,
    ) -> None:
        self.columns = columns
        self.missing = missing

    def pipeline(self, estimator: Any) -> Pipeline:
        """A pipeline of this schema and an estimator, whose hyperparameters have the prefix ``estimator__``."""
        return Pipeline([("schema", self), ("estimator", estimator)])

    def fit(self, X: Any, y: Any = None) -> Schema:
        """Check the schema against the names and types of the columns; no record is read."""
        self._check(X)
        refuse_times(X[list(self.columns)])
        for name, given in self.columns.items():
            words = not (isinstance(given, tuple) or np.isfinite(numbers(np.array(list(given), dtype=object))).any())
            if words and holds(X[name]) is Holds.NUMBERS:
                raise ValueError(f"column {name!r} holds numbers, but none of its categories {list(given)!r} is one")
        if wide := [f"{name!r}: {given!r}" for name, given in self.columns.items() if _is_wide(given)]:
            _validate.warn(
                f"columns with wide ranges: {', '.join(wide)}. A range is mapped to [-1, 1], so values that lie in a "
                "small part of it (years near 2000, most incomes) become nearly one number, and little is learnt from "
                "them. Give the range in which most values lie, such as (1990, 2030): others are clipped to it. Or "
                "give the logarithm of the column, np.log1p(...), and its range"
            )
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """A schema learns nothing, so a loaded release predicts without ``fit``."""
        return True

    def _check(self, X: Any) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise _validate.fail("columns", self.columns, "give a dict of column names to ranges or categories")
        for name, given in self.columns.items():
            _check_column(f"columns[{name!r}]", given)
        constants: Any = {} if self.missing is None else self.missing
        if not isinstance(constants, Mapping):
            name = next(iter(self.columns))
            raise _validate.fail("missing", constants, f"give a constant for each column, such as {{{name!r}: 0}}")
        for name, value in constants.items():
            if not isinstance(self.columns.get(name), tuple):
                remedy = "give constants for columns with a range (low, high) only"
                raise _validate.fail(f"missing[{name!r}]", value, remedy)
            _validate.number(**{f"missing[{name!r}]": value})
        if not hasattr(X, "columns"):
            raise TypeError(f"X is a {type(X).__name__}: a schema names columns, so give a frame (pandas.DataFrame)")
        if missing := [name for name in self.columns if name not in X.columns]:
            raise ValueError(f"the schema has a column {missing[0]!r} that is missing from X")
        if twice := [name for name in self.columns if list(X.columns).count(name) > 1]:
            raise ValueError(f"X has several columns {twice[0]!r}: rename or drop all but one")

    def transform(self, X: Any) -> Floats:
        """The columns of the schema, in its order, as numbers."""
        self._check(X)
        parts: list[Floats] = []
        for name, given in self.columns.items():
            if isinstance(given, tuple):
                values = np.asarray(numbers(X[name]), dtype=np.float64)
                if name in (self.missing or {}):
                    values = np.where(np.isnan(values), self.missing[name], values)  # type: ignore[index]
                parts.append(np.nan_to_num(scaled(values, *given))[:, None])
            else:
                parts.append(np.equal.outer(places(X[name], list(given)), np.arange(len(given))).astype(np.float64))
        return np.concatenate(parts, axis=1)

    def outside(self, X: Any) -> list[str]:
        """Columns whose values are mostly not in their range or categories. **Secret**: for the curator alone."""
        found = []
        for name, given in self.columns.items():
            if isinstance(given, tuple):
                values = np.asarray(numbers(X[name]), dtype=np.float64)
                inside = (values >= given[0]) & (values <= given[1])
            else:
                inside = places(X[name], list(given)) >= 0
            known = np.asarray(X[name].notna())
            if 2 * np.sum(known & ~inside) > np.sum(known):
                found.append(name)
        return found

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """The name of each column that ``transform`` gives."""
        names = []
        for name, given in self.columns.items():
            names += [name] if isinstance(given, tuple) else [f"{name}={value}" for value in given]
        return np.asarray(names, dtype=object)


def _is_wide(given: Any) -> bool:
    """Whether a range has a far end that is 1 000 or more, and many times the near one."""
    if not isinstance(given, tuple):
        return False
    near, far = sorted(map(abs, given))
    return bool(far >= _WIDE and near < far / 10)


def _check_column(where: str, given: Any) -> None:
    if isinstance(given, tuple):
        if any(hasattr(one, "year") or holds(one) is Holds.TIMES for one in given):
            remedy = "a range has numbers: give a column of days since some date, and the range of those"
            raise _validate.fail(where, given, remedy)
        if len(given) != 2 or not all(map(_is_finite, given)) or not given[0] < given[1]:
            remedy = "a tuple is a range (low, high) of two numbers, low below high: give categories as a list"
            raise _validate.fail(where, given, remedy)
        return
    if isinstance(given, Set):
        raise _validate.fail(where, given, "a set has no order, and categories become columns in theirs: give a list")
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) == 0:
        raise _validate.fail(where, given, "give a range (low, high), or a list of categories")
    values = list(given)
    if len(set(record_bytes(values))) < len(values):
        raise _validate.fail(where, given, "a category is listed twice")
    if len(values) == 2 and all(isinstance(one, int | float) for one in values) and abs(values[1] - values[0]) != 1:
        low, high = sorted(values)
        remedy = f"a list means categories: for a range write ({low}, {high}); for two categories ['{low}', '{high}']"
        raise _validate.fail(where, given, remedy)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


# Pipelines that people bring. Only a Schema is accepted before a private estimator.


def split_pipeline(estimator: Any) -> tuple[Schema | None, Any, str]:
    """The schema before a private estimator, or None; the estimator; and the prefix of its parameters."""
    if isinstance(estimator, Pipeline) and len(estimator.steps) == 2 and type(estimator.steps[0][1]) is Schema:
        name, last = estimator.steps[1]
        return estimator.steps[0][1], last, f"{name}__"
    return None, estimator, ""


def steps_instead(steps: Sequence[tuple[str, Any]], last: Any, X: Any) -> str:
    """The text that replaces steps before an estimator: those that learn, those without state, and the schema.

    The text depends on the pipeline and on the names and types of the columns, which are public.
    """
    learn: list[str] = []
    stateless: list[str] = []
    categories: dict[Any, list[Any]] = {}
    for place, step, columns in _leaves(steps):
        (learn if get_tags(step).requires_fit else stateless).append(f"{place} ({type(step).__name__})")
        given = getattr(step, "categories", None)
        if isinstance(given, list | tuple) and isinstance(columns, list | tuple) and len(given) == len(columns):
            categories |= dict(zip(columns, map(list, given), strict=True))
    lines = ["PrivateSearch takes a private estimator, alone or in Schema(...).pipeline(estimator)."]
    if learn:
        lines += ["These steps learn from the records, and nothing makes that private:", *_indented(learn)]
    if stateless:
        lines += ["Apply these to X before fit, if they treat each record by itself:", *_indented(stateless)]
    lines.append("Instead write, with ranges and categories from public knowledge:")
    private = type(last).__name__
    if not hasattr(last, "privacy_event"):
        private = "DPSGDRegressor" if is_regressor(last) else "DPSGDClassifier"
    if not is_frame(X):
        bounded = f"{private}(bounds=(low, high), ...)"
        return "\n".join([*lines, f"  {bounded}, or name the columns of X in a pandas.DataFrame and give a Schema"])
    lines.append("  Schema({")
    for name in dict.fromkeys(X.columns):
        shown = f"{categories[name]!r}," if name in categories else _SHOWN[holds(X[name])]
        lines.append(f"      {name!r}: {shown}")
    return "\n".join([*lines, f"  }}).pipeline({private}(...))"])


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _leaves(steps: Any, before: str = "", columns: Any = None) -> Iterator[tuple[str, Any, Any]]:
    """Every step with its place, inner ones too, and the columns that it is given."""
    for name, step, *of in steps:
        place, own = f"{before}{name!r}", of[0] if of else columns
        if step is None or isinstance(step, str) or type(step) is Schema:
            continue
        if isinstance(step, ColumnTransformer):
            yield from _leaves([*step.transformers, ("remainder", step.remainder, None)], f"{place} > ")
        elif isinstance(step, Pipeline | FeatureUnion):
            inner = step.steps if isinstance(step, Pipeline) else step.transformer_list
            yield from _leaves(inner, f"{place} > ", own)
        else:
            yield place, step, own


# Reading values, one by one.


class Holds(enum.Enum):
    """The content of a column, by its type alone."""

    NUMBERS = "numbers"
    TEXTS = "texts"
    TIMES = "times"
    ANYTHING = "anything"


_SHOWN = {
    Holds.NUMBERS: "(low, high),",
    Holds.TEXTS: '["one", "other"],',
    Holds.TIMES: "(low, high),  # a time: give a number instead, such as the days since some date",
    Holds.ANYTHING: '["one", "other"],',
}


def holds(values: object) -> Holds:
    """The content of a column, an array or a series, by its type."""
    kind = getattr(values, "dtype", None)
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)  # of a categorical column, that of its categories
    letter, name = getattr(kind, "kind", "O"), str(kind)
    if letter in "biufc":
        return Holds.NUMBERS
    if letter in "Mm" or name.startswith("period"):
        return Holds.TIMES
    return Holds.TEXTS if letter in "US" or name.startswith("str") else Holds.ANYTHING


def is_frame(values: object) -> bool:
    """Whether a table is a frame, whose columns have names."""
    return hasattr(values, "iloc") and hasattr(values, "columns")


def refuse_times(table: Any, *, texts: bool = True) -> None:
    """Refuse a column of times, which would all count as missing; warn of texts unless ``texts``.

    An array has one type for all columns.
    """
    named = hasattr(table, "columns")
    kinds = {repr(name): holds(table[name]) for name in table.columns} if named else {"X": holds(table)}
    for name, kind in kinds.items():
        if kind is Holds.TIMES:
            raise TypeError(f"column {name} holds times: give a number instead, such as the days since some date")
    others = [name for name, kind in kinds.items() if kind is not Holds.NUMBERS]
    if others and named and not texts:
        _validate.warn(
            f"column {others[0]} does not have a numeric type: a value that is not a number counts as missing. Encode "
            f"categories with dphypo.sklearn.Schema"
        )


def check_labels(y: Any, classes: npt.ArrayLike) -> None:
    """Refuse labels whose type is not that of the declared classes."""
    labels, kind = np.asarray(classes).tolist(), holds(y)
    words = any(isinstance(label, str) for label in labels)
    if kind is Holds.ANYTHING and not words:
        _validate.warn(
            f"y does not have a numeric type, and classes = {classes!r} are numbers: a record whose label is not among "
            f"the classes is left out"
        )
    elif (kind is Holds.TEXTS and not words) or (kind is Holds.NUMBERS and words):
        raise ValueError(
            f"classes = {classes!r}, but y holds {kind.value}: such records would be left out. Give the labels as they "
            f"are in y, from public knowledge"
        )


def numbers(values: Any) -> Any:
    """A table in which every value that is not a number is NaN, each read by itself; frames stay frames."""
    if hasattr(values, "iloc"):
        types = values.dtypes if hasattr(values, "columns") else [values.dtype]
        read = all(isinstance(kind, np.dtype) and kind.kind in "biufc" for kind in types)
        return values if read else _each(values)
    array = values
    if not hasattr(values, "dtype") and not hasattr(values, "toarray"):
        array = np.asarray(values)
        if (
            array.dtype.kind in "SUc"
        ):  # one text turned all values into texts, and True into "True", which is not a number
            array = np.array(values, dtype=object)
    if array.dtype.kind in "OSU" and not hasattr(array, "toarray"):
        return _each(np.asarray(array))
    return values


def _each(values: Any) -> Any:
    if hasattr(values, "iloc"):
        named = {"columns": values.columns} if hasattr(values, "columns") else {"name": values.name}
        return type(values)(_each(values.to_numpy(dtype=object)), index=values.index, **named)
    return np.array([_float(value) for value in values.ravel()], dtype=np.float64).reshape(values.shape)


def _float(value: Any) -> float:
    found = or_none(lambda: float(value))  # whatever a value's own class raises
    return np.nan if found is None else found


def places(values: Any, given: Any) -> npt.NDArray[np.int64]:
    """The place of each value among those given, compared by value; -1 for others."""
    found = {label: place for place, label in enumerate(record_bytes(given))}
    return np.array([found.get(label, -1) for label in record_bytes(values)], dtype=np.int64)


def scaled(values: npt.ArrayLike, low: float | Floats, high: float | Floats) -> Floats:
    """Values clipped to public bounds and mapped to [-1, 1]."""
    return np.asarray(2 * (np.clip(np.asarray(values, dtype=np.float64), low, high) - low) / (high - low) - 1)
