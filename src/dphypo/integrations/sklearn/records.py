"""Records meet the steps of a pipeline one by one: whether a record counts depends on that record alone.

The steps are fitted on made-up rows with the names and types of the columns, never on private ones. Then the records
are taken through them, in a form that depends on public things alone: the names and types of the columns, and what the
steps declare. A record on which the steps raise is left out: the batch that failed is halved until it stands alone. So
no record can make a run fail, and none is seen beside another that does.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples

from dphypo.integrations.sklearn.pipeline import ChecksData, Parts, Reads, parts_of, reads, refuse_mixing
from dphypo.integrations.sklearn.table import Holds, holds, missing_in, numbers, plain_values, refuse_times

Mask = npt.NDArray[np.bool_]
_MADE = 24  # made-up rows
_WORDS = ("one", "two three", "four", "")
_HASHED = {"dict": {"one": 1.0}, "pair": [("one", 1.0)], "string": ["one"]}


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """An estimator, or a pipeline that ends in one, whose steps were fitted on made-up rows."""

    whole: Any
    steps: Pipeline | None  # before the private part, as one pipeline
    last: Any  # the private part
    rows: Any = None  # the made-up rows that the steps take
    key: Hashable = None  # the tuned parameters of the steps: equal keys mean equal steps

    @classmethod
    def of(cls, whole: Any, X: Any, key: Hashable = None) -> Prepared:
        """Fit the steps of ``whole``: they learn the number, the names and the types of the columns of X alone."""
        parts = Parts.of(whole)
        named = [(f"{place}", step) for place, (_, step) in enumerate(parts.steps) if step not in (None, "passthrough")]
        if not named:
            return cls(whole, None, parts.last)
        steps = Pipeline(named)
        rows = _synthetic_rows(X, steps, _MADE)
        with warnings.catch_warnings(action="ignore"):  # about made-up values
            try:
                steps.fit(rows)
            except Exception as error:
                raise TypeError(
                    f"the steps before the private estimator cannot be fitted on made-up records with the columns and "
                    f"types of X: {error}"
                ) from error
            if not _works(steps, rows):
                alone = [place for place in range(_MADE) if _works(steps, _rows(rows, place, place + 1))]
                rows = _safe_indexing(rows, alone)
        return cls(whole, steps, parts.last, rows, key)

    @property
    def made(self) -> Any:
        """What the steps make of the made-up rows; None if they take none."""
        if self.steps is None or not _num_samples(self.rows):
            return None
        with warnings.catch_warnings(action="ignore"):
            return self.steps.transform(self.rows)

    @property
    def template(self) -> Any:
        """A table with the columns that the steps make, from made-up rows or by the names that the steps declare.

        TypeError if neither says how many there are: the first private record that they take would.
        """
        if (made := self.made) is not None:
            return made
        try:
            assert self.steps is not None
            return np.zeros((0, len(self.steps.get_feature_names_out())))
        except Exception:
            raise TypeError(
                "the steps before the private estimator take none of the made-up records on which they are tried, and "
                "do not say how many columns they make, which a private record would then decide: let a function give "
                "NaN for what it cannot read, or declare the columns with FunctionTransformer(per_record(function), "
                "feature_names_out=...): 'one-to-one', or a function such as lambda step, names: ['age', 'year']"
            ) from None

    def try_out(self) -> None:
        """TypeError if what the steps make of a made-up record depends on the records beside it.

        The trial is a numerical check of what steps declare, not a proof. It looks at no private record.
        """
        if self.steps is None:
            return
        if not _num_samples(self.rows):
            _ = self.template
            warnings.warn(
                "the steps before the private estimator take none of the made-up records on which they are tried: that "
                "they treat each record by itself is your word alone",
                stacklevel=4,
            )
        elif not _independent(self.steps, self.rows):
            raise refuse_mixing("give a record other values when other records are beside it")

    def check_data(self, X: Any, y: Any) -> None:
        """Let the private part refuse data by their types: behind steps it is shown made-up rows."""
        shown = X if self.steps is None else self.made
        if shown is not None and isinstance(self.last, ChecksData):
            if self.steps is not None:
                shown = _safe_indexing(shown, np.resize(np.arange(_num_samples(shown)), _num_samples(X)))
            clone(self.last).check_data(shown, y)


def _works(steps: Pipeline, rows: Any) -> bool:
    try:
        steps.transform(rows)
    except Exception:
        return False
    return True


def _independent(steps: Pipeline, rows: Any) -> bool:
    def transformed(fitted_on: Any, places: Any) -> Any:
        result = clone(steps).fit(_safe_indexing(rows, fitted_on)).transform(_safe_indexing(rows, places))
        return _dense(result).reshape(len(places), -1)

    every = np.arange(_num_samples(rows))
    turned = every[::-1].copy()
    try:
        with warnings.catch_warnings(action="ignore"):
            whole = transformed(every, every)
            comparisons = [
                (transformed(turned, turned), whole[::-1]),
                (transformed(every[: (len(every) + 1) // 2], every), whole),
                *((transformed(every[[one]], every[[one]]), whole[[one]]) for one in every[:: max(1, len(every) // 6)]),
            ]
    except Exception as error:
        raise refuse_mixing(f"fail with {type(error).__name__} on made-up records") from error
    return all(this.shape == that.shape and _close(this, that) for this, that in comparisons)


def _close(this: Any, that: Any) -> bool:
    if this.dtype.kind in "biufc" and that.dtype.kind in "biufc":
        return bool(np.allclose(this, that, rtol=1e-5, atol=1e-9, equal_nan=True))
    return all(str(one) == str(other) for one, other in zip(this.flat, that.flat, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class TableRecords:
    """Private records and their targets, as they were given."""

    X: Any
    y: Any
    _kept: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict, init=False)

    def only(self, chosen: Mask) -> TableRecords:
        """Some of the records; frames stay frames."""
        places = np.flatnonzero(chosen)
        return TableRecords(_safe_indexing(self.X, places), _safe_indexing(self.y, places))

    def met_by(self, prepared: Prepared) -> tuple[Any, Any]:
        """The inputs and targets that the private part meets.

        Left out is a record on which the steps raise, one without a target, and one with a value that is not finite
        where the private part says that it takes none (scikit-learn's tag ``allow_nan``).
        """
        if prepared.key in self._kept:
            return self._kept[prepared.key]
        picky = not get_tags(prepared.last).input_tags.allow_nan
        inside = ~missing_in(self.y)
        if prepared.steps is None:
            table = np.asarray(numbers(self.X)) if picky else self.X
        else:
            table, taken = _taken(prepared.steps, _in_form(self.X, prepared.steps), prepared.template)
            inside &= taken
        if picky:
            inside &= np.isfinite(np.asarray(table, dtype=np.float64).reshape(len(inside), -1)).all(1)
        met = table, self.y
        if not inside.all():
            places = np.flatnonzero(inside)
            met = _safe_indexing(table, places), _safe_indexing(self.y, places)
        self._kept.clear()
        self._kept[prepared.key] = met
        return met

    def __getstate__(self) -> dict[str, Any]:
        return {"X": self.X, "y": self.y, "_kept": {}}


def _taken(steps: Pipeline, rows: Any, template: Any) -> tuple[Any, Mask]:
    """Every record after the steps, with NaN for those that they do not take, and which they take."""
    count = _num_samples(rows)
    taken, parts = np.zeros(count, dtype=np.bool_), []
    width = _dense(template).shape[1]

    def take(low: int, high: int) -> None:
        try:
            part = _dense(steps.transform(_rows(rows, low, high))).reshape(high - low, -1)
            if part.shape[1] != width:
                raise ValueError
            part = np.asarray(numbers(part), dtype=np.float64)
        except Exception:
            if high - low > 1:
                take(low, (low + high) // 2)
                take((low + high) // 2, high)
            return
        parts.append(part)
        taken[low:high] = True

    with warnings.catch_warnings(action="ignore"):  # about single records
        if count:
            take(0, count)
    table = np.full((count, width), np.nan)
    if parts:
        table[taken] = np.concatenate(parts)
    return (type(template)(table, columns=template.columns) if hasattr(template, "columns") else table), taken


def _dense(table: Any) -> npt.NDArray[Any]:
    return np.asarray(table.toarray() if hasattr(table, "toarray") else table)


def _rows(table: Any, low: int, high: int) -> Any:
    return table.iloc[low:high] if hasattr(table, "iloc") else table[low:high]


def _in_form(X: Any, steps: Pipeline) -> Any:
    """The table in the form that the first step reads: every value read by itself, in a type that none decides."""
    forms = _forms(X, steps)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        read = {place: _column(X.iloc[:, place], forms[place]) for place in range(len(X.columns))}
        return _frame(X, read, X.index)
    if Reads.VALUES in forms:
        return plain_values(X)
    if Reads.ROWS in forms or hasattr(X, "toarray"):
        return X
    table = np.asarray(numbers(X))
    return table.astype(np.float64) if table.dtype.kind in "biuf" else table


def _column(values: Any, form: Reads) -> Any:
    if form is Reads.NUMBERS:
        return numbers(values).astype(np.float64)
    return plain_values(values) if form is Reads.VALUES else values


def _frame(like: Any, columns: dict[int, Any], index: Any = None) -> Any:
    frame = type(like)(columns, index=index)
    frame.columns = like.columns
    return frame


def _forms(X: Any, steps: Pipeline) -> list[Reads]:
    """The form of each column; of an array, all are in one."""
    first = next((step for step in parts_of(steps) if reads(step) is not None), None)
    names = list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1] if np.ndim(X) == 2 else 1))
    if first is None or type(first) is not ColumnTransformer:
        return [reads(first) or Reads.NUMBERS] * len(names)
    given = [(inner, _places(names, key)) for _, inner, key in first.transformers]
    rest = set(range(len(names))) - {place for _, places in given for place in places}
    found: dict[int, set[Reads]] = {place: set() for place in range(len(names))}
    for inner, places in (*given, (first.remainder, rest)):
        for place in places:
            found[place].add(reads(inner) or Reads.NUMBERS)
    # Numbers can be made of plain values, too.
    return [forms.pop() if len(forms) == 1 else Reads.VALUES for forms in found.values()]


def _places(names: list[Any], key: Any) -> list[int]:
    """The places of the columns that a key of a ColumnTransformer names."""
    if isinstance(key, slice) and all(isinstance(end, int | None) for end in (key.start, key.stop, key.step)):
        return list(range(len(names)))[key]
    if isinstance(key, slice):
        low, high = (end if end is None else names.index(end) for end in (key.start, key.stop))
        return list(range(len(names)))[low : None if high is None else high + 1]
    keys = [key] if isinstance(key, str) or np.ndim(key) == 0 else list(key)
    if keys and all(isinstance(one, bool | np.bool_) for one in keys):
        return np.flatnonzero(keys).tolist()
    return [names.index(one) if isinstance(one, str) else int(one) % len(names) for one in keys]


def _synthetic_rows(X: Any, steps: Pipeline, count: int) -> Any:
    """This many rows with the columns and types of X, in the form that the first step reads."""
    rng = np.random.default_rng(0)
    pool = [*_categories(steps), *_WORDS]
    forms = _forms(X, steps)
    hashers = [step for step in parts_of(steps) if isinstance(step, FeatureHasher)]
    if hashers:
        return [_HASHED[hashers[0].input_type]] * count
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        refuse_times(X.iloc[:0, [place for place, form in enumerate(forms) if form is Reads.NUMBERS]])
        columns = [X.iloc[:0, place] for place in range(len(X.columns))]
        return _frame(X, {place: _made(forms[place], column, pool, count, rng) for place, column in enumerate(columns)})
    if np.ndim(X) != 2:
        return _made(forms[0], X, pool, count, rng)
    if Reads.VALUES in forms:
        return rng.choice(np.array(pool, dtype=object), (count, len(forms)))
    return np.column_stack([_made(form, X, pool, count, rng) for form in forms])


def _made(form: Reads, like: Any, pool: list[Any], count: int, rng: np.random.Generator) -> Any:
    """One made-up column."""
    drawn = rng.normal(size=count)
    if form is Reads.NUMBERS:
        return drawn
    words = rng.choice(np.array(pool, dtype=object), count)
    if form is Reads.VALUES:
        return words
    if holds(like) is Holds.NUMBERS:
        return drawn if like.dtype.kind in "fc" else (drawn > 0).astype(like.dtype)
    return np.datetime64("2000-01-01") + np.arange(count) if holds(like) is Holds.TIMES else words.astype(object)


def _categories(step: Any) -> Iterator[Any]:
    """The categories that encoders inside a step were given."""
    for inner in parts_of(step):
        yield from _categories(inner)
    lists: Any = getattr(step, "categories", None)
    yield from (value for one in (() if lists is None or isinstance(lists, str) else lists) for value in one)
