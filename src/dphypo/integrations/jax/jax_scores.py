"""Scores that rank the runs of a search, and their cost, as for PyTorch.

What a record adds depends on that record and the model alone, to the bit: the model is given one record at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.sides import Sides
from dphypo.integrations import measures
from dphypo.integrations.jax.jax_program import Program
from dphypo.integrations.jax.records import Tree, as_records
from dphypo.integrations.measures import (
    MEASURES,
    MOST_CELLS,
    Floats,
    MatrixMeasure,
    declare,
    event_of_counts,
    event_of_sum,
    noise_of,
    noisy_matrix,
    noisy_mean,
)


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
        return event_of_counts(self.sigma)

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
    def event(self) -> RoundedDp:
        return event_of_sum(self.sigma)

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        classes = program.classes
        if self.bound is None and classes is None:
            raise _validate.fail("bound", None, "give the largest loss of a record that counts, a public constant")
        bound = 2 * math.log(classes or 2) if self.bound is None else _validate.positive(bound=self.bound)
        losses = program.each(_loss, row, self.data)
        return -noisy_mean(losses, bound, self.sigma, self.declared, self.words(seed))


@dataclass(frozen=True, repr=False)
class PrivateConfusion(Private, MatrixMeasure):
    """A measure of the confusion matrix, with exact Gaussian noise on the count of every cell.

    Args:
        measure: "f1" (the mean over classes), "balanced_accuracy" (the mean recall), "accuracy", or a function of the
            noisy matrix, whose rows are true classes.
        rarest: the share of the rarest class, a public constant: the noise of the measure depends on it, and is stated.
            By default a fifth of an even share is assumed.
    """

    measure: str | Callable[[Floats], float] = "f1"
    rarest: float | None = None

    def __post_init__(self) -> None:
        self.check_measure(MEASURES)
        super().__post_init__()

    @property
    def event(self) -> RoundedDp:
        return event_of_counts(self.sigma, MOST_CELLS)

    def __call__(self, program: Program, row: Any, *, seed: int) -> float:
        classes = program.classes or 2
        measure = self.measure if callable(self.measure) else MEASURES[self.measure]
        cells = program.each(_cell, row, self.data)
        return float(measure(noisy_matrix(cells, (classes, classes), self.sigma, self.words(seed))))


def refuse_targets(score: Any, program: Program) -> None:
    """Refuse targets that a measure of labels cannot score, from types and shapes alone.

    The loss is a function of one's own: whether it is one of regression cannot be seen. Labels are whole numbers.
    """
    if not isinstance(score, PublicAccuracy | PrivateAccuracy | PrivateConfusion):
        return
    named = getattr(score, "measure", "accuracy")
    named = named if isinstance(named, str) else type(score).__name__
    tree = as_records(score.data).tree
    if not isinstance(tree, tuple | list) or len(tree) != 2 or not isinstance(tree[1], np.ndarray):
        raise _validate.fail("score", named, "it compares labels: give it pairs, data=(inputs, labels)")
    inputs, targets = tree
    outputs = program.outputs(inputs)
    measures.refuse_targets(named, targets.shape[1:], str(targets.dtype), outputs)
