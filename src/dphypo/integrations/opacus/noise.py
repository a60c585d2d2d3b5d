"""The noise of a run: one multiplier for all, or one for each batch size and number of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsFloat

from dphypo import _validate
from dphypo.mechanisms import dp_sgd

CALIBRATE = "calibrate"

Setting = tuple[int, float] | tuple[int, None, int]
"""A batch size and a number of epochs, or (batch size, None, steps): what a run costs depends on it and its noise."""


@dataclass(frozen=True)
class NoiseTable:
    """A noise multiplier for each (batch size, epochs) that a search may use.

    >>> NoiseTable({(64, 10): 1.5, (128, 10): 2.0})[128, 10]
    2.0
    """

    multipliers: Mapping[Setting, float]

    def __post_init__(self) -> None:
        if not self.multipliers:
            raise _validate.fail("multipliers", self.multipliers, "give at least one")
        for multiplier in self.multipliers.values():
            _validate.positive(noise_multiplier=multiplier)

    def __getitem__(self, setting: Setting) -> float:
        if setting not in self.multipliers:
            known = ", ".join(sorted(map(str, self.multipliers)))
            raise ValueError(
                f"no noise multiplier was calibrated for (batch_size, epochs) = {setting}, only for {known}: call "
                f"calibrated() again with the space, or give a noise_multiplier"
            )
        return self.multipliers[setting]

    def times(self, factor: float) -> NoiseTable:
        """All multipliers times a factor."""
        return NoiseTable({setting: factor * multiplier for setting, multiplier in self.multipliers.items()})


NoiseMultiplier = float | str | NoiseTable


def read(given: SupportsFloat | str | NoiseTable | Mapping[Setting, float]) -> NoiseMultiplier:
    """What was given as ``noise_multiplier``, checked."""
    if isinstance(given, Mapping):
        return NoiseTable(dict(given))
    if isinstance(given, NoiseTable) or given == CALIBRATE:
        return given
    if isinstance(given, str):
        raise _validate.fail("noise_multiplier", given, f"give a number, or {CALIBRATE!r}")
    return _validate.positive(noise_multiplier=given)


def matched(noise_multiplier: NoiseMultiplier, fraction: float) -> NoiseMultiplier:
    """The noise of runs that make only this fraction of the steps; noise that is yet to be found stays so."""
    if isinstance(noise_multiplier, str):
        return noise_multiplier
    factor = dp_sgd.matched(1.0, fraction)
    return noise_multiplier.times(factor) if isinstance(noise_multiplier, NoiseTable) else noise_multiplier * factor


def at(noise_multiplier: NoiseMultiplier, setting: Setting) -> float:
    """The noise multiplier of a run."""
    if isinstance(noise_multiplier, NoiseTable):
        return noise_multiplier[setting]
    if isinstance(noise_multiplier, str):
        raise ValueError(
            'noise_multiplier = "calibrate" needs a target: in place of the mechanism use '
            "mechanism.calibrated(space, runs, epsilon=..., delta=...)"
        )
    return noise_multiplier
