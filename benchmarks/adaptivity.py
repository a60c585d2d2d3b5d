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
from dphypo.accounting import account, calibrate_mean
from dphypo.accounting.events import Event
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson

NOISE, MEAN, REGION = 0.71, 10, 0.02
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
    """Print the table."""
    table = Table(title=f"adaptivity: mean {MEAN} runs, noise {NOISE}, δ = {DELTA:g}, a region of mass {REGION}")
    for name in (
        "law",
        "band",
        "ε history",
        "hits",
        "ε uniform",
        "hits",
        "ε of C times the runs",
        "same ε, uniform geometric: mean, hits",
    ):
        table.add_column(name, justify="right")
    event = dp_sgd(NOISE)
    for name, law_of in LAWS.items():
        law = law_of(MEAN)
        uniform = account(event, law).epsilon(DELTA)
        for band in BANDS:
            found = account(event, law, band, policy="history", first_from_prior=1).sharpest_epsilon(DELTA)
            rate = min(band.C * REGION, 1.0 - band.c * (1.0 - REGION))
            many = account(event, law_of(band.C * MEAN)).profile_epsilon(DELTA)
            mean, often = _uniform_at(event, found)
            table.add_row(
                name,
                f"({band.c:g}, {band.C:g})",
                f"{found:.3f}",
                f"{hits(law, rate, REGION):.3f}",
                f"{uniform:.3f}",
                f"{hits(law, REGION, REGION):.3f}",
                f"{many:.3f}",
                f"{mean:.0f}, {often:.3f}",
            )
    Console(width=140).print(table)


def _uniform_at(event: Event, epsilon: float) -> tuple[float, float]:
    """The uniform search with geometric T, the law that costs least for its mean, that costs ε: mean, and hits."""
    found = calibrate_mean(event, LAWS["geometric"], epsilon=epsilon, delta=DELTA, largest=3000.0)
    return float(found.value), hits(found.guarantee.runs, REGION, REGION)
