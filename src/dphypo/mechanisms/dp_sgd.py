"""DP-SGD as its privacy sees it: so many Poisson-sampled Gaussian mechanisms. The one place that builds the event."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dphypo import _validate

if TYPE_CHECKING:
    import dp_accounting

COSTS = frozenset(
    {
        *("batch_size", "lot_size", "sampling_rate", "sample_rate", "subsample"),
        *("epochs", "num_epochs", "steps", "num_steps", "iterations", "fraction"),
        "noise_multiplier",
    }
)
"""Hyperparameters that what a run costs depends on, by the names that people give them."""


@dataclass(frozen=True, kw_only=True)
class DpSgd:
    """What a run of DP-SGD costs, from public numbers alone: how many steps, at which rate, with which noise.

    Args:
        rate: the probability with which a step takes a record.
        steps: how many steps.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        subsample: the probability with which the run may use a record at all, drawn once before the first step.

    >>> run = DpSgd.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    >>> run.steps
    2344
    >>> short = run.at(fraction=0.1, match=True)
    >>> short.steps, round(short.noise_multiplier, 2)
    (235, 1.99)
    """

    rate: float
    steps: int
    noise_multiplier: float
    subsample: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (
            ("rate", _validate.within(0.0, 1.0, closed="right", rate=self.rate)),
            ("steps", _validate.integer(at_least=1, steps=self.steps)),
            ("noise_multiplier", _validate.positive(noise_multiplier=self.noise_multiplier)),
            ("subsample", _validate.within(0.0, 1.0, closed="right", subsample=self.subsample)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        *,
        records: int,
        batch_size: int,
        noise_multiplier: float,
        epochs: float | None = None,
        steps: int | None = None,
        fraction: float = 1.0,
        subsample: float = 1.0,
    ) -> DpSgd:
        """A run over a declared number of records; its length in epochs or in steps.

        Args:
            records: the number of records, a public constant; with a ``subsample``, that times the records count.
            batch_size: the expected size of a Poisson batch.
            noise_multiplier: standard deviation of the noise over the clipping norm.
            epochs, steps: the length of the full run, in one of the two.
            fraction: the part of the full run's steps to make; a step that is begun counts.
            subsample: the probability with which the run may use a record at all.
        """
        batch_size = _validate.integer(at_least=1, batch_size=batch_size)
        used = _validate.integer(at_least=1, records=records) * _validate.within(
            0.0, 1.0, closed="right", subsample=subsample
        )
        if batch_size > used:
            raise _validate.fail("batch_size", batch_size, f"it must be at most the declared {used:g} records")
        fraction = _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        if (epochs is None) == (steps is None):
            raise _validate.fail("steps", steps, "give one of epochs and steps")
        if steps is not None:
            made = math.ceil(_validate.integer(at_least=1, steps=steps) * fraction)
        else:
            length = _validate.within(0.0, 1e12, epochs=epochs)  # type: ignore[arg-type]
            made = math.ceil(length * fraction * used / batch_size)
        return cls(rate=batch_size / used, steps=made, noise_multiplier=noise_multiplier, subsample=subsample)

    @property
    def on_the_subsample(self) -> dp_accounting.DpEvent:
        """The event of the run for a record that is in the subsample."""
        import dp_accounting

        step = dp_accounting.PoissonSampledDpEvent(self.rate, dp_accounting.GaussianDpEvent(self.noise_multiplier))
        return dp_accounting.SelfComposedDpEvent(step, self.steps)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """The event of the run, under adding or removing one record."""
        import dp_accounting

        run = self.on_the_subsample
        return run if self.subsample == 1 else dp_accounting.PoissonSampledDpEvent(self.subsample, run)

    def at(self, *, fraction: float = 1.0, match: bool = False, noise_multiplier: float | None = None) -> DpSgd:
        """A shorter run, or one with other noise.

        Args:
            fraction: the part of the steps to make.
            match: raise the noise so that what accumulates in the weights stays the same
                (:func:`matched`).
            noise_multiplier: of the full run; by default this one's.
        """
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        fraction = _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        return replace(
            self,
            steps=math.ceil(self.steps * fraction),
            noise_multiplier=matched(noise, fraction) if match else noise,
        )


def matched(noise_multiplier: float, fraction: float) -> float:
    """The noise of a short run whose best learning rate and clipping norm are where the full run has them: σ/√f.

    The noise that accumulates in the weights is about η·R·σ·√steps / batch size; this keeps it the same.
    """
    return noise_multiplier / math.sqrt(fraction)
