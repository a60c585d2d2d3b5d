"""A run whose privacy has a closed form: full-batch steps with Gaussian noise. Solving for its noise takes no time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import dp_accounting


@dataclass(frozen=True)
class PlainRun:
    """So many Gaussian mechanisms; cut short and with other noise as ``dphypo.mechanisms.SampledGaussian`` is."""

    steps: int = 400
    noise_multiplier: float = 1.0

    @property
    def event(self) -> dp_accounting.DpEvent:
        # Gaussians compose to one Gaussian.
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / self.steps**0.5)

    def at(self, *, noise_multiplier: float, fraction: float = 1.0, match: bool = False) -> PlainRun:
        noise = noise_multiplier / fraction**0.5 if match else noise_multiplier
        return replace(self, steps=round(self.steps * fraction), noise_multiplier=noise)
