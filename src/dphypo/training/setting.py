"""The parameters of a run: public values, its seed, and how it is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dphypo import _validate
from dphypo.mechanisms.mechanism import Pace
from dphypo.training.poisson_draws import largest_batch, most_pieces, piece_size
from dphypo.training.sum_on_grid import SumGrid


class Clipping(StrEnum):
    """What becomes of a record's gradient g; C is the clipping norm."""

    CLIP = "clip"
    """g·min(1, C/‖g‖)."""

    NORMALISE = "normalise"
    """g·C/(‖g‖ + 0.01): one hyperparameter less, since C and the learning rate act through their product."""


class Average(StrEnum):
    """Which iterates the released weights are the mean of: post-processing, which costs nothing."""

    LAST_HALF = "last half"
    """Those of the second half of the steps."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: public values, and the seed, which is secret.

    Args:
        seed: determines all randomness. The guarantee is against those who cannot try all seeds of this length.
        records: the declared number of records that the run may use, a public constant.
        rate: the probability with which a step takes a record.
        steps: how many steps.
        batch_size: what the noisy sum is divided by, the expected size of a batch.
        noise_multiplier, max_grad_norm: σ and C.
        learning_rate, optimizer, options: how noisy gradients are used.
        schedule: factor on the learning rate as a function of the share of the steps made so far, in [0, 1).
    """

    seed: int = field(repr=False)
    records: int
    rate: float
    steps: int
    batch_size: float
    noise_multiplier: float
    max_grad_norm: float
    learning_rate: float
    optimizer: str = "sgd"
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Callable[[float], float] | None = None

    def __post_init__(self) -> None:
        _validate.integer(at_least=0, seed=self.seed)
        _validate.integer(at_least=1, records=self.records)
        _validate.within(0.0, 1.0, closed="right", rate=self.rate)
        _validate.integer(at_least=1, steps=self.steps)
        for name in ("batch_size", "noise_multiplier", "max_grad_norm", "learning_rate"):
            _validate.positive(**{name: getattr(self, name)})

    @property
    def pace(self) -> Pace:
        """Its public values, for a follower of its steps."""
        return Pace(self.noise_multiplier, self.rate, self.steps, self.batch_size)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step."""
        return self.learning_rate * (1.0 if self.schedule is None else self.schedule(step / self.steps))

    def grid(self, size: int, terms: Callable[[int, int], int], setting: Setting) -> SumGrid:
        """The run's grid for a model with this many parameters.

        ``terms(piece, pieces)`` is the number of terms of a sum over ``pieces`` pieces of ``piece`` records each.
        """
        largest, piece = largest_batch(self.records, self.rate), setting.piece(self)
        pieces = most_pieces(largest, piece, setting.shards or 1)
        return SumGrid.of(
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            size=size,
            terms=terms(piece, pieces),
            largest_batch=largest,
            pieces=pieces,
        )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How runs are executed, the same for all of them.

    Args:
        physical_batch_size: process batches in pieces of at most this many records, to save memory. Below 32, records
            are differentiated one by one, which is much slower, above all on a GPU: use 32 if it fits.
        clipping: "clip" or "normalise".
        average: "last half" for the mean of the last half of the iterates, a number below 1 for an exponential mean
            with that decay, None for the last iterate.
        threads: CPU threads.
        shards: into how many parts, ranges of their numbers, records are divided; a piece holds records of one.
            Processes that execute runs together have whole shards, and read no record of another's. None if all
            processes have all records.
    """

    physical_batch_size: int | None = None
    shards: int | None = None
    clipping: Clipping | str = Clipping.CLIP
    average: Average | str | float | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "clipping", _validate.choice(Clipping, clipping=self.clipping))
        if isinstance(self.average, str):
            object.__setattr__(self, "average", _validate.choice(Average, average=self.average))
        elif self.average is not None:
            _validate.within(0.0, 1.0, average=self.average)
        if self.physical_batch_size is not None:
            _validate.integer(at_least=1, physical_batch_size=self.physical_batch_size)
        _validate.integer(at_least=1, threads=self.threads)
        if self.shards is not None:
            _validate.integer(at_least=1, shards=self.shards)

    def piece(self, run: Run) -> int:
        """How many records a piece of a run holds."""
        return piece_size(run.records, run.rate, self.physical_batch_size, self.shards or 1)

    def share(self, step: int, steps: int) -> float:
        """How far the average moves towards the weights after a step: 1 until it begins, and without one."""
        if self.average is None:
            return 1.0
        if isinstance(self.average, float):
            return 1 - min(self.average, (2 + step) / (11 + step))
        return 1 / max(1, step + 1 - steps // 2)
