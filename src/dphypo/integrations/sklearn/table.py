"""Tables, read one value at a time, and a public :class:`Schema` of one: nothing is learnt from private records.

The names and the types of the columns are public. The values are not, and nothing here raises or warns because of one:
a value that is not a number must not affect the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from dphypo import _validate
from dphypo.integrations.record_hash import record_bytes
from dphypo.mechanisms.one_record import or_none

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Holds(enum.Enum):
    """What a column holds, by its type alone."""

    NUMBERS = "numbers"
    TEXTS = "texts"
    TIMES = "times"
    ANYTHING = "anything"


def holds(values: object) -> Holds:
    """What a column, an array or a series holds, by its type."""
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


def width_of(table: Any) -> int:
    """How many columns a table has; texts or mappings, one a record, are a single one."""
    shape = table.shape if hasattr(table, "shape") else np.shape(table[:1])
    return int(shape[1]) if len(shape) > 1 else 1


def refuse_times(table: Any, *, texts: bool = True) -> None:
    """TypeError for a column of times, which as numbers would all count as missing; a warning unless ``texts`` may be.

    An array has one type for all columns.
    """
    named = hasattr(table, "columns")
    kinds = {repr(name): holds(table[name]) for name in table.columns} if named else {"X": holds(table)}
    for name, kind in kinds.items():
        if kind is Holds.TIMES:
            raise TypeError(f"column {name} holds times: give a number in its place, such as the days since some date")
    others = [name for name, kind in kinds.items() if kind is not Holds.NUMBERS]
    if others and named and not texts:
        _validate.warn(
            f"column {others[0]} is not of a type of numbers: a value that is not a number counts as missing. Encode "
            f"categories, for example with dphypo.integrations.sklearn.Schema"
        )


def check_labels(y: Any, classes: npt.ArrayLike) -> None:
    """Refuse labels whose type is not that of the declared classes: all records would be left out."""
    labels, kind = np.asarray(classes).tolist(), holds(y)
    words = any(isinstance(label, str) for label in labels)
    if kind is Holds.ANYTHING and not words:
        _validate.warn(
            f"y is of no type of numbers and classes = {classes!r} are numbers: a record whose label is none of the "
            f"classes is left out"
        )
    elif (kind is Holds.TEXTS and not words) or (kind is Holds.NUMBERS and np.isnan(numbers(labels)).any()):
        raise ValueError(
            f"classes = {classes!r} and y holds {kind.value}: such records would be left out. Give the labels that y "
            f"has, from public knowledge"
        )


def numbers(values: Any) -> Any:
    """A table in which every value that is not a number is NaN, each judged by itself; frames stay frames."""
    if hasattr(values, "iloc"):
        types = values.dtypes if hasattr(values, "columns") else [values.dtype]
        read = all(isinstance(kind, np.dtype) and kind.kind in "biufc" for kind in types)
        return values if read else _each(values, _float, np.float64)
    array = values
    if not hasattr(values, "dtype") and not hasattr(values, "toarray"):
        array = np.asarray(values)
        if array.dtype.kind in "SUc":  # one text made texts of all: of True "True", which is no number
            array = np.array(values, dtype=object)
    if array.dtype.kind in "OSU" and not hasattr(array, "toarray"):
        return _each(np.asarray(array), _float, np.float64)
    return values


def plain_values(values: Any) -> Any:
    """A table of plain Python values, NaN for what is missing, each read by itself; frames stay frames."""
    return _each(values if hasattr(values, "iloc") else np.asarray(values, dtype=object), _plain, object)


def _each(values: Any, read: Callable[[Any], object], kind: npt.DTypeLike) -> Any:
    if hasattr(values, "iloc"):
        found = _each(values.to_numpy(dtype=object), read, kind)
        named = {"columns": values.columns} if hasattr(values, "columns") else {"name": values.name}
        return type(values)(found, index=values.index, dtype=kind, **named)
    found = np.empty(values.size, dtype=kind)
    for place, value in enumerate(values.ravel()):
        found[place] = read(value)
    return found.reshape(values.shape)


def _float(value: Any) -> float:
    found = or_none(lambda: float(value))  # whatever a value's own class raises
    return np.nan if found is None else found


def _plain(value: object) -> Any:
    if is_missing(value):
        return np.nan
    return value.item() if isinstance(value, np.generic) else value


def places(values: Any, given: Any) -> npt.NDArray[np.int64]:
    """The place of each value among those given, compared by value; -1 if it is none of them."""
    found = {label: place for place, label in enumerate(record_bytes(given))}
    return np.array([found.get(label, -1) for label in record_bytes(values)], dtype=np.int64)


def scaled(values: npt.ArrayLike, low: float | Floats, high: float | Floats) -> Floats:
    """Values cut off at public bounds and mapped to [-1, 1]."""
    return np.asarray(2 * (np.clip(np.asarray(values, dtype=np.float64), low, high) - low) / (high - low) - 1)


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return bool(or_none(lambda: bool(value != value)))  # None of an object that cannot be compared


def missing_in(y: Any) -> Mask:
    """For each target, whether it is missing."""
    if isinstance(y, np.ndarray) and y.dtype.kind in "biuf" and len(y):
        return np.asarray(np.isnan(y).reshape(len(y), -1).any(axis=1))
    rows = y.to_numpy(dtype=object) if hasattr(y, "iloc") else y
    return np.array(
        [any(map(is_missing, row.flat if isinstance(row, np.ndarray) else [row])) for row in rows], dtype=bool
    )


class Schema(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a frame into numbers by what is publicly known of its columns; it learns nothing from the records.

    A number is cut off at its range and mapped to [-1, 1]; one that is missing becomes 0. A category becomes one column
    of 0 and 1 for each value it may take; another value, or none, is 0 in all of them. Every value is read by itself,
    so that no record can make the others fail. Columns that the schema does not name are left out.

    Args:
        columns: for each column its range ``(low, high)``, or the list of its categories.

    >>> import pandas as pd
    >>> schema = Schema({"age": (20, 60), "work": ["office", "outside"]})
    >>> schema.fit_transform(pd.DataFrame({"age": [30, None], "work": ["outside", "at home"]}))
    array([[-0.5,  0. ,  1. ],
           [ 0. ,  0. ,  0. ]])
    >>> schema.get_feature_names_out().tolist()
    ['age', 'work=office', 'work=outside']
    """

    per_record = True

    def __init__(self, columns: Mapping[str, tuple[float, float] | Sequence[Any]]) -> None:
        self.columns = columns

    def pipeline(self, estimator: Any) -> Pipeline:
        """A pipeline of this schema and an estimator: its hyperparameters have the prefix ``estimator__``."""
        return Pipeline([("schema", self), ("estimator", estimator)])

    def fit(self, X: Any, y: Any = None) -> Schema:
        """Look at the names of the columns alone."""
        self._check(X)
        refuse_times(X[list(self.columns)])
        for name, given in self.columns.items():
            words = not (isinstance(given, tuple) or np.isfinite(numbers(np.array(list(given), dtype=object))).any())
            if words and holds(X[name]) is Holds.NUMBERS:
                raise ValueError(f"column {name!r} holds numbers, and its categories {list(given)!r} are none")
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """A schema learns nothing: it needs no ``fit``, so that a release that was loaded can predict."""
        return True

    def _check(self, X: Any) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise _validate.fail("columns", self.columns, "give a dict of column names to ranges or categories")
        for name, given in self.columns.items():
            _check_column(f"columns[{name!r}]", given)
        if not hasattr(X, "columns"):
            raise TypeError(f"X is a {type(X).__name__}: a schema names columns, so give a frame (pandas.DataFrame)")
        if missing := [name for name in self.columns if name not in X.columns]:
            raise ValueError(f"the schema has a column {missing[0]!r} that is missing from X")

    def transform(self, X: Any) -> Floats:
        """The columns of the schema, in its order, as numbers."""
        self._check(X)
        parts: list[Floats] = []
        for name, given in self.columns.items():
            if isinstance(given, tuple):
                parts.append(np.nan_to_num(scaled(numbers(X[name]), *given))[:, None])
            else:
                parts.append(np.equal.outer(places(X[name], list(given)), np.arange(len(given))).astype(np.float64))
        return np.concatenate(parts, axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """A name for each column that comes out."""
        names = []
        for name, given in self.columns.items():
            names += [name] if isinstance(given, tuple) else [f"{name}={value}" for value in given]
        return np.asarray(names, dtype=object)


def _check_column(where: str, given: Any) -> None:
    if isinstance(given, tuple):
        if len(given) != 2 or not _validate.number(low=given[0]) < _validate.number(high=given[1]):
            raise _validate.fail(where, given, "give (low, high), low below high, or a list of categories")
        return
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) == 0:
        raise _validate.fail(where, given, "give a range (low, high), or a list of categories")
    values = list(given)
    if len(set(record_bytes(values))) < len(values):
        raise _validate.fail(where, given, "a category is listed twice")
    if len(values) == 2 and all(isinstance(one, int | float) for one in values) and abs(values[1] - values[0]) != 1:
        low, high = sorted(values)
        remedy = f"a list is of categories: for a range write ({low}, {high}); for two categories ['{low}', '{high}']"
        raise _validate.fail(where, given, remedy)
