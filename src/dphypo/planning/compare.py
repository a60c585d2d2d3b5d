"""``dphypo.plan``: the honest designs under one total (ε, δ), compared by the sharpest bounds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dphypo import _validate
from dphypo.band import Band
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, OwnTraining, SampledGaussian
from dphypo.mechanisms.mechanism import check_is_mechanism
from dphypo.planning import designs as _designs
from dphypo.planning.designs import BANDS, MOST_COMPUTE, MOST_IN_A_BAND, SHARES, SPACE, Batch, Spent, Watch
from dphypo.planning.epsilons import EpsilonCurve, epsilon_curve
from dphypo.search import SurveyPlan, plan_tuning
from dphypo.search.fit_count import total_in_gaussians
from dphypo.search.rates import GAIN, SPREAD, Prospect, noise_of_scale, spread_of_scale
from dphypo.search.survey import FRACTION, RUNS
from dphypo.search.tune import known_of, prospect_of, steps_of, with_silent_scores
from dphypo.space import Space


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
    space: Space | None = None,
    watch: Watch = iter,
) -> Comparison | EpsilonCurve:
    """Compare ways to tune a private training run under a total (ε, δ): surveys, searches, bands, stages.

    For each design the noise of its full runs is solved for, so that all that it releases costs ε at δ by the sharpest
    bound we have. The table also shows the number of runs, the compute, the chance that a run is among the best of the
    prior, and where only the learning rate is searched the expected regret. Only public values go in, so a comparison
    costs no privacy.

    Args:
        mechanism: a full run that offers ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``; or None,
            and the training is DP-SGD with ``records``, ``batch_size`` and ``epochs`` or ``steps``. If the noise of
            its scores is yet to be found, scores take none of ε from training: records that score are on a side of
            their own, where ``tune`` gives scores as little noise as costs no more than training does.
        epsilon, delta: what all that is released may cost together.
        epsilons: several ε instead of one, in increasing order: what noise each asks of one run without a search, and
            how much accuracy such noise cost on public tasks (:class:`dphypo.planning.epsilons.EpsilonCurve`).
        records, batch_size, epochs, steps: of DP-SGD: public constants. Where a person has several rows, records and
            batches count persons, as a mechanism with ``person=`` does.
        compute: the most compute that is expected, in full runs.
        runs, fraction: another survey to compare: how many runs, and how short.
        bands: of the adaptive studies to compare; they take the longest.
        space: what is tuned, if the mechanism's event depends on it.
        watch: wraps the designs while they are solved for, to show progress.

    Returns:
        A :class:`dphypo.planning.compare.Comparison`: ``str`` is a table and a recommendation, ``code`` the line that
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
    over = mechanism.default_space() if space is None else space
    over = SPACE if over is None else over
    planned = _planned(mechanism, over, epsilon, delta, compute)
    asked = () if runs is None and fraction is None else ((runs or RUNS, fraction or FRACTION),)
    wanted = list(_designs.designs(compute, steps_of(mechanism, over), (*planned, *asked), bands))
    found, left_out = _designs.spend_all(wanted, mechanism, over, epsilon, delta, watch)
    if bands and compute > MOST_IN_A_BAND:
        left_out.append(("bands", f"more than {MOST_IN_A_BAND} runs in a band take minutes to account for"))
    alone = found[0].noise_multiplier
    found = [replace(one, price=one.noise_multiplier / alone - 1) for one in found]
    prospect = _prospect(mechanism, run, records, over, found[0], epsilon, delta)
    rows = tuple(replace(one, regret=None if prospect is None else _regret(one, prospect)) for one in found)
    larger: tuple[Batch, ...] = ()
    if run is not None:
        larger = tuple(_designs.batches(run, records or 0, epsilon=epsilon, delta=delta, compute=compute, alone=alone))
    settings = {name: value for name, value in given.items() if value is not None}
    best, why = _best(rows, planned)
    return Comparison(rows, best, epsilon, delta, compute, settings, larger, tuple(left_out), why, notes)


def _curve(mechanism: Mechanism | None, epsilons: Sequence[float], delta: float, **given: Any) -> EpsilonCurve:
    run, made = _training(mechanism, given)
    cost = getattr(made, "cost", None)
    if run is None and cost is None:
        remedy = "it does not state its batches: give records=, batch_size= and epochs= instead"
        raise _validate.fail("mechanism", mechanism, remedy)
    found = cost.run({}) if run is None and cost is not None else run
    assert found is not None
    records = given["records"] if run is not None else made.records
    return epsilon_curve(found, found.rate * records, epsilons=epsilons, delta=_validate.positive_delta(delta=delta))


def _training(mechanism: Mechanism | None, given: dict[str, Any]) -> tuple[SampledGaussian | None, Mechanism]:
    named = [name for name, value in given.items() if value is not None]
    if mechanism is not None:
        if named:
            raise _validate.fail(named[0], given[named[0]], "the mechanism already sets it; leave it out")
        check_is_mechanism(mechanism)
        return None, with_silent_scores(mechanism).with_noise(1.0)
    for name in ("records", "batch_size"):
        if given[name] is None:
            raise _validate.fail(name, None, "give the number of records and the batch size; or a mechanism")
    run = SampledGaussian.of(noise_multiplier=1.0, **given)
    return run, OwnTraining(_designs.untrained, run, scores="public")


def _notes_of(mechanism: Mechanism) -> Iterator[str]:
    """What a table says of the training itself: whom it protects, and what its scores cost."""
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
            return alone, f"{said}, where the best survey loses {min(surveys):.2g}" if surveys else said
        return least, f"the least expected regret, {least.regret:.2g}, where no tuning has {alone.regret:.2g}"
    for row in rows:
        first = row.parts[0]
        if row.design.kind == "survey" and (first.runs, first.fraction) in planned:
            return row, _survey(row, rows)
    return rows[0], "there is no compute for a survey, and nothing public says that another search pays"


def _survey(best: Spent, rows: tuple[Spent, ...]) -> str:
    """Why the survey that ``tune`` plans is recommended, compared with the cheapest search of another kind."""
    said = f"it is the survey that dphypo.tune plans, and adds {100 * max(best.price, 0.0):.2g} % noise"
    others = [row for row in rows if row.design.kind not in ("none", "survey")]
    if others:
        least = min(others, key=lambda row: row.price)
        said += f", where the cheapest search of another kind ({least.name}) adds {100 * max(least.price, 0.0):.2g} %"
    return said


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
        bought = spread_of_scale(records, noise_of_scale(records, total))
        return Prospect(signal, math.hypot(SPREAD["normalise"], bought), total, 1.0)
    known = known_of(mechanism, space)
    one = mechanism.with_noise(alone.noise_multiplier)
    return None if known is None else prospect_of(mechanism, one, space, known, epsilon, delta)


def _regret(row: Spent, prospect: Prospect) -> float | None:
    """The expected regret of one run, or of a survey and a run; other designs have none."""
    first = row.parts[0]
    if row.design.kind == "none":
        return prospect.regret
    if row.design.kind != "survey" or not isinstance(first.runs, int):
        return None
    return replace(prospect, fraction=first.fraction).searched(first.runs, row.price)


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
        """Python that runs what is recommended, for a ``space`` and a ``mechanism``. Numbers are not rounded."""
        (first, *rest) = self.best.parts
        if self.best.design.kind == "none" and self.best.regret is not None:
            return f"release = dphypo.tune(mechanism, epsilon={self.epsilon!r}, delta={self.delta!r}, search='never')"
        if self.best.design.kind == "survey" and rest:
            planned = f"survey=dphypo.SurveyPlan(runs={first.runs}, fraction={first.fraction:.6g})"
            return f"release = dphypo.tune(space, mechanism, epsilon={self.epsilon!r}, delta={self.delta!r}, {planned})"
        full = f"full = mechanism.at(noise_multiplier={self.best.noise_multiplier!r})"
        if isinstance(first.runs, Law):
            return f"{full}; release = dphypo.Study(space, {first.arguments()}, delta={self.delta!r}).run()"
        parts = ", ".join(part.code() for part in self.best.parts)
        return f"{full}; release = dphypo.Stages(space, [{parts}], delta={self.delta!r}).run()"

    def __repr__(self) -> str:
        return f"<comparison of {len(self.rows)} designs: {self.best.name}>"

    def __str__(self) -> str:
        head = ["", "design", "noise", "more", "runs 5/50/95 %", "compute", "in best 1/5/10 %"]
        rows = [head + (["regret"] if self._regrets else [])]
        rows += [self._cells(number, row) for number, row in enumerate(self.rows, 1)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"Each design costs ε = {self.epsilon:g} at δ = {self.delta:g}, all that it releases together."
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
                "regret: how much accuracy is expected to be lost to the best learning rate without tuning, where only "
                "the rate is unknown and public values nearly give it; scores are taken on public records."
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
