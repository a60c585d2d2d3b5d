"""Theorem H beside Theorems 4 and 4′, and explicit attacks by history-only policies."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from benchmarks.accounting import DELTA, RATE, STEPS, dp_sgd
from dphypo.accounting import account
from dphypo.audit import HistoryAttack, merged
from dphypo.audit.pair import dp_sgd_pair
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial

# The law, the band, and how many of the first runs are drawn from the prior.
ROWS: list[tuple[Law, Band, int]] = [
    *((NegativeBinomial(8, mean=10), band, 1) for band in (Band(0.75, 2), Band(0.5, 4), Band(0.25, 8))),
    *((Geometric(mean=10), band, 1) for band in (Band(0.75, 2), Band(0.5, 4), Band(0.25, 8))),
    (NegativeBinomial(8, mean=30), Band(0.75, 2), 0),
    (Geometric(mean=30), Band(0.75, 2), 0),
    (Geometric(mean=100), Band(0.75, 2), 0),
]
_LONG = 250


def main() -> None:
    """Print the table, with the seconds that each row takes."""
    table = Table(title=f"history-only policies: ε at δ = {DELTA:g}, noise 0.71", title_justify="left")
    for name in ("law of T", "band", "first from the prior", "profile", "prior start", "history", "attack", "s"):
        table.add_column(name, justify="left" if name in ("law of T", "band") else "right")
    run = dp_sgd_pair(0.71, RATE, STEPS, grid=5e-4)
    pairs = {step: merged(run, step) for step in (0.2, 0.4)}
    for law, band, first in ROWS:
        started = time.perf_counter()
        guarantee = account(dp_sgd(0.71), law, band, policy="history", first_from_prior=first)
        bounds = guarantee.bounds(DELTA)
        # An attack takes as many steps as T may be large: with long laws on a coarser lattice, where it shows less.
        step, levels = (0.2, 6) if law.quantile(1 - 1e-10) < _LONG else (0.4, 4)
        attack = HistoryAttack(pairs[step], law, band, first, levels).epsilon(DELTA, bounds["history"])
        row = [f"{bounds[name]:.3f}" if name in bounds else "" for name in ("profile", "prior start", "history")]
        table.add_row(
            repr(law),
            f"({band.c:.3g}, {band.C:.3g})",
            str(first),
            *row,
            f"{attack:.2f}",
            f"{time.perf_counter() - started:.0f}",
        )
    Console(width=120).print(table)
