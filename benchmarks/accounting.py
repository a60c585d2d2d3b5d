"""The accountant: tightness against explicit attacks, and time against dp_accounting's own composition of one run."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Callable

from dp_accounting.pld import PLDAccountant
from rich.console import Console
from rich.table import Table

from benchmarks.sharp_pair import dp_sgd_pair
from benchmarks.timing import best_of
from dphypo.accounting import account, calibrate
from dphypo.accounting.dp_library import DEFAULT_GRID
from dphypo.accounting.events import Event
from dphypo.accounting.lower_bound import Pair
from dphypo.accounting.lower_bound import attack as attack_epsilon
from dphypo.band import Band
from dphypo.laws import Geometric, Law, Logarithmic, NegativeBinomial, Poisson
from dphypo.mechanisms import SampledGaussian

DELTA = 1e-5
RATE, STEPS = 256 / 60_000, 2344

# The law and band of each row, and the noise of the run (DP-SGD on 60 000 records, batch 256, 10 epochs).
ROWS: list[tuple[float, Law, Band]] = [
    (0.71, Geometric(mean=100), Band(1, 1)),
    (0.71, Geometric(mean=100), Band(0.75, 2)),
    (0.71, Geometric(mean=10), Band(0.75, 2)),
    (0.71, Logarithmic(gamma=0.01), Band(0.75, 2)),
    (0.71, Geometric(mean=100), Band(0.75, 4 / 3)),
    (0.71, Geometric(mean=100), Band(0.5, 4)),
    (0.71, NegativeBinomial(8, mean=10), Band(1, 1)),
    (0.71, Poisson(10), Band(1, 1)),
    (0.64, Geometric(gamma=0.001), Band(1, 1)),
    (0.71, Geometric(gamma=0.001), Band(0.75, 2)),
    (0.64, Geometric(gamma=0.01), Band(1, 1)),
]


def dp_sgd(noise_multiplier: float) -> Event:
    return SampledGaussian(rate=RATE, steps=STEPS, noise_multiplier=noise_multiplier).event


def main() -> None:
    """Print the table of bounds and the ratios of times."""
    _tightness()
    _speed()


def _tightness() -> None:
    table = Table(title=f"accounting: ε of the whole search at δ = {DELTA:g}", title_justify="left")
    for name in ("noise", "law of T", "band", "paper", "renyi", "profile", "attack", "profile/attack"):
        table.add_column(name, justify="left" if name in ("law of T", "band") else "right")
    pairs: dict[float, Pair] = {}
    for noise, law, band in ROWS:
        if noise not in pairs:
            pairs[noise] = dp_sgd_pair(noise, RATE, STEPS, grid=5e-4)
        bounds = account(dp_sgd(noise), law, band).bounds(DELTA)
        attack = attack_epsilon(pairs[noise], law, band, DELTA)
        row = [f"{bounds[name]:.3f}" if name in bounds else "" for name in ("paper", "renyi", "profile")]
        ratio = f"{bounds['profile'] / attack:.4f}"
        table.add_row(f"{noise:g}", repr(law), f"({band.c:.3g}, {band.C:.3g})", *row, f"{attack:.3f}", ratio)
    Console(width=120).print(table)


def _speed() -> None:
    def compose() -> None:
        accountant = PLDAccountant(value_discretization_interval=DEFAULT_GRID)
        accountant.compose(dp_sgd(0.71))

    other = itertools.count(1)  # equal questions are answered from a cache: each repetition asks another one
    law, band = Geometric(mean=100), Band(0.75, 2)
    peer = best_of(7, compose)
    jobs: list[tuple[str, Callable[[], object], int]] = [
        (
            "account(...).epsilon(δ)",
            lambda: account(dp_sgd(0.71 + 1e-6 * next(other)), law, band).epsilon(DELTA),
            5,
        ),
        (
            "calibrate(...)",
            lambda: calibrate(dp_sgd, law, band, epsilon=7.0 + 1e-3 * next(other), delta=DELTA),
            30,
        ),
    ]
    for name, job, target in jobs:
        ratio = best_of(3, job) / peer
        print(f"  {name}: {ratio:.1f} times dp_accounting's PLD composition of one run (target: at most {target})")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory: {peak:.2f} GB (target: below 1)")
