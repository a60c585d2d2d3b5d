"""Ranking the runs of a search over estimators: on public records for nothing, or on private ones with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import dp_accounting
import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring

from dphypo import _validate
from dphypo.integrations import streams


class Score(Protocol):
    """A score of a fitted estimator, and what it costs."""

    @property
    def event(self) -> dp_accounting.DpEvent | None: ...

    def __call__(self, fitted: Any, seed: int) -> float: ...


@dataclass(frozen=True, repr=False)
class Public:
    """Any of scikit-learn's scorers on public records."""

    X: Any
    y: Any
    scorer: Callable[..., float]
    event: None = None

    def __call__(self, fitted: Any, seed: int) -> float:
        return float(self.scorer(fitted, self.X, self.y))


@dataclass(frozen=True, repr=False)
class Noisy:
    """A sum over private records of a value in [0, bound] a record, with Gaussian noise, over a declared constant.

    Adding or removing one record changes the sum by at most ``bound``: a Gaussian mechanism.
    """

    X: Any
    y: Any
    noise_multiplier: float
    records: int
    bound: float
    value: Callable[[Any, Any], Any]

    @property
    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def __call__(self, fitted: Any, seed: int) -> float:
        values = (
            np.asarray(self.value(self.y, fitted.predict(self.X)), dtype=np.float64) if len(self.X) else np.zeros(0)
        )
        # What is not a number counts as nothing, so that no record can exceed the bound.
        total = np.clip(np.nan_to_num(values), 0.0, self.bound).sum()
        noise = self.bound * self.noise_multiplier * streams.philox(seed, "score").normal()
        return float((total + noise) / self.records)


def public(estimator: Any, scoring: Any, X: Any, y: Any) -> Public:
    return Public(X, y, check_scoring(estimator, scoring=scoring))


def noisy(estimator: Any, X: Any, y: Any, *, noise_multiplier: float, records: int, error_bound: float | None) -> Noisy:
    """Accuracy for a classifier; for a regressor, by how much the absolute error stays below ``error_bound``."""
    if is_classifier(estimator):
        return Noisy(X, y, noise_multiplier, records, 1.0, lambda truth, guess: truth == guess)
    if error_bound is None:
        raise ValueError(
            "error_bound = None: to score a regressor on private records, give the largest absolute error that counts, "
            "from public knowledge; or pass public records, fit(X, y, holdout=(X_public, y_public))"
        )
    bound = _validate.positive(error_bound=error_bound)
    return Noisy(X, y, noise_multiplier, records, bound, lambda truth, guess: bound - np.abs(truth - guess))
