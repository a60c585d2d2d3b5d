"""Which projection and which sampler: paired simulations at equal band and equal T on landscapes of different kinds.

``python -m benchmarks rules`` prints, for every sampler and projection, by how much the regret of the release is below
that of uniform search (Algorithm 2), with 95 % intervals; and writes a figure and the numbers to
``benchmarks/results``. The regret is the best score of the landscape less the true score of the run with the best
observed score. It is averaged over T, which has the same law for all.

Repetitions are paired: the same landscape, the same noise, and draws coupled so that all rules draw the same candidate
with probability c. ``python -m benchmarks.rules --quick`` makes a few repetitions and writes nothing;
``--repetitions n`` makes so many.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.landscapes import LANDSCAPES, Array, Landscape
from dphypo.band import KL, L2, Band, Greedy, Mixed
from dphypo.band.projections import Projection
from dphypo.entropy import Seeded
from dphypo.laws import NegativeBinomial
from dphypo.samplers import GaussianProcess, History, Sampler, Uniform

RESULTS = Path(__file__).parent / "results"
LONGEST = 48
LAW = NegativeBinomial(8, mean=24).capped(LONGEST)
REPETITIONS, QUICK = 70, 4  # the first takes about nine minutes of one core


@dataclass(frozen=True)
class Search:
    """A sampler and a projection in a band."""

    name: str
    sampler: Callable[[], Sampler]
    projection: Projection


SAMPLERS: list[tuple[str, Callable[[], Sampler]]] = [
    ("paper", GaussianProcess.paper),
    ("GaussianProcess", GaussianProcess),
]
PROJECTIONS: list[Projection] = [L2(), KL(), Mixed(1.0), Greedy()]
ALL = [Search(f"{name} {type(rule).__name__}", sampler, rule) for name, sampler in SAMPLERS for rule in PROJECTIONS]
CHOSEN = {"paper L2", "GaussianProcess L2", "GaussianProcess KL", "GaussianProcess Greedy"}
BANDS = [(Band(0.75, 2), ALL), (Band(0.5, 4), [search for search in ALL if search.name in CHOSEN])]
UNIFORM = Search("Uniform", Uniform, L2())


@dataclass(frozen=True)
class Cut:
    """By which share of uniform search's mean regret a search is below it, and the half-width of the 95 % interval."""

    value: float
    margin: float


@dataclass(frozen=True)
class Comparison:
    """What was found in one band: the cut of each search on each landscape."""

    band: tuple[float, float]
    repetitions: int
    uniform_regret: dict[str, float]
    cuts: dict[str, dict[str, Cut]]


def main(arguments: Sequence[str] = ()) -> None:
    """Simulate, print, and write the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    options = parser.parse_args(arguments)
    start = time.process_time()
    found = [compare(band, searches, QUICK if options.quick else options.repetitions) for band, searches in BANDS]
    for comparison in found:
        print_table(comparison)
    print(f"{found[0].repetitions} repetitions in {time.process_time() - start:.0f} s of one core")
    if not options.quick:
        from benchmarks.rules_figure import draw

        RESULTS.mkdir(exist_ok=True)
        record = [asdict(comparison) for comparison in found]
        (RESULTS / "rules.json").write_text(json.dumps(_rounded(record), indent=1) + "\n")
        draw(found, RESULTS / "rules.png")


def compare(band: Band, searches: list[Search], repetitions: int) -> Comparison:
    """All searches on all landscapes."""
    shares = np.array([LAW.pmf(number) for number in range(1, LONGEST + 1)])
    cuts: dict[str, dict[str, Cut]] = {search.name: {} for search in searches}
    uniform: dict[str, float] = {}
    for landscape in LANDSCAPES:
        numbers = range(repetitions)
        base = np.array([regrets(landscape, UNIFORM, band, number) @ shares for number in numbers])
        uniform[landscape.name] = float(base.mean())
        for search in searches:
            found = np.array([regrets(landscape, search, band, number) @ shares for number in numbers])
            cuts[search.name][landscape.name] = compared(found, base)
    return Comparison((band.c, band.C), repetitions, uniform, cuts)


def compared(found: Array, base: Array) -> Cut:
    """1 − mean(found)/mean(base) with its paired interval, to first order."""
    ratio = float(found.mean() / base.mean())
    spread = float((found - ratio * base).std(ddof=1)) / (len(base) ** 0.5 * float(base.mean()))
    return Cut(1 - ratio, 1.96 * spread)


def regrets(landscape: Landscape, search: Search, band: Band, repetition: int) -> Array:
    """The regret of the release after 1, 2, …, LONGEST runs of one search."""
    rng = np.random.default_rng([LANDSCAPES.index(landscape), repetition])
    score = landscape.family(rng)
    best = landscape.best(score)
    entropy = Seeded(repetition).child(landscape.name)
    sampler = search.sampler()
    unit: list[Array] = []
    features: list[Array] = []
    truth, observed = np.empty(LONGEST), np.empty(LONGEST)
    for run in range(LONGEST):
        candidates = landscape.candidates(entropy)
        history = History(
            np.array(features).reshape(run, candidates.features.shape[1]),
            np.array(unit).reshape(run, candidates.unit.shape[1]),
            observed[:run],
            np.zeros(run, dtype=np.bool_),
            ({},) * run,
        )
        prior = candidates.masses
        masses = band.project(sampler.weights(candidates, history), prior, search.projection)
        index = coupled(masses, prior, band.c, rng.random(3))
        unit.append(candidates.unit[index])
        features.append(candidates.features[index])
        truth[run] = score(candidates.unit[[index]])[0]
        observed[run] = truth[run] + landscape.noise * rng.standard_normal()
    released = [int(observed[: run + 1].argmax()) for run in range(LONGEST)]
    regret: Array = best - truth[released]
    return regret


def coupled(masses: Array, prior: Array, c: float, uniforms: Array) -> int:
    """A draw from the masses: with probability c from the prior, the same for all searches, else from the rest."""
    remainder = np.maximum(masses - c * prior, 0.0)
    source, point = (prior, uniforms[1]) if uniforms[0] < c else (remainder, uniforms[2])
    ends = np.cumsum(source)
    return min(int(np.searchsorted(ends, point * ends[-1], side="right")), len(ends) - 1)


def print_table(comparison: Comparison) -> None:
    """One row a landscape, one column a search; a star where the interval does not contain 0."""
    print(f"\nband {comparison.band}: regret below that of uniform search, %")
    cuts = comparison.cuts
    print(f"{'':20}" + "".join(f"{name.replace('GaussianProcess', 'GP'):>13}" for name in cuts))
    for landscape in LANDSCAPES:
        cells = [_cell(search[landscape.name]) for search in cuts.values()]
        print(f"{landscape.name:20}" + "".join(f"{cell:>13}" for cell in cells))
    means = [np.mean([cut.value for cut in search.values()]) for search in cuts.values()]
    print(f"{'mean':20}" + "".join(f"{f'{100 * mean:+.1f} ':>13}" for mean in means))


def _cell(cut: Cut) -> str:
    return f"{100 * cut.value:+.0f}±{100 * cut.margin:.0f}{'*' if abs(cut.value) > cut.margin else ' '}"


def _rounded(value: Any) -> Any:
    """Numbers to four digits, so that the file stays small."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1:])
