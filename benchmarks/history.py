"""Theorem H beside Theorems 4 and 4′, and explicit attacks by history-only policies."""

from __future__ import annotations

import time

from benchmarks.accounting import DELTA, RATE, STEPS, dp_sgd
from benchmarks.history_attack import HistoryAttack, merged
from benchmarks.sharp_pair import dp_sgd_pair
from dphypo.accounting import account
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
    """Print the table row by row, with the seconds that each takes."""
    print(f"history-only policies: ε at δ = {DELTA:g}, noise 0.71; T, band, first runs from the prior")
    pair = merged(dp_sgd_pair(0.71, RATE, STEPS, grid=5e-4), 0.1)
    for law, band, first in ROWS:
        started = time.perf_counter()
        bounds = account(dp_sgd(0.71), law, band, policy="history", first_from_prior=first).bounds(DELTA)
        attack = HistoryAttack(pair, law, band, first).epsilon(DELTA, bounds["history"])
        shown = ", ".join(
            f"{name} {bounds[name]:.3f}" for name in ("profile", "prior start", "history") if name in bounds
        )
        seconds = time.perf_counter() - started
        row = f"  {law!r}, ({band.c:g}, {band.C:g}), {first}: {shown}; attack {attack:.2f}"
        print(f"{row}  ({seconds:.0f} s)", flush=True)
