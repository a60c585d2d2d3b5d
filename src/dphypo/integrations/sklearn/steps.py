"""Steps around a private estimator: accepted if they act on each record alone.

A step that learns from the records (a mean, a vocabulary, which columns are empty) hands on something of all of them to
each, and no event covers that. Accepted are steps known to learn nothing, and steps that say so themselves
(:func:`per_record`, or a class attribute ``per_record = True``). Either kind is then tried: on single rows, on rows in
another order, and fitted without some of them. The trial is a numerical check, not a proof.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)
from sklearn.utils import _safe_indexing

_ROWS = 24
_LEARN_NOTHING = (AdditiveChi2Sampler, Binarizer, FeatureHasher, HashingVectorizer, Normalizer, PolynomialFeatures)
_REMEDY = (
    "use steps that act on each record alone: encoders with given categories, imputers with a constant, "
    "FunctionTransformer(per_record(function)), public bounds (bounds=), or a pipeline from a public schema "
    "(dphypo.integrations.sklearn.Schema)"
)


@dataclass(frozen=True)
class per_record:  # noqa: N801 - used as a decorator
    """Declare that a function of rows treats each row by itself: ``FunctionTransformer(per_record(function))``.

    The declaration is tried on some records before a search begins.

    >>> FunctionTransformer(per_record(np.log1p)).fit_transform([[0.0]])
    array([[0.]])
    """

    function: Callable[..., Any]

    def __call__(self, rows: Any, **options: Any) -> Any:
        return self.function(rows, **options)


def refuse_learning(step: Any, name: str) -> None:
    """TypeError for a step that learns from the records, or that may and does not say that it does not."""
    if (reason := next(_reasons(step), None)) is not None:
        raise TypeError(f"step {name!r}, {type(step).__name__}, {reason}, and nothing makes that private: {_REMEDY}")


def _reasons(step: Any) -> Iterator[str]:
    """What a step, or one inside it, may learn."""
    if step is None or isinstance(step, str) or getattr(step, "per_record", False) is True:
        return
    kind = type(step)
    if kind is Pipeline:
        for _, inner in step.steps:
            yield from _reasons(inner)
    elif kind is FeatureUnion:
        for _, inner in step.transformer_list:
            yield from _reasons(inner)
    elif kind is ColumnTransformer:
        for _, inner, columns in step.transformers:
            if callable(columns):
                yield "chooses its columns by looking at all records (give their names)"
            yield from _reasons(inner)
        yield from _reasons(step.remainder)
    elif kind is FunctionTransformer:
        if not (step.func is None or _elementwise(step.func, step.kw_args)):
            yield "has a function that may mix records (declare with per_record(function) that it does not)"
    elif kind is SimpleImputer:
        if step.strategy != "constant" or step.fill_value is None or step.add_indicator or not step.keep_empty_features:
            yield (
                "learns from the records what is missing (give strategy='constant', a fill_value and "
                "keep_empty_features=True, without add_indicator)"
            )
    elif kind in (OneHotEncoder, OrdinalEncoder):
        if isinstance(step.categories, str) or step.min_frequency is not None or step.max_categories is not None:
            yield "learns the categories from the records (give categories=[...] from public knowledge)"
        elif step.handle_unknown == "error":
            yield "fails on one record with another category (give handle_unknown='ignore' or 'use_encoded_value')"
    elif kind.__name__ == "FrozenEstimator":
        return  # it was fitted before, by declaration on public records
    elif kind not in _LEARN_NOTHING:
        yield "learns from the records, or does not say that it does not"


def _elementwise(function: Any, options: Any) -> bool:
    if isinstance(function, per_record):
        return True
    return isinstance(function, np.ufunc) and function.signature is None and function.nin == 1 and not options


def refuse_mixing(steps: Any, X: Any) -> None:
    """TypeError if what a transformer makes of a record depends on the records beside it."""
    count = min(_ROWS, len(X) if hasattr(X, "__len__") else X.shape[0])
    if count < 2:
        return
    real = _safe_indexing(X, np.linspace(0, X.shape[0] - 1 if hasattr(X, "shape") else len(X) - 1, count).astype(int))
    for rows in (real, _made_up(real)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ignore warnings on synthetic input
            try:
                alone = _independent(steps, rows, count)
                what = "give a record other values when other records are beside it"
            except Exception as error:
                # The text of the error may hold values of a record.
                alone, what = False, f"fail with {type(error).__name__} on single records"
        if not alone:
            raise TypeError(f"the steps before the private estimator {what}, and nothing makes that private: {_REMEDY}")


def _independent(steps: Any, rows: Any, count: int) -> bool:
    def transformed(fitted_on: Any, places: Any) -> Any:
        result = clone(steps).fit(_safe_indexing(rows, fitted_on)).transform(_safe_indexing(rows, places))
        result = result.toarray() if hasattr(result, "toarray") else np.asarray(result)
        return result.reshape(len(places), -1)

    every = np.arange(count)
    whole, turned = transformed(every, every), every[::-1].copy()
    comparisons = [
        (transformed(turned, turned), whole[::-1]),
        (transformed(every[: count // 2], every), whole),
        *((transformed(every[[place]], every[[place]]), whole[[place]]) for place in every[:: max(1, count // 6)]),
    ]
    return all(this.shape == that.shape and _close(this, that) for this, that in comparisons)


def _close(this: Any, that: Any) -> bool:
    if this.dtype.kind in "biufc" and that.dtype.kind in "biufc":
        return bool(np.allclose(this, that, rtol=1e-5, atol=1e-9, equal_nan=True))
    return all(str(one) == str(other) for one, other in zip(this.flat, that.flat, strict=True))


def _made_up(rows: Any) -> Any:
    """Rows with other numbers, so that records that happen to be alike hide nothing."""
    rng = np.random.default_rng(0)
    if hasattr(rows, "iloc"):
        floats = [name for name, kind in rows.dtypes.items() if getattr(kind, "kind", "O") == "f"]
        return rows.assign(**{name: rows[name] + rng.normal(size=len(rows)) for name in floats}) if floats else rows
    array = np.asarray(rows)
    return array + rng.normal(size=array.shape) if array.dtype.kind == "f" else rows


def look_around(search: BaseEstimator) -> None:
    """Notice what fits a search from outside: a step that learns is refused, a repeated fit is warned of."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if owner is not search and frame.f_code.co_name.startswith("fit"):
            if type(owner) is Pipeline:
                for name, step in owner.steps[:-1]:
                    refuse_learning(step, name)
            elif isinstance(owner, TransformedTargetRegressor):
                refuse_learning(owner.transformer, "transformer")
                if owner.func is not None and not _elementwise(owner.func, None):
                    refuse_learning(FunctionTransformer(owner.func), "func")
            elif isinstance(owner, BaseEstimator):
                _warn_of_repeats(type(owner).__name__)
                return
        if frame.f_code.co_name == "cross_validate" and frame.f_globals.get("__name__", "").startswith("sklearn."):
            _warn_of_repeats("cross_validate")
            return
        frame = frame.f_back


def _warn_of_repeats(outside: str) -> None:
    warnings.warn(
        f"PrivateSearch is fitted inside {outside}: every fit is a search with a certificate of its own, and what "
        f"{outside} makes of them costs their composition (dphypo.compose), which no single certificate states",
        stacklevel=4,
    )
