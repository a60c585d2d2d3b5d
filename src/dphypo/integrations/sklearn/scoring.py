"""Ranking the runs of a search over estimators: on public records for nothing, or on private ones with noise."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import dp_accounting
import numpy as np
from sklearn.base import is_classifier

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.integrations.record_hash import record_bytes
from dphypo.integrations.sklearn.records import Prepared, Records
from dphypo.integrations.sklearn.table import numbers


class Score(Protocol):
    """A score of a fitted estimator, and what it costs."""

    @property
    def event(self) -> RoundedDp | None: ...

    def __call__(self, fitted: Prepared, seed: int) -> float: ...


@dataclass(frozen=True, repr=False)
class Public:
    """Any of scikit-learn's scorers on public records."""

    X: Any
    y: Any
    scorer: Callable[..., float]
    event: None = None

    def __call__(self, fitted: Prepared, seed: int) -> float:
        return float(self.scorer(fitted.whole, self.X, self.y))


@dataclass(frozen=True, repr=False)
class Private:
    """On private records: the share that is classified correctly, or minus the mean absolute error, with exact noise.

    The correct records are counted. Errors are cut off at ``error_bound``, put on a grid and added up. Adding or
    removing one record changes the count by at most 1 and the sum by at most ``error_bound``: a Gaussian mechanism. A
    whole number of units over a public number of records is published. What an estimator predicts of a record is taken
    as a function of that record alone: in the last bit a product of matrices may round a row by its place.
    """

    held_out: Records
    noise_multiplier: float | str  # standard deviation on the count, or on the sum in units of ``error_bound``
    records: int  # their declared number
    error_bound: float | None = None  # of a regressor, the largest absolute error that counts

    @property
    def event(self) -> RoundedDp:
        sigma = known(self.noise_multiplier)
        slack = noise.slack(1, sigma) if self.error_bound is None else noise.slack_of_sum(sigma)
        return RoundedDp(dp_accounting.GaussianDpEvent(sigma), slack)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the score."""
        return (self.error_bound or 1.0) * known(self.noise_multiplier) / self.records

    def __call__(self, fitted: Prepared, seed: int) -> float:
        X, y = self.held_out.met_by(fitted)
        guesses = fitted.last.predict(X) if len(y) else np.zeros(0)
        words, sigma = noise.Words.of_seed(seed).stream("score"), known(self.noise_multiplier)
        if self.error_bound is None:
            # By value, each record alone: one label of another type changes the type of all of them.
            correct = sum(map(operator.eq, record_bytes(guesses), record_bytes(y)))
            return noise.noisy_count(correct, sigma, words) / self.records
        errors = np.abs(np.asarray(numbers(y), dtype=np.float64) - guesses)
        return -noise.noisy_sum(errors, self.error_bound, sigma, words) / self.records


def known(noise_multiplier: float | str) -> float:
    """The noise of a score, which must have been found."""
    if isinstance(noise_multiplier, str):
        raise ValueError(
            f"score_noise_multiplier = {noise_multiplier!r} needs a survey that solves for it: give a number, or "
            f"epsilon=... and no runs"
        )
    return noise_multiplier


def private(
    estimator: Any, held_out: Records, *, noise_multiplier: float | str, records: int, error_bound: float | None
) -> Private:
    """Accuracy for a classifier; for a regressor, minus the mean absolute error up to ``error_bound``."""
    if is_classifier(estimator):
        return Private(held_out, noise_multiplier, records)
    if error_bound is None:
        raise ValueError(
            "error_bound = None: to score a regressor on private records, give the largest absolute error that counts, "
            "from public knowledge; or pass public records, fit(X, y, holdout=(X_public, y_public))"
        )
    return Private(held_out, noise_multiplier, records, _validate.positive(error_bound=error_bound))
