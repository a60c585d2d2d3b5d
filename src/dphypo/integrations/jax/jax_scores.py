"""Scores that rank the runs of a search, and their cost, as for PyTorch.

What a record adds depends on that record and the model alone, to the bit: the model is given one record at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides
from dphypo.integrations.jax.jax_program import Program
from dphypo.integrations.jax.records import Tree, as_records
from dphypo.integrations.measures import MEASURES, MOST_CELLS, Floats, declare, noise_of


def _guess(program: Program, row: Any, record: Tree) -> Any:
    """The class of a record: that of the largest output, or by the sign of a single one."""
    outputs = program.predict(row, record[0])
    return jnp.argmax(outputs) if outputs.size > 1 else (outputs.reshape(()) > 0).astype(jnp.int32)


def _correct(program: Program, row: Any, record: Tree) -> Any:
    return (_guess(program, row, record) == record[1].reshape(())).astype(jnp.float32)


def _cell(program: Program, row: Any, record: Tree) -> Any:
    return record[1].reshape(()).astype(jnp.int32) * (program.classes or 2) + _guess(program, row, record)


def _loss(program: Program, row: Any, record: Tree) -> Any:
    return program.loss(row, record, jax.random.key(0))


@dataclass(frozen=True, repr=False)
class PublicAccuracy:
    """The share of public records that the model classifies correctly. It costs nothing, and protects nothing."""

    data: Any

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        records = as_records(self.data)
        return float(program.each(_correct, row, records).sum()) / max(1, len(records))


@dataclass(frozen=True, repr=False)
class Private:
    """A score on private records (input, target).

    Args:
        data: the records, as for :class:`DPSGD`.
        noise_multiplier: standard deviation of the noise over what one record can change; with "calibrate",
            :func:`dphypo.tune` solves for it.
        split: the rule that separates these records from those that train. Parts of :func:`split_by_hash` know it.
            Without one, a record may train and score, and the two compose.
        records: their number, a public constant; by default the length of ``data``, which is then public.
    """

    data: Any
    noise_multiplier: float | str
    split: Sides | None = None
    records: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", as_records(self.data))
        declare(self, len(self.data))

    @property
    def event(self) -> RoundedDp:
        """The event of one evaluation, under adding or removing one record."""
        return RoundedDp(dp_accounting.GaussianDpEvent(self.sigma), self.slack)

    @property
    def slack(self) -> float:
        return noise.slack(1, self.sigma)

    @property
    def sigma(self) -> float:
        """The noise, once it is known."""
        return noise_of(self)

    @property
    def declared(self) -> int:
        assert self.records is not None
        return self.records

    def words(self, seed: int) -> noise.Words:
        return noise.Words.of_seed(seed).stream("score")


@dataclass(frozen=True, repr=False)
class PrivateAccuracy(Private):
    """The share of private records that the model classifies correctly, with exact Gaussian noise on the count."""

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        correct = int(program.each(_correct, row, self.data).sum())
        return noise.noisy_count(correct, self.sigma, self.words(seed)) / self.declared


@dataclass(frozen=True, repr=False)
class PrivateLoss(Private):
    """Minus the mean loss, each clipped to [0, ``bound``], with exact Gaussian noise on the sum.

    Args:
        bound: the largest loss of a record that counts, a public constant; by default twice that of a guess among the
            model's classes.
    """

    bound: float | None = None

    @property
    def slack(self) -> float:
        return noise.slack_of_sum(self.sigma)

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        classes = program.classes
        if self.bound is None and classes is None:
            raise _validate.fail("bound", None, "give the largest loss of a record that counts, a public constant")
        bound = 2 * math.log(classes or 2) if self.bound is None else _validate.positive(bound=self.bound)
        found = program.each(_loss, row, self.data)
        losses = np.clip(np.nan_to_num(found, nan=bound), 0.0, bound)
        return -noise.noisy_sum(losses, bound, self.sigma, self.words(seed)) / self.declared


@dataclass(frozen=True, repr=False)
class PrivateConfusion(Private):
    """A measure of the confusion matrix, with exact Gaussian noise on the count of every cell.

    Args:
        measure: "f1" (the mean over classes), "balanced_accuracy" (the mean recall), or a function of the noisy matrix,
            whose rows are true classes.
    """

    measure: str | Callable[[Floats], float] = "f1"

    @property
    def slack(self) -> float:
        return noise.slack(MOST_CELLS, self.sigma)

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        classes = program.classes or 2
        measure = self.measure if callable(self.measure) else MEASURES[self.measure]
        cells = program.each(_cell, row, self.data).astype(np.int64)
        counts = np.bincount(cells[(cells >= 0) & (cells < classes**2)], minlength=classes**2)
        noisy = counts + noise.rounded_gaussian(self.sigma, self.words(seed), classes**2)
        return float(measure(np.maximum(noisy, 0).reshape(classes, classes).astype(np.float64)))
