"""Records meet the steps of a pipeline one by one: whether a record counts depends on that record alone.

The steps are fitted on made-up rows with the names and types of the columns, never on private ones. Then the records
are taken through them, in a form that depends on public things alone: the names and types of the columns, and what the
steps declare. A record on which the steps raise is left out: the block that failed is halved until it stands alone. So
no record can make a run fail, and none is seen beside another that does. What a record becomes does not depend on the
others in a single bit: blocks have one size, the last one is filled up. Products of matrices round a row by the number
of rows. Where they round it by its place, too, which is tried out on made-up rows, blocks hold one record.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples

from dphypo import _validate
from dphypo.integrations.sklearn.forms import in_form, synthetic_rows
from dphypo.integrations.sklearn.pipeline import ChecksData, Parts, refuse_mixing
from dphypo.integrations.sklearn.table import Mask, missing_in, numbers

_MADE = 24  # made-up rows
_BLOCK = 256  # records that the steps meet at once


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
        rows = synthetic_rows(X, steps, _MADE)
        try:
            with warnings.catch_warnings(action="ignore"):  # about made-up values
                steps.fit(rows)
        except Exception as error:
            why = "cannot be fitted on made-up records with the columns and types of X"
            raise TypeError(f"the steps before the private estimator {why}: {error}") from error
        if not _works(steps, rows):
            alone = [place for place in range(_MADE) if _works(steps, _safe_indexing(rows, [place]))]
            rows = _safe_indexing(rows, alone)
        return cls(whole, steps, parts.last, rows, key)

    @property
    def made(self) -> Any:
        """What the steps make of the made-up rows; None if they take none."""
        taken = self.steps is not None and _num_samples(self.rows)
        return _transformed(self.steps, self.rows) if taken else None

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
                "NaN for what it cannot read, or declare the columns: FunctionTransformer(..., feature_names_out=...)"
            ) from None

    @property
    def block(self) -> int:
        """How many records the steps meet at once: many if a made-up one becomes the same, bit by bit, in any place."""
        assert self.steps is not None
        if not (count := _num_samples(self.rows)):
            return 1
        places = np.resize(np.arange(count), _BLOCK)
        orders = [places, np.roll(places, 1), np.roll(places, _BLOCK // 3 + 1), places[::-1]]
        first = _block(self.steps, self.rows, places)[:count]
        tried = ((_block(self.steps, self.rows, order), first[order]) for order in orders)
        return _BLOCK if all(np.array_equal(made, alike, equal_nan=True) for made, alike in tried) else 1

    def try_out(self) -> None:
        """TypeError if what the steps make of a made-up record depends on the records beside it.

        The trial is a numerical check of what steps declare, not a proof. It looks at no private record.
        """
        if self.steps is None:
            return
        if not _num_samples(self.rows):
            _ = self.template
            _validate.warn(
                "the steps before the private estimator take none of the made-up records on which they are tried: that "
                "they treat each record by itself is your word alone"
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


def _transformed(steps: Any, rows: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # about single records
        return steps.transform(rows)


def _works(steps: Pipeline, rows: Any) -> bool:
    try:
        _transformed(steps, rows)
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
            table, taken = _taken(prepared, in_form(self.X, prepared.steps))
            inside &= taken
        if picky:
            values = np.asarray(table, dtype=np.float64)
            inside &= np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        met = table, self.y
        if not inside.all():
            places = np.flatnonzero(inside)
            met = _safe_indexing(table, places), _safe_indexing(self.y, places)
        self._kept.clear()
        self._kept[prepared.key] = met
        return met

    def __getstate__(self) -> dict[str, Any]:
        return {"X": self.X, "y": self.y, "_kept": {}}


def _taken(prepared: Prepared, rows: Any) -> tuple[Any, Mask]:
    """Every record after the steps, with NaN for those that they do not take, and which they take."""
    count, size, template = _num_samples(rows), prepared.block, prepared.template
    taken = np.zeros(count, dtype=np.bool_)
    table = np.full((count, _dense(template).shape[1]), np.nan)

    def take(places: npt.NDArray[np.int64]) -> None:
        try:
            part = _block(prepared.steps, rows, np.pad(places, (0, size - len(places)), "edge"))
            if part.shape[1] != table.shape[1]:
                raise ValueError
        except Exception:
            if len(places) > 1:
                for half in np.array_split(places, 2):
                    take(half)
            return
        table[places], taken[places] = part[: len(places)], True

    for low in range(0, count, size):
        take(np.arange(low, min(low + size, count)))
    return (type(template)(table, columns=template.columns) if hasattr(template, "columns") else table), taken


def _block(steps: Any, rows: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """What the steps make of the rows in these places, as numbers, without the names of rows."""
    block = _safe_indexing(rows, places)
    made = _transformed(steps, block.reset_index(drop=True) if hasattr(block, "reset_index") else block)
    return np.asarray(numbers(_dense(made).reshape(len(places), -1)), dtype=np.float64)


def _dense(table: Any) -> npt.NDArray[Any]:
    return np.asarray(table.toarray() if hasattr(table, "toarray") else table)
