"""The form in which the first step of a pipeline reads a table: numbers, plain values or rows; made-up rows in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.pipeline import Pipeline
from sklearn.utils._indexing import _get_column_indices

from dphypo.integrations.sklearn.pipeline import Reads, parts_of, reads
from dphypo.integrations.sklearn.table import Holds, holds, is_frame, numbers, plain_values, refuse_times, width_of

_WORDS = ("one", "two three", "four", "")
_HASHED = {"dict": {"one": 1.0}, "pair": [("one", 1.0)], "string": ["one"]}


def in_form(X: Any, steps: Pipeline) -> Any:
    """The table in the form that the first step reads: every value read by itself, in a type that none decides."""
    forms = _forms(X, steps)
    if is_frame(X):
        read: dict[Reads, Any] = {
            Reads.NUMBERS: lambda column: numbers(column).astype(np.float64),
            Reads.VALUES: plain_values,
            Reads.ROWS: lambda column: column,
        }
        return _frame(X, {place: read[form](X.iloc[:, place]) for place, form in enumerate(forms)})
    if Reads.VALUES in forms:
        return plain_values(X)
    if Reads.ROWS in forms or hasattr(X, "toarray"):
        return X
    table = np.asarray(numbers(X))
    return table.astype(np.float64) if table.dtype.kind in "biuf" else table


def _frame(like: Any, columns: dict[int, Any]) -> Any:
    frame = type(like)(columns)
    frame.columns = like.columns
    return frame


def _forms(X: Any, steps: Pipeline) -> list[Reads]:
    """The form of each column; of an array, all are in one."""
    first = next((step for step in parts_of(steps) if reads(step) is not None), None)
    width = width_of(X)
    if first is None or type(first) is not ColumnTransformer:
        return [reads(first) or Reads.NUMBERS] * width
    table = X if is_frame(X) else np.zeros((0, width))
    given = [(inner, _get_column_indices(table, key)) for _, inner, key in first.transformers]
    rest = set(range(width)) - {place for _, places in given for place in places}
    found: dict[int, set[Reads]] = {place: set() for place in range(width)}
    for inner, places in (*given, (first.remainder, rest)):
        for place in places:
            found[place].add(reads(inner) or Reads.NUMBERS)
    # Numbers can be made of plain values, too.
    return [forms.pop() if len(forms) == 1 else Reads.VALUES for forms in found.values()]


def synthetic_rows(X: Any, steps: Pipeline, count: int) -> Any:
    """This many rows with the columns and types of X, in the form that the first step reads."""
    rng = np.random.default_rng(0)
    pool = [*_categories(steps), *_WORDS]
    forms = _forms(X, steps)
    hashers = [step for step in parts_of(steps) if isinstance(step, FeatureHasher)]
    if hashers:
        return [_HASHED[hashers[0].input_type]] * count
    if is_frame(X):
        refuse_times(X.iloc[:0, [place for place, form in enumerate(forms) if form is Reads.NUMBERS]])
        return _frame(X, {place: _made(form, X.iloc[:0, place], pool, count, rng) for place, form in enumerate(forms)})
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
    if lists is not None and not isinstance(lists, str):
        yield from itertools.chain.from_iterable(lists)
