"""What :class:`PrivateSearch` accepts: a private estimator, alone or behind steps that act on each record alone.

A step that learns from the records (a mean, a vocabulary, which columns are empty) hands on something of all of them to
each, and no event covers that. Accepted are steps known to learn nothing, and steps that say so themselves
(:func:`per_record`, or ``per_record = True`` in the class that defines ``transform``). ``records.py`` takes the records
through them.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
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

from dphypo import _validate
from dphypo._validate import class_promises
from dphypo.accounting.events import Event
from dphypo.mechanisms import Saver
from dphypo.mechanisms.savers import Pickled as Pickled
from dphypo.space import Space

_OF_NUMBERS = (AdditiveChi2Sampler, Binarizer, Normalizer, PolynomialFeatures)
_OF_ROWS = (FeatureHasher, HashingVectorizer)
_ENCODERS = (OneHotEncoder, OrdinalEncoder)
_REMEDY = (
    "nothing makes that private: use steps that act on each record alone: encoders with given categories, imputers "
    "with a constant, FunctionTransformer(per_record(function)), public bounds (bounds=), or a pipeline from a public "
    "schema (dphypo.integrations.sklearn.Schema)"
)


@runtime_checkable
class PrivateEstimator(Protocol):
    """A scikit-learn estimator whose ``fit`` is differentially private.

    Besides :meth:`privacy_event` it needs scikit-learn's ``get_params`` and ``set_params``, and a parameter
    ``random_state``, an integer from which **all** randomness of ``fit`` comes: the search sets it for every run.

    If the event depends on the number of records (a sampling rate, a number of steps), it also needs a parameter
    ``records``, a public constant that the search sets and that ``fit`` uses in place of ``len(X)``: how many records
    ``fit`` is given is private. Without this parameter such an event is refused.

    It may also be :class:`CutShort`, :class:`ChecksData`, :class:`ChecksSpace` or :class:`Saved`.
    """

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> Event:
        """The event of one ``fit`` with these parameters in place of the estimator's own, on this many records.

        It bounds ``fit`` under adding or removing one record. It should read only those parameters that it depends
        on, with ``params.get(name, self.name)``: a search takes the supremum over all values of what it reads.
        """

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


@runtime_checkable
class CutShort(Protocol):
    """An estimator that can be surveyed by short fits."""

    def cut_short(self, params: Mapping[str, Any], fraction: float, *, records: int, transfer: bool) -> dict[str, Any]:
        """The parameters that a fit with this fraction of the steps has other than a full one.

        With ``transfer`` also those that only make it comparable (a learning rate); without, those alone that its
        event depends on.
        """


@runtime_checkable
class ChecksData(Protocol):
    """An estimator that refuses data which ``fit`` cannot use: inside a run, an error is an outcome."""

    def check_data(self, X: Any, y: Any) -> Any:
        """Raise an error for such data, by their types alone."""


@runtime_checkable
class ChecksSpace(Protocol):
    """An estimator that refuses spaces which it cannot be searched over."""

    def check_space(self, space: Space, prefix: str) -> None:
        """Raise an error for such a space, in which the names of its parameters begin with a prefix."""


@runtime_checkable
class Saved(Protocol):
    """An estimator that says how its fitted copies are saved; others are pickled."""

    def saver(self, whole: Any) -> Saver:
        """Saves fitted copies of ``whole``, which is this estimator or a pipeline that ends in it."""


@dataclass(frozen=True)
class per_record:  # noqa: N801 - used as a decorator
    """Declare that a function of rows treats each row by itself: ``FunctionTransformer(per_record(function))``.

    The declaration is tried on made-up records before a search begins.

    >>> FunctionTransformer(per_record(np.log1p)).fit_transform([[0.0]])
    array([[0.]])
    """

    function: Callable[..., Any]

    def __call__(self, rows: Any, **options: Any) -> Any:
        return self.function(rows, **options)


@dataclass(frozen=True)
class Parts:
    """A pipeline taken apart: its steps by name, what they lead to, and the prefix of its parameters."""

    steps: tuple[tuple[str, Any], ...]
    last: Any
    prefix: str

    @classmethod
    def of(cls, estimator: Any) -> Parts:
        """An estimator by itself, or the steps of nested pipelines in order and what they end in."""
        steps: list[tuple[str, Any]] = []
        prefix = ""
        while isinstance(estimator, Pipeline):
            steps += estimator.steps[:-1]
            name, estimator = estimator.steps[-1]
            prefix += f"{name}__"
        return cls(tuple(steps), estimator, prefix)

    @classmethod
    def accepted(cls, estimator: Any) -> Parts:
        """The same; TypeError for a step that may learn from the records, or if the last states no event."""
        parts = cls.of(estimator)
        for name, step in parts.steps:
            for reason in _reasons(step):
                raise TypeError(f"step {name!r}, {type(step).__name__}, {reason}, and {_REMEDY}")
        if not isinstance(parts.last, PrivateEstimator):
            raise TypeError(
                f"{type(parts.last).__name__} does not state its privacy event: PrivateSearch needs an estimator whose "
                f"fit is private and that has privacy_event(params, *, records), such as DPSGDClassifier"
            )
        return parts

    def takes(self, name: str) -> bool:
        """Whether the private part has a parameter of this name."""
        return name in self.last.get_params()

    def has_free_noise(self, space: Space) -> bool:
        """Whether the private part has a parameter ``noise_multiplier`` that is not tuned."""
        return self.takes("noise_multiplier") and f"{self.prefix}noise_multiplier" not in space.names


def saver_for(estimator: Any) -> Saver:
    """How the fitted copies of an estimator, or of a pipeline that ends in one, are saved."""
    last = Parts.accepted(estimator).last
    return last.saver(estimator) if isinstance(last, Saved) else Pickled()


def refuse_mixing(why: str) -> TypeError:
    return TypeError(f"the steps before the private estimator {why}, and {_REMEDY}")


def _reasons(step: Any) -> Iterator[str]:
    """What a step, or one inside it, may learn."""
    kind = type(step)
    if step is None or isinstance(step, str) or _says_per_record(step) or kind is FrozenEstimator:
        return  # a frozen step was fitted before, by declaration on public records
    if kind in (Pipeline, FeatureUnion):
        for inner in parts_of(step):
            yield from _reasons(inner)
    elif kind is ColumnTransformer:
        if step.sparse_threshold != 0:
            yield "learns from the records whether its output is sparse (give sparse_threshold=0)"
        for _, inner, columns in step.transformers:
            if callable(columns):
                yield "chooses its columns by looking at all records (give their names)"
            yield from _reasons(inner)
        yield from _reasons(step.remainder)
    elif kind is FunctionTransformer:
        function = step.func
        ufunc = isinstance(function, np.ufunc) and function.signature is None and function.nin == 1
        if not (function is None or type(function) is per_record or (ufunc and not step.kw_args)):
            yield "has a function that may mix records (declare with per_record(function) that it does not)"
    elif kind is SimpleImputer:
        if step.strategy != "constant" or step.fill_value is None or step.add_indicator or not step.keep_empty_features:
            yield (
                "learns from the records what is missing (give strategy='constant', a fill_value and "
                "keep_empty_features=True, without add_indicator)"
            )
    elif kind in _ENCODERS:
        if isinstance(step.categories, str) or step.min_frequency is not None or step.max_categories is not None:
            yield "learns the categories from the records (give categories=[...] from public knowledge)"
        elif step.handle_unknown == "error":
            yield "fails on one record with another category (give handle_unknown='ignore' or 'use_encoded_value')"
    elif kind not in _OF_NUMBERS + _OF_ROWS:
        yield "learns from the records, or does not say that it does not"


def parts_of(step: Any) -> list[Any]:
    """The steps of a pipeline, the transformers of a union or of columns; none of any other step."""
    if isinstance(step, ColumnTransformer):
        return [*(inner for _, inner, _ in step.transformers), step.remainder]
    pairs = step.steps if isinstance(step, Pipeline) else getattr(step, "transformer_list", ())
    return [inner for _, inner in pairs]


def _says_per_record(step: object) -> bool:
    """Whether the class that defines ``transform`` declares that each record is treated by itself."""
    return class_promises(step, "per_record", "transform")


class Reads(enum.Enum):
    """In which form a step is given the records, so that no record decides in which form the others come."""

    NUMBERS = "numbers, NaN for what is none"
    VALUES = "plain values, NaN for what is missing"
    ROWS = "rows as they are"


def reads(step: Any) -> Reads | None:
    """What a step reads, by its declaration; None if it hands on whatever it gets."""
    kind = type(step)
    if step is None or isinstance(step, str) or (kind is FunctionTransformer and step.func is None):
        return None
    if kind in (Pipeline, FeatureUnion):
        return next((found for inner in parts_of(step) if (found := reads(inner)) is not None), None)
    if kind is FrozenEstimator:
        return reads(step.estimator)
    if kind in _ENCODERS:
        counted = all(isinstance(one, int | float | np.number) for given in step.categories for one in given)
        return Reads.NUMBERS if counted else Reads.VALUES
    if kind is SimpleImputer and isinstance(step.fill_value, str):
        return Reads.VALUES
    declared = _says_per_record(step) or (kind is FunctionTransformer and type(step.func) is per_record)
    return Reads.ROWS if declared or kind in (*_OF_ROWS, ColumnTransformer) else Reads.NUMBERS


def look_around(search: BaseEstimator) -> None:
    """Notice what fits a search from outside: steps around it are refused, a repeated fit is warned of.

    Steps around a search see all records before it does, and fail on one that they cannot take.
    """
    frame: Any = sys._getframe(2)
    while frame is not None:
        owner, called, outside = frame.f_locals.get("self"), frame.f_code.co_name, ""
        if owner is not search and called.startswith("fit"):
            if type(owner) is Pipeline:
                for name, step in owner.steps[:-1]:
                    if step not in (None, "passthrough"):
                        _refuse_outside(f"step {name!r}, {type(step).__name__}, stands", "Put it inside")
            elif isinstance(owner, TransformedTargetRegressor):
                _refuse_outside("TransformedTargetRegressor stands", "Transform the targets first, or give bounds")
            elif isinstance(owner, BaseEstimator):
                outside = type(owner).__name__
        if called == "cross_validate" and frame.f_globals.get("__name__", "").startswith("sklearn."):
            outside = called
        if outside:
            _validate.warn(
                f"PrivateSearch is fitted inside {outside}: every fit is a search with a certificate of its own, and "
                f"{outside} costs their composition (dphypo compose), which no single certificate states"
            )
            return
        frame = frame.f_back


def _refuse_outside(what: str, remedy: str) -> None:
    raise TypeError(
        f"{what} around PrivateSearch: it sees all records before the search does, may learn from them or fail on a "
        f"single one, and nothing makes that private. {remedy}: PrivateSearch(Pipeline([...]))"
    )
