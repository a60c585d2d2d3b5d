"""Does adaptivity pay? The ε of a band with a history-only rule, and what uniform search does with the same ε.

A region of prior mass η is hit by a uniform run with probability η, by an adaptive run with at most Cη (and at least
one of T runs hits it with probability 1 − f(1 − rate)). The adaptive column is the best case: every run but the first
aims at the region.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.accounting import DELTA, dp_sgd
from dphypo.accounting import account
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson

NOISE, MEAN, REGION = 0.71, 10, 0.02
MEANS = (10, 20, 40, 160, 640, 2500)  # of uniform search, beside the bands
BANDS = (Band(0.75, 2), Band(0.5, 4), Band(0.25, 8), Band(0.1, 20))
LAWS: dict[str, Callable[[float], Law]] = {
    "shape 8": lambda mean: NegativeBinomial(8, mean=mean),
    "geometric": lambda mean: Geometric(mean=mean),
    "Poisson": lambda mean: Poisson(mean),
}


def hits(law: Law, rate: float, first: float) -> float:
    """P[at least one of T runs hits], if the first does with probability ``first`` and the others with ``rate``."""
    zero, missed = float(law.pgf(0.0)), 1.0 - rate
    none = (float(law.pgf(missed)) - zero) / missed if missed > 0 else float(law.pmf(1))
    return 1.0 - zero - (1.0 - first) * none


def main() -> None:
    """Print what bands cost and hit, then what uniform search does with the same ε."""
    event = dp_sgd(NOISE)
    title = f"noise {NOISE}, δ = {DELTA:g}, a region of mass {REGION}"
    bands = _table(f"mean {MEAN} runs, {title}", "law", "band", "ε", "hits", "ε of C times the uniform runs")
    for name, law_of in LAWS.items():
        law = law_of(MEAN)
        bands.add_row(name, "uniform", f"{account(event, law).sharpest_epsilon(DELTA):.3f}", _hits(law, REGION), "")
        for band in BANDS:
            found = account(event, law, band, policy="history", first_from_prior=1).sharpest_epsilon(DELTA)
            rate = min(band.C * REGION, 1.0 - band.c * (1.0 - REGION))
            many = account(event, law_of(band.C * MEAN)).sharpest_epsilon(DELTA)
            bands.add_row(name, f"({band.c:g}, {band.C:g})", f"{found:.3f}", _hits(law, rate), f"{many:.3f}")
    uniform = _table("uniform, geometric T", "mean", "ε", "hits")
    for mean in MEANS:
        law = Geometric(mean=mean)
        uniform.add_row(f"{mean}", f"{account(event, law).sharpest_epsilon(DELTA):.3f}", _hits(law, REGION))
    for table in (bands, uniform):
        Console(width=110).print(table)


def _table(title: str, *names: str) -> Table:
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="right")
    return table


def _hits(law: Law, rate: float) -> str:
    return f"{hits(law, rate, REGION):.3f}"
