"""``dphypo.plan``: the designs that keep a total (ε, δ), compared by the sharpest bounds.

A *design* is a way to spend a total: its parts, and the noise with which they cost it. ``plan(epsilons=)`` compares
totals instead: the noise that each needs, and how much accuracy such noise cost on public tasks. What noise costs
depends on how far training moves weights compared with the noise that it leaves in them. A run of T steps with batches
of B records and noise multiplier σ moves a weight by at most ηT along a constant gradient, and leaves noise of standard
deviation ησ√T/B in it: their ratio, B√T/σ, is the *reach* of a run. It is a heuristic, and says nothing about privacy.
No data are read.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dphypo import _validate
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.calibrate import run_alone, steepness
from dphypo.accounting.certificate import to_json
from dphypo.accounting.guarantee import UNIFORM, PolicyClass
from dphypo.band import Band
from dphypo.errors import UnreachableError
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson
from dphypo.mechanisms import Mechanism, OwnTraining, SampledGaussian
from dphypo.mechanisms.mechanism import check_is_mechanism, records_of
from dphypo.search import LastRun, Part, PriorAround, Stage, Survey, SurveyPlan, plan_tuning
from dphypo.search.declaration import cost_of, read_space, total_in_gaussians
from dphypo.search.ladder import increasing
from dphypo.search.rates import GAIN, SPREAD, Prospect, noise_of_scale, spread_at
from dphypo.search.survey import FRACTION, RUNS
from dphypo.search.tune import FEWEST_STEPS, dp_sgd_of, known_of, prospect_of, steps_of
from dphypo.space import Space

SURVEYS = ((20, 0.03), (20, 0.1), (40, 0.1), (20, 0.3), (10, 0.3))
BANDS = (Band(0.75, 2.0), Band(0.5, 4.0))
MOST_IN_A_BAND = 30
"""The largest mean number of runs for which bands are compared: larger ones take minutes to account for."""
MOST_COMPUTE = 1000
SHAPE = 8.0
_ALL = 1 - 1e-6  # of a law, as far as quantiles look


@dataclass(frozen=True)
class Design:
    """A way to spend a budget: runs that are all published, if there are any, then a study or one last run.

    Args:
        name: what tables call it.
        kind: "none", "survey", "uniform", "band", "stages" or "composition".
        survey: how many runs are published, and the part of a full run's steps that each makes. λ is the full run's: a
            mechanism maps it by its transfer rule. A study that follows has its prior around what they found.
        study: the law of T of the study; None for one run, whose model is the release.
        band: of the study.
    """

    name: str
    kind: str
    survey: tuple[int, float] | None = None
    study: Law | None = None
    band: Band = UNIFORM

    @property
    def laws(self) -> list[Law]:
        """The law of the number of runs of each part; that of a number that is public has one value."""
        first = [] if self.survey is None else [Pmf({self.survey[0]: 1.0})]
        return [*first, Pmf({1: 1.0}) if self.study is None else self.study]

    @property
    def compute(self) -> float:
        """The expected compute, in full runs."""
        return math.prod(self.survey or (0,)) + self.laws[-1].mean

    def parts(self, full: Mechanism) -> list[Part]:
        """The parts as a search executes them, of full runs of this mechanism."""
        last = LastRun(full) if self.study is None else Stage(full, self.study, self.band, policy=PolicyClass.HISTORY)
        if self.survey is None:
            return [last]
        runs, fraction = self.survey
        run = full if fraction == 1 else full.shorten(fraction)
        return [Survey(run, runs, prior=None if self.study is None else PriorAround()), last]

    def code(self, delta: float) -> str:
        """Python that executes it, for a ``space`` and a mechanism ``full`` that has the noise."""
        band = "" if self.band == UNIFORM else f", band=({self.band.c!r}, {self.band.C!r})"
        study = f"full, dphypo.laws.{self.study!r}{band}"
        if self.survey is None and self.study is not None:
            return f"dphypo.Study(space, {study}, delta={delta!r}).run()"
        parts = ["dphypo.LastRun(full)" if self.study is None else f"dphypo.Stage({study})"]
        if self.survey is not None:
            runs, fraction = self.survey
            run = "full" if fraction == 1 else f"full.at(fraction={fraction!r}, match=True)"
            prior = "" if self.study is None else ", prior=dphypo.PriorAround()"
            parts.insert(0, f"dphypo.Survey({run}, {runs}{prior})")
        return f"dphypo.Stages(space, [{', '.join(parts)}], delta={delta!r}).run()"

    def quantiles(self) -> tuple[int, int, int]:
        """The 5 %, 50 % and 95 % quantiles of the number of all runs."""
        masses = np.ones(1)
        for law in self.laws:
            masses = np.convolve(masses, law.pmf(np.arange(law.quantile(_ALL) + 1)))
        low, middle, high = np.searchsorted(np.cumsum(masses), (0.05, 0.5, 0.95))
        return int(low), int(middle), int(high)

    def chances(self, share: float) -> tuple[float, float]:
        """The chance that some run that searches is in the best ``share`` of the prior: at least, and at most.

        Runs without a band are counted as drawn from the prior, even if a proposer chooses them. Inside a band
        one run has at least c, and at most C, times the prior's chance.
        """
        least, most = self.band.c * share, min(self.band.C * share, 1 - self.band.c * (1 - share))
        low, high = (1 - float(self.laws[0].pgf(1 - chance)) for chance in (least, most))
        return low, high


def designs(
    compute: float, steps: int | None, more: tuple[tuple[int, float], ...] = (), bands: Sequence[Band] = BANDS
) -> Iterator[Design]:
    """Designs whose expected compute is at most ``compute`` full runs of ``steps`` steps.

    ``more`` are further surveys by (runs, fraction). Studies in ``bands`` are added if they expect at least two runs.
    """
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
        yield Design(f"uniform, {name}", "uniform", study=law)
    for band in bands if 2 <= compute <= MOST_IN_A_BAND else ():
        name, kind = f"band ({band.c:g}, {band.C:g}), shape {SHAPE:g}", "band" if band.C > 1 else "uniform"
        yield Design(name, kind, study=shaped, band=band)
    if whole >= 4 and (steps is None or 0.1 * steps >= FEWEST_STEPS):
        law = NegativeBinomial(SHAPE, mean=compute - 2)
        yield Design(f"survey of 20 x 0.1, then {law.mean:.3g} around it", "stages", (20, 0.1), law)
    if whole > 1:
        yield Design(f"composition of {whole} full runs", "composition", (whole - 1, 1.0))


def untuned() -> Design:
    """One full run, at what public values say, or at the middle of the prior."""
    return Design("no tuning", "none")


def survey(runs: int, fraction: float) -> Design:
    """Short runs, all published, then one full run."""
    return Design(f"survey, {runs} runs of {fraction:.3g}", "survey", (runs, fraction))


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

    The noise of designs that were ``found`` gives a starting point, which only saves time.
    """

    if design.kind == "none":  # it needs no score, so that no record is set apart for one
        mechanism = (mechanism.on_all_records() or mechanism).without_score()

    def at(noise: float) -> Composition:  # as the search that runs these parts declares it
        return cost_of(space, design.parts(mechanism.with_noise(noise)))

    start = None
    uniform = {one.design.study: one.noise_multiplier for one in found if one.design.kind == "uniform"}
    if design.kind == "uniform" and uniform:
        start = max(uniform.values())
    elif design.kind == "band" and (alike := uniform.get(design.study)) is not None:
        start = alike * math.exp(_DEARER * design.band.log_ratio / steepness(at, alike, delta))
    close = _CLOSE if design.kind in ("none", "survey", "composition") else _NEAR * epsilon
    solved = solve_noise(at, epsilon=epsilon, delta=delta, start=start, close=close)
    solved.guarantee.check_total(epsilon, delta)
    return Spent(design, solved.value, solved.guarantee)


def spend_all(
    wanted: Iterable[Design], mechanism: Mechanism, space: Space, epsilon: float, delta: float
) -> tuple[list[Spent], list[tuple[str, str]]]:
    """What the designs cost, and those that no noise pays for, each with why."""
    found: list[Spent] = []
    left_out: list[tuple[str, str]] = []
    for design in wanted:
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


_PICTURE_WIDTH = 48  # of a picture, in letters
_EDGES = (5, 10, 20, 40, 100)  # in points: where a picture may end


@cache
def public_tasks() -> dict[str, list[tuple[float, float]]]:
    """By task, reach and the share of accuracy lost there (``python -m paper.ladder landscape`` writes the file)."""
    content = (files("dphypo") / "reach.json").read_text(encoding="utf-8")
    return {
        name: [(float(reach), float(lost)) for reach, lost in points] for name, points in json.loads(content).items()
    }


def lost_at(reach: float) -> dict[str, float]:
    """How much accuracy each public task lost at a reach; tasks that were not trained with so much noise are left out.

    >>> found = lost_at(1e9)
    >>> set(found.values()), len(found) >= 3
    ({0.0}, True)
    >>> lost_at(1.0)
    {}
    """
    known = {name: np.array(points) for name, points in public_tasks().items()}
    return {
        name: float(np.interp(math.log(reach), np.log(points[:, 0]), points[:, 1]))
        for name, points in known.items()
        if reach >= points[0, 0] * (1 - 1e-9)
    }


@dataclass(frozen=True)
class AtEpsilon:
    """The noise that one ε requires, and the accuracy that such noise cost on public tasks."""

    epsilon: float
    noise_multiplier: float
    reach: float
    lost: Mapping[str, float]  # accuracy, by public task


@dataclass(frozen=True, repr=False)
class EpsilonCurve:
    """Several ε compared, for one run without a search. ``str`` is a picture."""

    rows: tuple[AtEpsilon, ...]
    delta: float

    def to_dict(self) -> dict[str, Any]:
        return {"delta": self.delta, "epsilons": [{**vars(row), "lost": dict(row.lost)} for row in self.rows]}

    def __repr__(self) -> str:
        return f"<{len(self.rows)} epsilons from {self.rows[0].epsilon:g} to {self.rows[-1].epsilon:g}>"

    def __str__(self) -> str:
        most = max((100 * loss for row in self.rows for loss in row.lost.values()), default=0.0)
        edge = next((one for one in _EDGES if one >= most), _EDGES[-1])
        lines = [
            f"One run with all of ε at δ = {self.delta:g}, and what such noise cost on public tasks.",
            "",
            f"{'ε':>6}  {'noise':>8}  {'reach':>7}  accuracy lost there, 0 to {edge} points",
        ]
        for row in self.rows:
            lines.append(f"{row.epsilon:>6g}  {row.noise_multiplier:>8.4f}  {row.reach:>7.0f}  {_picture(row, edge)}")
        names = "; ".join(public_tasks())
        return "\n".join(
            [
                *lines,
                "",
                *textwrap.wrap(f"o: the median task; -: from the least to the most, of {names}.", 98),
                "Lost: compared with the least noise that was tried there. Your task may lose more or less: what it",
                "loses is known only after a run that is paid for (dphypo.tune(until=...), dphypo.frontier).",
                "reach: batch size times the root of the steps, over the noise multiplier. Tasks are compared at the",
                "same reach, and left out where they were not trained with so much noise.",
            ]
        )


def _picture(row: AtEpsilon, edge: float) -> str:
    """The spread of what was lost, as a line of letters, and in numbers."""
    found = sorted(100 * loss for loss in row.lost.values())
    if not found:
        return "more noise than on any of these tasks"

    def place(points: float) -> int:
        return min(round(points / edge * (_PICTURE_WIDTH - 1)), _PICTURE_WIDTH - 1)

    middle = float(np.median(found))
    drawn = ["-" if place(found[0]) <= at <= place(found[-1]) else " " for at in range(_PICTURE_WIDTH)]
    drawn[place(middle)] = "o"
    return f"|{''.join(drawn)}| {middle:.1f} ({found[0]:.1f} to {found[-1]:.1f}, {len(found)} tasks)"


def plan(
    mechanism: Mechanism | None = None,
    *,
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    delta: float,
    records: int | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    compute: float = 10.0,
    runs: int | None = None,
    fraction: float | None = None,
    bands: Sequence[Band] = BANDS,
    space: Space | Mapping[str, Any] | None = None,
) -> Comparison | EpsilonCurve:
    """Compare ways to tune a private training run under a total (ε, δ): surveys, searches, bands, stages.

    For each design the noise of its full runs is solved for, so that all that it releases costs ε at δ by the sharpest
    bound we have. The table also shows the number of runs, the compute, the chance that a run is among the best of the
    prior, and, if only the learning rate is searched, the expected regret. Only public values go in, so a comparison
    costs no privacy.

    Args:
        mechanism: a full run that offers ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``; or None,
            and the training is DP-SGD with ``records``, ``batch_size`` and ``epochs`` or ``steps``. If the noise of
            its scores is yet to be found, scores take none of ε from training: records that score are on a side of
            their own, where ``tune`` gives scores as little noise as costs no more than training does.
        epsilon, delta: what all that is released may cost together.
        epsilons: several ε instead of one, in increasing order: what noise each asks of one run without a search, and
            how much accuracy such noise cost on public tasks (:class:`dphypo.planning.EpsilonCurve`).
        records, batch_size, epochs, steps: of DP-SGD: public constants. Where a person has several rows, records and
            batches count persons, as a mechanism with ``person=`` does.
        compute: the most compute that is expected, in full runs.
        runs, fraction: another survey to compare: how many runs, and how short.
        bands: of the adaptive studies to compare; they take the longest.
        space: what is tuned, if the mechanism's event depends on it.

    Returns:
        A :class:`dphypo.planning.Comparison`: ``str`` is a table and a recommendation, ``code`` the line that
        runs what is recommended. With ``epsilons`` an ``EpsilonCurve``, whose ``str`` is a picture.

    >>> found = plan(epsilon=2, delta=1e-5, records=20_000, batch_size=500, epochs=16, compute=1.9)
    >>> found.best.name, round(found.best.regret, 4) < 0.01
    ('no tuning', True)
    >>> curve = plan(epsilons=(1, 4), delta=1e-5, records=20_000, batch_size=500, epochs=16)
    >>> [round(row.noise_multiplier, 2) for row in curve.rows]
    [2.53, 1.0]
    """
    if epsilons is not None and epsilon is None:
        return _curve(mechanism, epsilons, delta, records=records, batch_size=batch_size, epochs=epochs, steps=steps)
    if epsilon is None or epsilons is not None:
        raise _validate.fail("epsilon", epsilon, "give one total as epsilon=, or several to compare as epsilons=")
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.positive_delta(delta=delta)
    compute = _validate.number(compute=compute)
    if not 1 <= compute <= MOST_COMPUTE:
        raise _validate.fail("compute", compute, f"one full run takes 1: give 1 to {MOST_COMPUTE}")
    given = {"records": records, "batch_size": batch_size, "epochs": epochs, "steps": steps}
    notes = () if mechanism is None else tuple(_notes_of(mechanism))
    run, mechanism = _training(mechanism, given)
    over = read_space(mechanism.default_space() or SPACE if space is None else space, mechanism)
    planned = _planned(mechanism, over, epsilon, delta, compute)
    asked = _asked(runs, fraction)
    wanted = designs(compute, steps_of(mechanism, over), (*planned, *asked), bands)
    found, left_out = spend_all(wanted, mechanism, over, epsilon, delta)
    if bands and compute > MOST_IN_A_BAND:
        left_out.append(("bands", f"more than {MOST_IN_A_BAND} runs in a band take minutes to account for"))
    alone = found[0].noise_multiplier
    found = [replace(one, price=one.noise_multiplier / alone - 1) for one in found]
    prospect = _prospect(mechanism, run, records, over, found[0], epsilon, delta)
    rows = tuple(replace(one, regret=None if prospect is None else _regret(one, prospect)) for one in found)
    larger: tuple[Batch, ...] = ()
    if run is not None:
        larger = tuple(batches(run, records or 0, epsilon=epsilon, delta=delta, compute=compute, alone=alone))
    settings = {name: value for name, value in given.items() if value is not None}
    best, why = _best(rows, planned)
    return Comparison(rows, best, epsilon, delta, compute, settings, larger, tuple(left_out), why, notes)


def _asked(runs: int | None, fraction: float | None) -> tuple[tuple[int, float], ...]:
    """The survey that was asked for, if one was."""
    if runs is None and fraction is None:
        return ()
    part = _validate.within(0.0, 1.0, closed="right", fraction=FRACTION if fraction is None else fraction)
    return ((_validate.integer(at_least=1, runs=RUNS if runs is None else runs), part),)


def _curve(mechanism: Mechanism | None, epsilons: Sequence[float], delta: float, **given: Any) -> EpsilonCurve:
    """The noise of one run of these steps for each ε, and what such noise cost elsewhere."""
    run, made = _training(mechanism, given)
    if run is None:
        run, given["records"] = dp_sgd_of(made, made.default_space() or SPACE), records_of(made)
    if run is None or given["records"] is None:
        remedy = "it does not state its batches: give records=, batch_size= and epochs= instead"
        raise _validate.fail("mechanism", mechanism, remedy)
    delta, rows = _validate.positive_delta(delta=delta), []
    for epsilon in increasing(epsilons):
        at = run_alone(lambda noise: replace(run, noise_multiplier=noise).event)
        noise = solve_noise(at, epsilon=epsilon, delta=delta).value
        reach = run.rate * given["records"] * math.sqrt(run.steps) / noise
        rows.append(AtEpsilon(epsilon, noise, reach, lost_at(reach)))
    return EpsilonCurve(tuple(rows), delta)


def _training(mechanism: Mechanism | None, given: dict[str, Any]) -> tuple[SampledGaussian | None, Mechanism]:
    named = [name for name, value in given.items() if value is not None]
    if mechanism is not None:
        if named:
            raise _validate.fail(named[0], given[named[0]], "the mechanism already sets it; leave it out")
        check_is_mechanism(mechanism)
        return None, mechanism.with_silent_scores().with_noise(1.0)
    for name in ("records", "batch_size"):
        if given[name] is None:
            raise _validate.fail(name, None, "give the number of records and the batch size; or a mechanism")
    run = SampledGaussian.of(noise_multiplier=1.0, **given)
    return run, OwnTraining(untrained, run, scores="public")


def _notes_of(mechanism: Mechanism) -> Iterator[str]:
    """Notes on the training itself: whom it protects, and what its scores cost."""
    check_is_mechanism(mechanism)
    if mechanism.rows_per_person is not None:
        declared = (mechanism.on_all_records() or mechanism).records
        yield (
            f"ε is that of a person with all their rows: batches, rates and the declared number ({declared}) count "
            f"persons, of whom a step uses at most {mechanism.rows_per_person} rows each."
        )
    if mechanism.solves_for_scores:
        yield (
            "scores: on private records that are set apart, which cost training nothing; dphypo.tune finds their "
            "noise. Before you run another design, give it: mechanism.at(score_noise_multiplier=...)."
        )


def _planned(
    mechanism: Mechanism, space: Space, epsilon: float, delta: float, compute: float
) -> tuple[tuple[int, float], ...]:
    """The survey that ``tune`` makes of this budget, if there is compute for one."""
    try:
        found: SurveyPlan = plan_tuning(space, mechanism, epsilon=epsilon, delta=delta, compute=compute).survey
    except ValueError:
        return ()
    assert found.runs is not None
    assert found.fraction is not None
    return ((found.runs, found.fraction),)


def _best(rows: tuple[Spent, ...], planned: tuple[tuple[int, float], ...]) -> tuple[Spent, str]:
    """The recommended design, and why: by expected regret; where none is known, the survey that ``tune`` makes."""
    if (alone := rows[0]).regret is not None:
        least = min((row for row in rows if row.regret is not None), key=lambda row: (row.regret, row.design.compute))
        assert least.regret is not None
        if alone.regret - least.regret < GAIN:
            said = f"its rate follows from public values and is expected to lose {alone.regret:.2g} of the accuracy"
            surveys = [row.regret for row in rows[1:] if row.regret is not None]
            return alone, f"{said}; the best survey, {min(surveys):.2g}: too small a gain" if surveys else said
        return least, f"it has the least expected regret, {least.regret:.2g}; no tuning has {alone.regret:.2g}"
    for row in rows:
        if row.design.kind == "survey" and row.design.survey in planned:
            return row, _survey(row, rows)
    return rows[0], "the compute allows no survey, and no public value suggests that another search would pay off"


def _survey(best: Spent, rows: tuple[Spent, ...]) -> str:
    """Why the survey that ``tune`` plans is recommended, compared with the cheapest search of another kind."""
    said = f"it is the survey that dphypo.tune plans, and adds {100 * max(best.price, 0.0):.2g} % noise"
    others = [row for row in rows if row.design.kind not in ("none", "survey")]
    if others:
        least = min(others, key=lambda row: row.price)
        said += f", where the cheapest search of another kind ({least.name}) adds {100 * max(least.price, 0.0):.2g} %"
    return said


_NUMBERS = 100  # in the input of a record, if no mechanism says how many


def _prospect(
    mechanism: Mechanism,
    run: SampledGaussian | None,
    records: int | None,
    space: Space,
    alone: Spent,
    epsilon: float,
    delta: float,
) -> Prospect | None:
    """What is expected of the learning rate that public values give; None if something else is searched."""
    if run is not None and records is not None:  # DP-SGD whose learning rate is to be found
        signal = run.rate * records * math.sqrt(run.steps) / alone.noise_multiplier
        total = total_in_gaussians(epsilon, delta)
        bought = noise_of_scale(records, total, _NUMBERS).deviation
        return Prospect(signal, math.hypot(spread_at(SPREAD["normalise"], signal), bought), total, 1.0)
    known = known_of(mechanism, space)
    one = mechanism.with_noise(alone.noise_multiplier)
    return None if known is None else prospect_of(mechanism, one, space, known, epsilon, delta)


def _regret(row: Spent, prospect: Prospect) -> float | None:
    """The expected regret of one run, or of a survey and a run; other designs have none."""
    if row.design.kind == "none":
        return prospect.regret
    if row.design.kind != "survey" or row.design.survey is None:
        return None
    runs, fraction = row.design.survey
    return replace(prospect, fraction=fraction).searched(runs, row.price)


_WIDTH = 110  # of lines of prose, in letters


@dataclass(frozen=True, repr=False)
class Comparison:
    """Designs that spend one total (ε, δ), compared. ``str`` is a table that ends with a recommendation."""

    rows: tuple[Spent, ...]
    best: Spent  # the one that is recommended
    epsilon: float
    delta: float
    compute: float
    settings: Mapping[str, Any] = field(default_factory=dict)  # public numbers of the training
    batches: tuple[Batch, ...] = ()  # one run with larger batches, at the same total
    left_out: tuple[tuple[str, str], ...] = ()  # designs that no noise pays for, each with why
    why: str = ""  # what the recommended design was chosen for, in a clause
    about: tuple[str, ...] = ()  # whom the training protects and what its scores cost, in sentences

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "compute": self.compute,
            "settings": dict(self.settings),
            "designs": [row.to_dict(self.delta) for row in self.rows],
            "recommended": self.best.name,
            "why": self.why,
            "code": self.code,
            "batches": [vars(one) for one in self.batches],
            "left_out": dict(self.left_out),
        }

    @property
    def code(self) -> str:
        """Python that executes the recommended design, for a ``space`` and a ``mechanism``. Numbers are not rounded."""
        design = self.best.design
        if design.kind == "none" and self.best.regret is not None:
            return f"release = dphypo.tune(mechanism, epsilon={self.epsilon!r}, delta={self.delta!r}, search='never')"
        if design.kind == "survey" and design.survey is not None:
            planned = "survey=dphypo.SurveyPlan(runs={}, fraction={:.6g})".format(*design.survey)
            return f"release = dphypo.tune(space, mechanism, epsilon={self.epsilon!r}, delta={self.delta!r}, {planned})"
        full = f"full = mechanism.at(noise_multiplier={self.best.noise_multiplier!r})"
        return f"{full}; release = {design.code(self.delta)}"

    def __repr__(self) -> str:
        return f"<comparison of {len(self.rows)} designs: {self.best.name}>"

    def __str__(self) -> str:
        head = ["", "design", "noise", "more", "runs 5/50/95 %", "compute", "in best 1/5/10 %"]
        rows = [head + (["regret"] if self._regrets else [])]
        rows += [self._cells(number, row) for number, row in enumerate(self.rows, 1)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"Each design costs ε = {self.epsilon:g} at δ = {self.delta:g} for all that it releases."
        notes = [line for note in self._notes() for line in textwrap.wrap(note, _WIDTH)]
        words = [line for word in self._words() for line in textwrap.wrap(word, _WIDTH)]
        return "\n".join([title, "", *lines, "", *notes, *self._batch_lines(), "", *words, f"Run it: {self.code}"])

    def _cells(self, number: int, row: Spent) -> list[str]:
        design = row.design
        chances = " ".join(_per_cent(*design.chances(share)) for share in SHARES)
        low, middle, high = design.quantiles()
        runs = f"{middle}" if low == high else f"{low}/{middle}/{high}"
        mark = "*" if row is self.best else " "
        noise = [f"{row.noise_multiplier:.4f}", f"{100 * max(row.price, 0.0):+.2f} %"]
        cells = [f"{mark}{number}", row.name, *noise, runs, f"{design.compute:.3g}", chances]
        if self._regrets:
            cells.append("-" if row.regret is None else f"{row.regret:.4f}")
        return cells

    @property
    def _regrets(self) -> bool:
        return self.rows[0].regret is not None

    def _notes(self) -> list[str]:
        notes = [
            "noise: the noise multiplier of full runs; more: than without tuning. compute: expected, in full runs.",
            "in best: the chance that at least one run is in the best 1, 5, 10 % of the prior, if runs are drawn from "
            "it (a band: from c to C times that).",
        ]
        if self._regrets:
            notes.append(
                "regret: the expected loss of accuracy, compared with an untuned run at the best learning rate, where "
                "only the rate is unknown and public values nearly give it; scores are taken on public records."
            )
        notes += self.about
        notes += [f"left out: {name} ({why})" for name, why in self.left_out]
        return notes

    def _batch_lines(self) -> list[str]:
        if not self.batches:
            return []
        lines = ["", f"What a larger batch buys one run at the same ε (now {self.settings['batch_size']}):"]
        lines += [
            f"  batch {one.batch_size} x {one.steps} steps: compute {one.compute:g}, noise {one.noise_multiplier:.4f}, "
            f"noise of a step's mean gradient x {one.gradient_noise:.2f}"
            for one in self.batches
        ]
        return lines

    def _words(self) -> list[str]:
        design = self.best.design
        runs = "run" if design.compute == 1 else "runs"
        words = [f"Recommended: {self.best.name} (*){': ' if self.why else ''}{self.why}."]
        if design.kind == "none":
            return [*words, "Train once, on all records."]
        words.append(
            f"Its full runs have {100 * max(self.best.price, 0.0):.2g} % more noise than one run without tuning, and "
            f"it takes the compute of {design.compute:.3g} full {runs}."
        )
        if design.kind == "survey":
            words.append("All short runs are published: any optimiser, plot or dashboard may use them.")
            if self.batches and self.compute > design.compute:
                words.append("Spend compute that is left on a larger batch, not on more or longer runs (see above).")
        else:
            words.append("Only the best run is released; the number of runs and the others are secret.")
        return words


def _per_cent(low: float, high: float) -> str:
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return first if first == last else f"{first}-{last}"
