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
from dphypo.integrations.sklearn.table import numbers
from dphypo.integrations.split import record_bytes


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
class NoisyAccuracy:
    """The share of private records that are classified correctly, with Gaussian noise on the count.

    Adding or removing one record changes the count by at most 1: a Gaussian mechanism.
    """

    X: Any
    y: Any
    noise_multiplier: float | str
    records: int

    @property
    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(known(self.noise_multiplier))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the score."""
        return known(self.noise_multiplier) / self.records

    def __call__(self, fitted: Any, seed: int) -> float:
        correct = 0
        if len(self.y):
            # By value, each record alone: one label of another type changes the type of all of them.
            guesses, truth = record_bytes(fitted.predict(self.X)), record_bytes(self.y)
            correct = sum(guess == label for guess, label in zip(guesses, truth, strict=True))
        return float(correct / self.records + self.noise * streams.philox(seed, "score").normal())


@dataclass(frozen=True, repr=False)
class NoisyError:
    """Minus the mean absolute error on private records, each cut off at ``bound``, with Gaussian noise on the sum.

    Adding or removing one record changes the sum by at most ``bound``: a Gaussian mechanism.
    """

    X: Any
    y: Any
    noise_multiplier: float | str
    records: int
    bound: float

    @property
    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(known(self.noise_multiplier))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the score."""
        return self.bound * known(self.noise_multiplier) / self.records

    def __call__(self, fitted: Any, seed: int) -> float:
        total = 0.0
        if len(self.y):
            truth = np.asarray(numbers(self.y), dtype=np.float64)
            # A target that is not a number adds nothing, so that no record can exceed the bound.
            errors = np.nan_to_num(np.abs(truth - fitted.predict(self.X)), nan=0.0, posinf=self.bound)
            total = float(np.clip(errors, 0.0, self.bound).sum())
        return float(-total / self.records + self.noise * streams.philox(seed, "score").normal())


def known(noise_multiplier: float | str) -> float:
    """The noise of a score, which must have been found."""
    if isinstance(noise_multiplier, str):
        raise ValueError(
            f"score_noise_multiplier = {noise_multiplier!r} needs a survey that solves for it: give a number, or "
            f"epsilon=... and no runs"
        )
    return noise_multiplier


def public(estimator: Any, scoring: Any, X: Any, y: Any) -> Public:
    return Public(X, y, check_scoring(estimator, scoring=scoring))


def noisy(
    estimator: Any, X: Any, y: Any, *, noise_multiplier: float | str, records: int, error_bound: float | None
) -> NoisyAccuracy | NoisyError:
    """Accuracy for a classifier; for a regressor, minus the mean absolute error up to ``error_bound``."""
    if is_classifier(estimator):
        return NoisyAccuracy(X, y, noise_multiplier, records)
    if error_bound is None:
        raise ValueError(
            "error_bound = None: to score a regressor on private records, give the largest absolute error that counts, "
            "from public knowledge; or pass public records, fit(X, y, holdout=(X_public, y_public))"
        )
    return NoisyError(X, y, noise_multiplier, records, _validate.positive(error_bound=error_bound))
