"""Bounds on a uniform search beside the literature: Papernot and Steinke, Koskela and others, ours, an attack.

For a truncated negative binomial T with mean m and parameters θ, γ, Koskela, Redberg and Wang (2024) bound the profile
of the best of T runs by that of one run: for every ε₁ ≥ 0,

    δ_A(ε) ≤ m δ₀(ε − (1 + θ) log(e^ε₁ + δ₀(ε₁)(1 − γ)/γ)).

It follows from ours (docs/theory/selection.md) with g ≤ m and τ(v) ≤ e^ε₁ v + δ₀(ε₁). It is evaluated here by our code
from their formula, not by theirs.
"""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

from benchmarks.sharp_pair import dp_sgd_pair
from dphypo.accounting import account
from dphypo.accounting.events import Event
from dphypo.accounting.lower_bound import attack
from dphypo.band import Band
from dphypo.laws import Geometric, Logarithmic, NegativeBinomial

DELTA = 1e-5
LAWS = (
    Geometric(mean=10),
    Geometric(mean=100),
    Geometric(mean=1000),
    Logarithmic(gamma=0.01),
    NegativeBinomial(0.5, mean=100),
)


def run(noise: float, steps: int, rate: float) -> Event:
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def by_koskela(event: Event, law: NegativeBinomial, delta: float) -> float:
    """ε at δ by the formula above, at the best of many ε₁."""
    one = account(event, law).run

    def at(epsilon: float) -> float:
        return max(float(profile.delta(epsilon)) for profile in one.profiles)

    alone = brentq(lambda epsilon: at(epsilon) - delta / law.mean, 0.0, 60.0)
    firsts = np.linspace(0.0, alone, 400)
    shifts = [math.log(math.exp(first) + at(first) * (1 - law.gamma) / law.gamma) for first in firsts]
    return float(alone + (1 + law.shape) * min(shifts))


def main() -> None:
    table = Table(title=f"ε at δ = {DELTA:g} of a uniform search, by bound")
    for name in ("run", "law of T", "one run", "Papernot, Steinke", "Koskela et al.", "ours", "attack", "ours/attack"):
        table.add_column(name, justify="left" if name in ("run", "law of T") else "right")
    for noise, steps, rate in ((0.71, 2344, 256 / 60_000), (2.0, 1000, 0.02)):
        event, pair = run(noise, steps, rate), dp_sgd_pair(noise, rate, steps)
        for law in LAWS:
            guarantee = account(event, law)
            bounds, lower = guarantee.bounds(DELTA), attack(pair, law, Band(1, 1), DELTA)
            ours = min(bounds.values())
            found = [min(guarantee.one_run(DELTA).values()), bounds["paper"], by_koskela(event, law, DELTA), ours]
            cells = [f"{math.ceil(1e3 * value) / 1e3:.3f}" for value in found]
            table.add_row(
                f"σ = {noise:g}, {steps} steps, rate {rate:.4g}", repr(law), *cells,
                f"{math.floor(1e3 * lower) / 1e3:.3f}", f"{ours / lower:.4f}",
            )  # fmt: skip
    Console(width=160).print(table)
