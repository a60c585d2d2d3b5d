"""The honest ways to spend a total (ε, δ), called designs: the parts of each, and the noise with which they cost it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dphypo import _validate
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.calibrate import steepness
from dphypo.accounting.certificate import to_json
from dphypo.accounting.guarantee import UNIFORM, PolicyClass
from dphypo.band import Band
from dphypo.errors import UnreachableError
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson
from dphypo.mechanisms import Mechanism, OwnTraining, SampledGaussian
from dphypo.search import LastRun, Part, PriorAround, Stage, Survey
from dphypo.search.declaration import Cost
from dphypo.search.tune import FEWEST_STEPS
from dphypo.space import Space

SURVEYS = ((20, 0.03), (20, 0.1), (40, 0.1), (20, 0.3), (10, 0.3))
BANDS = (Band(0.75, 2.0), Band(0.5, 4.0))
MOST_IN_A_BAND = 30
"""The largest mean number of runs for which bands are compared: larger ones take minutes to account for."""
MOST_COMPUTE = 1000
SHAPE = 8.0
_ALL = 1 - 1e-6  # of a law, as far as quantiles look


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """A part without its mechanism: a study, a survey, or the last run after one.

    Args:
        noise_multiplier: of a full run. A run of the fraction f has this over √f.
        runs: the law of T of a study; of a survey how many; None for the last run, whose model is the release.
        fraction: of a survey: the part of a full run's steps that each run makes. λ is the full run's: a mechanism maps
            it by its transfer rule.
        band, policy: of a study.
        around: the prior of the next part, around what a survey found.
    """

    noise_multiplier: float
    runs: Law | int | None = None
    fraction: float = 1.0
    band: Band = UNIFORM
    policy: PolicyClass = PolicyClass.HISTORY
    around: PriorAround | None = None

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        if (self.runs is None or isinstance(self.runs, Law)) and (self.fraction < 1 or self.around is not None):
            raise _validate.fail("fraction", self.fraction, "a study and a last run make full runs, and come last")
        if self.runs is not None and not isinstance(self.runs, Law):
            _validate.integer(at_least=1, runs=self.runs)

    @property
    def published(self) -> bool:
        """Whether all its runs are: a survey or the last run."""
        return not isinstance(self.runs, Law)

    @property
    def law(self) -> Law:
        """The law of the number of runs; that of a number that is public has one value."""
        return self.runs if isinstance(self.runs, Law) else Pmf({self.runs or 1: 1.0})

    @property
    def compute(self) -> float:
        """The expected compute, in full runs."""
        return self.fraction * (self.runs.mean if isinstance(self.runs, Law) else self.runs or 1)

    def part(self, mechanism: Mechanism) -> Part:
        """The part as a search runs it."""
        if isinstance(self.runs, Law):
            run = mechanism.with_noise(self.noise_multiplier)
            return Stage(run, self.runs, self.band, policy=self.policy)
        run = mechanism.with_noise(self.noise_multiplier)
        if self.fraction < 1:
            run = run.shorten(self.fraction)
        return LastRun(run) if self.runs is None else Survey(run, self.runs, prior=self.around)

    def code(self) -> str:
        """The part in Python, for a mechanism ``full`` that has the noise."""
        if isinstance(self.runs, Law):
            return f"dphypo.Stage({self.arguments()})"
        if self.runs is None:
            return "dphypo.LastRun(full)"
        run = "full" if self.fraction == 1 else f"full.at(fraction={self.fraction!r}, match=True)"
        prior = "" if self.around is None else ", prior=dphypo.PriorAround()"
        return f"dphypo.Survey({run}, {self.runs}{prior})"

    def arguments(self) -> str:
        """What a study is made of, in Python: the mechanism, the law and the band."""
        band = "" if self.band == UNIFORM else f", band=({self.band.c!r}, {self.band.C!r})"
        return f"full, dphypo.laws.{self.runs!r}{band}"


@dataclass(frozen=True)
class Design:
    """A way to spend a budget. Numbers of runs are laws, also those that are public."""

    name: str
    kind: str  # "none", "survey", "uniform", "band", "stages" or "composition"
    parts: tuple[PlannedPart, ...]  # with noise of 1

    def at(self, noise: float) -> tuple[PlannedPart, ...]:
        """The parts with this noise of full runs."""
        return tuple(replace(part, noise_multiplier=noise) for part in self.parts)

    @property
    def band(self) -> Band:
        return self.parts[0].band

    @property
    def compute(self) -> float:
        return math.fsum(part.compute for part in self.parts)

    def quantiles(self) -> tuple[int, int, int]:
        """The 5 %, 50 % and 95 % quantiles of the number of all runs."""
        masses = np.ones(1)
        for part in self.parts:
            masses = np.convolve(masses, part.law.pmf(np.arange(part.law.quantile(_ALL) + 1)))
        low, middle, high = np.searchsorted(np.cumsum(masses), (0.05, 0.5, 0.95))
        return int(low), int(middle), int(high)

    def chances(self, share: float) -> tuple[float, float]:
        """The chance that some run that searches is in the best ``share`` of the prior: at least, and at most.

        Runs without a band are counted as drawn from the prior, also where a proposer gives them. Inside a band
        one run has at least c, and at most C, times the prior's chance.
        """
        least, most = self.band.c * share, min(self.band.C * share, 1 - self.band.c * (1 - share))
        low, high = (1 - float(self.parts[0].law.pgf(1 - chance)) for chance in (least, most))
        return low, high


def designs(
    compute: float, steps: int | None, more: tuple[tuple[int, float], ...] = (), bands: Sequence[Band] = BANDS
) -> Iterator[Design]:
    """Designs whose expected compute is at most ``compute`` full runs of ``steps`` steps; ``more`` surveys by (runs,
    fraction), and adaptive studies in ``bands`` where there are at least two runs to adapt."""
    yield untuned()
    for runs, fraction in dict.fromkeys((*SURVEYS, *more)):
        long_enough = steps is None or math.ceil(fraction * steps) >= FEWEST_STEPS or (runs, fraction) in more
        if 1 + runs * fraction <= compute * (1 + 1e-9) and long_enough:
            yield survey(runs, fraction)
    if compute <= 1:
        return
    shaped, whole = NegativeBinomial(SHAPE, mean=compute), max(int(compute), 1)
    laws: dict[str, Law] = {
        "geometric T": Geometric(mean=compute),
        f"shape {SHAPE:g}": shaped,
        "Poisson T": Poisson(compute),
        f"{whole} runs exactly": Pmf({whole: 1.0}),
    }
    for name, law in laws.items():
        yield Design(f"uniform, {name}", "uniform", (_part(runs=law),))
    for band in bands if 2 <= compute <= MOST_IN_A_BAND else ():
        name, kind = f"band ({band.c:g}, {band.C:g}), shape {SHAPE:g}", "band" if band.C > 1 else "uniform"
        yield Design(name, kind, (_part(runs=shaped, band=band),))
    if whole >= 4 and (steps is None or 0.1 * steps >= FEWEST_STEPS):
        short, law = _part(runs=20, fraction=0.1, around=PriorAround()), NegativeBinomial(SHAPE, mean=compute - 2)
        yield Design(f"survey of 20 x 0.1, then {law.mean:.3g} around it", "stages", (short, _part(runs=law)))
    if whole > 1:
        yield Design(f"composition of {whole} full runs", "composition", (_part(runs=whole - 1), _part()))


_part = partial(PlannedPart, noise_multiplier=1.0)


def untuned() -> Design:
    """One full run, at what public values say, or at the middle of the prior."""
    return Design("no tuning", "none", (_part(),))


def survey(runs: int, fraction: float) -> Design:
    """Short runs, all published, then one full run."""
    return Design(f"survey, {runs} runs of {fraction:.3g}", "survey", (_part(runs=runs, fraction=fraction), _part()))


_CLOSE = 5e-4  # how far below ε published runs may stay: they are quick to account for, and cost little
_DEARER = 0.25  # a band (c, C) costs about (C/c)^0.25 times the ε of a uniform search
SHARES = (0.01, 0.05, 0.10)
"""The best parts of the prior whose chances are shown."""
_NEAR = 2.5e-3  # of ε: how far below it a design with a study may stay; its bound moves by 0.001 as cells are chosen


@dataclass(frozen=True)
class Spent:
    """A design, with the noise of its full runs at which all that it releases costs the total and no more.

    ``price`` is how much more noise that is than without tuning, as a fraction.
    ``regret`` is how much accuracy the last run is expected to lose to the best learning rate without tuning: because
    its rate is not the best, and because of the noise and records that a search takes.
    """

    design: Design
    noise_multiplier: float
    parts: tuple[PlannedPart, ...]
    guarantee: Composition
    price: float = 0.0
    regret: float | None = None

    @property
    def name(self) -> str:
        return self.design.name

    def to_dict(self, delta: float) -> dict[str, Any]:
        return {
            "design": self.name,
            "kind": self.design.kind,
            "epsilon": self.guarantee.epsilon(delta),
            "bound": self.guarantee.bound(delta),
            "noise_multiplier": self.noise_multiplier,
            "price": self.price,
            "runs": dict(zip(("0.05", "0.5", "0.95"), self.design.quantiles(), strict=True)),
            "compute": self.design.compute,
            "chances": {f"{share:g}": list(self.design.chances(share)) for share in SHARES},
            "expected_regret": self.regret,
            **to_json(self.guarantee),
        }


def spend(
    design: Design, mechanism: Mechanism, space: Space, *, epsilon: float, delta: float, found: Sequence[Spent] = ()
) -> Spent:
    """The least noise with which a design costs ε at δ, never more and at most a 400th of ε less.

    What others were ``found`` to need tells where to start, which saves time and nothing else.
    """

    if design.kind == "none":  # it needs no score, so that no record is set apart for one
        mechanism = (mechanism.on_all_records() or mechanism).without_score()

    def at(noise: float) -> Composition:  # as the search that runs these parts declares it
        return Cost.of(space, [part.part(mechanism) for part in design.at(noise)]).guarantee

    start = None
    uniform = {one.design.parts[0].runs: one.noise_multiplier for one in found if one.design.kind == "uniform"}
    if design.kind == "uniform" and uniform:
        start = max(uniform.values())
    elif design.kind == "band" and (alike := uniform.get(design.parts[0].runs)) is not None:
        start = alike * math.exp(_DEARER * design.band.log_ratio / steepness(at, alike, delta))
    close = _CLOSE if design.kind in ("none", "survey", "composition") else _NEAR * epsilon
    solved = solve_noise(at, epsilon=epsilon, delta=delta, start=start, close=close)
    solved.guarantee.check_total(epsilon, delta)
    return Spent(design, solved.value, design.at(solved.value), solved.guarantee)


Watch = Callable[[Iterable[Design]], Iterable[Design]]
"""Shows progress: it is given the designs to solve for, and yields them."""


def spend_all(
    wanted: list[Design], mechanism: Mechanism, space: Space, epsilon: float, delta: float, watch: Watch
) -> tuple[list[Spent], list[tuple[str, str]]]:
    """What the designs cost, and those that no noise pays for, each with why."""
    found: list[Spent] = []
    left_out: list[tuple[str, str]] = []
    for design in watch(wanted):
        try:
            found.append(spend(design, mechanism, space, epsilon=epsilon, delta=delta, found=found))
        except UnreachableError:
            if design.kind == "none":
                raise
            left_out.append((design.name, "no noise pays for it"))
    return found, left_out


@dataclass(frozen=True)
class Batch:
    """One full run with another batch size, at the same (ε, δ)."""

    batch_size: int
    steps: int
    compute: float  # relative to the batch size asked about
    noise_multiplier: float
    gradient_noise: float  # that of a step's mean gradient, relative likewise


def batches(
    run: SampledGaussian, records: int, *, epsilon: float, delta: float, compute: float, alone: float
) -> Iterator[Batch]:
    """What larger batches buy compared with ``alone``: with as many examples, or with as many steps."""
    size = round(run.rate * records)
    for factor in (4, 8):
        if factor * size > records:
            return
        for steps, cost in ((math.ceil(run.steps / factor), 1.0), (run.steps, float(factor))):
            if cost > compute or steps < 1:
                continue
            larger = SampledGaussian(rate=factor * size / records, steps=steps, noise_multiplier=1.0)
            found = spend(
                untuned(),
                OwnTraining(untrained, larger, scores="public"),
                SPACE,
                epsilon=epsilon,
                delta=delta,
            )
            noise = found.noise_multiplier
            yield Batch(factor * size, steps, cost, noise, noise / factor / alone)


def untrained(params: object, *, seed: int, run: object) -> object:
    """A plan is not run: its mechanism only states what a run costs."""
    raise TypeError("this mechanism states what a run costs: there is nothing to train")


SPACE = Space({"any": [0.0, 1.0]})
"""What a run of DP-SGD costs does not depend on what is tuned."""
