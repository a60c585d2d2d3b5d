"""The noise of a run: one multiplier for all, or one for each batch size and number of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsFloat

from dphypo import _validate

CALIBRATE = "calibrate"

Setting = tuple[int, float]
"""A batch size and a number of epochs: what the privacy of a run depends on, besides its noise."""


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
            known = ", ".join(map(str, sorted(self.multipliers)))
            raise ValueError(
                f"no noise multiplier was calibrated for (batch_size, epochs) = {setting}, only for {known}: call "
                f"calibrated() again with the space, or give a noise_multiplier"
            )
        return self.multipliers[setting]


NoiseMultiplier = float | str | NoiseTable


def read(given: SupportsFloat | str | NoiseTable) -> NoiseMultiplier:
    """What was given as ``noise_multiplier``, checked."""
    if isinstance(given, NoiseTable) or given == CALIBRATE:
        return given
    if isinstance(given, str):
        raise _validate.fail("noise_multiplier", given, f"give a number, or {CALIBRATE!r}")
    return _validate.positive(noise_multiplier=given)


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
