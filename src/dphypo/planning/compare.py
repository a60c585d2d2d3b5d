"""``dphypo.plan``: the honest ways to tune under one total (ε, δ), compared by the sharpest bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.band import Band
from dphypo.errors import UnreachableError
from dphypo.mechanisms import DpSgd, Mechanism, OwnTraining, capabilities
from dphypo.planning.comparison import Comparison
from dphypo.planning.expected import expected_score
from dphypo.planning.landscape import NAMES, Landscape
from dphypo.planning.ways import BANDS, MOST_COMPUTE, MOST_IN_A_BAND, SPACE, Spent, Way, batches, spend, untrained, ways
from dphypo.search import SurveyPlan
from dphypo.search.survey_plan import plan_tuning, steps_of
from dphypo.space import Space

Watch = Callable[[Iterable[Way]], Iterable[Way]]
"""Shows that work goes on: it is given the ways to solve for, and yields them."""


def plan(
    mechanism: Mechanism | None = None,
    *,
    epsilon: float,
    delta: float,
    records: int | None = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    compute: float = 10.0,
    runs: int | None = None,
    fraction: float | None = None,
    bands: Sequence[Band] = BANDS,
    space: Space | None = None,
    landscape: Landscape | str | Path | None = None,
    watch: Watch = iter,
) -> Comparison:
    """Compare the ways to tune a private training run under a total (ε, δ): surveys, searches, bands, stages.

    For each way the noise of its full runs is solved for, so that all that it releases costs ε at δ by the sharpest
    bound we have; beside it stand the number of runs, the compute, and the chance that a run is among the best of the
    prior. Only public values go in, so a comparison costs no privacy; choosing by a landscape does not either, if the
    landscape is public.

    Args:
        mechanism: a full run that offers ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``; or None,
            and the training is DP-SGD with ``records``, ``batch_size`` and ``epochs`` or ``steps``.
        epsilon, delta: what all that is released may cost together.
        records, batch_size, epochs, steps: of DP-SGD: public constants.
        compute: the most compute that is expected, in full runs.
        runs, fraction: a survey to compare beside the others: how many runs, and how short.
        bands: of the adaptive studies to compare; they take the longest.
        space: what is tuned, where the mechanism's event depends on it.
        landscape: where expected scores are read: "mnist", "cifar10" or "federated", which come with the library; the
            path of an ``.npz`` file of the same form; or a :class:`dphypo.planning.Landscape`. **It must be public.**
        watch: wraps the ways while they are solved for, to show progress.

    Returns:
        A :class:`dphypo.planning.comparison.Comparison`: ``str`` is a table and a recommendation, ``file()`` the plan
        file of what is recommended, which :func:`dphypo.tune` runs.

    >>> found = plan(epsilon=2, delta=1e-5, records=20_000, batch_size=500, epochs=16, compute=1.9)
    >>> found.best.name, found.file().name == found.best.name
    ('survey, 8 runs of 0.05', True)
    >>> found.rows[0].name, found.best.price < 0.05
    ('no tuning', True)
    """
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    compute = _validate.number(compute=compute)
    if not 1 <= compute <= MOST_COMPUTE:
        raise _validate.fail("compute", compute, f"one full run takes 1: give 1 to {MOST_COMPUTE}")
    given = {"records": records, "batch_size": batch_size, "epochs": epochs, "steps": steps}
    run, mechanism = _training(mechanism, given)
    over = mechanism.default_space() if space is None and isinstance(mechanism, capabilities.OwnSpace) else space
    over = SPACE if over is None else over
    scores = None if landscape is None else _landscape(landscape)
    planned = _planned(mechanism, over, epsilon, delta, compute)
    asked = () if runs is None and fraction is None else ((runs or 20, fraction or 0.1),)
    wanted = list(ways(compute, steps_of(mechanism, over), (*planned, *asked), bands))
    found, left_out = _solve(wanted, mechanism, over, epsilon, delta, watch)
    if bands and compute > MOST_IN_A_BAND:
        left_out.append(("bands", f"more than {MOST_IN_A_BAND} runs in a band take minutes to account for"))
    alone = found[0].noise_multiplier
    rows = tuple(
        replace(
            one, price=one.noise_multiplier / alone - 1, score=None if scores is None else expected_score(one, scores)
        )
        for one in found
    )
    larger = (
        ()
        if run is None
        else tuple(batches(run, int(records or 0), epsilon=epsilon, delta=delta, compute=compute, alone=alone))
    )
    settings = {name: value for name, value in given.items() if value is not None}
    best, why = _best(rows, planned)
    return Comparison(rows, best, epsilon, delta, compute, settings, larger, scores, tuple(left_out), why)


def _training(mechanism: Mechanism | None, given: dict[str, Any]) -> tuple[DpSgd | None, Mechanism]:
    named = [name for name, value in given.items() if value is not None]
    if mechanism is not None:
        if named:
            raise _validate.fail(named[0], given[named[0]], "the mechanism says it: leave it out")
        capabilities.check_is_mechanism(mechanism)
        capabilities.check_scores_are_known(mechanism)
        return None, capabilities.with_noise(mechanism, 1.0)
    for name in ("records", "batch_size"):
        if given[name] is None:
            raise _validate.fail(name, None, "give the number of records and the batch size; or a mechanism")
    run = DpSgd.of(noise_multiplier=1.0, **given)
    return run, OwnTraining(untrained, run)


def _planned(
    mechanism: Mechanism, space: Space, epsilon: float, delta: float, compute: float
) -> tuple[tuple[int, float], ...]:
    """The survey that ``tune`` makes of this budget, if there is compute for one."""
    try:
        found: SurveyPlan = plan_tuning(space, mechanism, epsilon=epsilon, delta=delta, compute=compute).survey
    except (UnreachableError, ValueError):
        return ()
    assert found.runs is not None
    assert found.fraction is not None
    return ((found.runs, found.fraction),)


def _solve(
    wanted: list[Way], mechanism: Mechanism, space: Space, epsilon: float, delta: float, watch: Watch
) -> tuple[list[Spent], list[tuple[str, str]]]:
    found: list[Spent] = []
    left_out: list[tuple[str, str]] = []
    guess = _Guesses()
    for way in watch(wanted):
        try:
            one = spend(way, mechanism, space, epsilon=epsilon, delta=delta, start=guess(way))
        except UnreachableError:
            if way.kind == "none":
                raise
            left_out.append((way.name, "no noise pays for it"))
            continue
        guess.learn(one)
        found.append(one)
    return found, left_out


class _Guesses:
    """Where to start the search for noise: guesses that only save time."""

    def __init__(self) -> None:
        self._alone: float | None = None
        self._shaped: float | None = None

    def __call__(self, way: Way) -> float:
        if self._alone is None:
            return 1.0
        shaped = self._shaped or 1.1 * self._alone
        if way.kind == "band":
            return shaped * (1 + 0.025 * way.band.log_ratio)
        if way.kind == "uniform":
            return shaped * (1.17 if len(set(way.quantiles())) == 1 else 1.0)
        return self._alone * {"stages": 1.09, "composition": 1.37}.get(way.kind, 1.002)

    def learn(self, spent: Spent) -> None:
        if spent.way.kind == "none":
            self._alone = spent.noise_multiplier
        elif spent.way.kind == "uniform" and self._shaped is None:
            self._shaped = 1.02 * spent.noise_multiplier


def _best(rows: tuple[Spent, ...], planned: tuple[tuple[int, float], ...]) -> tuple[Spent, str]:
    """The recommended way, and why: by expected score, then by compute; without a landscape what ``tune`` would do."""
    scored = [row for row in rows if row.score is not None]
    if scored:
        best = max(scored, key=_merit)
        as_good = [row for row in scored if _merit(row)[0] == _merit(best)[0]]
        if len(as_good) == 1:
            return best, "the best expected score, to three decimals"
        return best, f"the least compute of the {len(as_good)} designs with the best expected score, to three decimals"
    for row in rows:
        first = row.parts[0]
        if row.way.kind == "survey" and (first.runs, first.fraction) in planned:
            return row, _survey(row, rows)
    return rows[0], "there is no compute for a survey, and without a landscape nothing says that another search pays"


def _merit(row: Spent) -> tuple[float, float]:
    return round(row.score or 0.0, 3), -row.way.compute


def _survey(best: Spent, rows: tuple[Spent, ...]) -> str:
    """Why the survey that ``tune`` plans is recommended, beside the cheapest search of another kind."""
    said = f"it is the survey that dphypo.tune plans, and adds {100 * max(best.price, 0.0):.2g} % noise"
    others = [row for row in rows if row.way.kind not in ("none", "survey")]
    if others:
        least = min(others, key=lambda row: row.price)
        said += f", where the cheapest search of another kind ({least.name}) adds {100 * max(least.price, 0.0):.2g} %"
    return f"{said}; what they reach is compared on a landscape only"


def _landscape(given: Landscape | str | Path) -> Landscape:
    if isinstance(given, Landscape):
        return given
    if isinstance(given, str) and given.lower() in NAMES:
        return Landscape.load(given.lower())
    return Landscape.read(given)
