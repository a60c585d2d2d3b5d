"""Tune a private model: a survey of short runs, then one full run at what it found."""

from __future__ import annotations

import concurrent.futures
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from dphypo import _validate
from dphypo._stderr import say
from dphypo.accounting.noise import Keep
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors.executor import FIVE_MINUTES, Crew, Every, Factory
from dphypo.journal import Ledger
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import check_is_mechanism, records_of
from dphypo.search.chain import Chain
from dphypo.search.declaration import Cost, Declaration, check_space
from dphypo.search.part import Part
from dphypo.search.progress import solving
from dphypo.search.release import Release
from dphypo.search.survey_plan import (
    NoiseProblem,
    SurveyPlan,
    least_fraction,
    settings_within,
    steps_of,
    within_compute,
)
from dphypo.search.table import OnRun
from dphypo.space import Space

PRICE = 0.01
"""The default of ``price``."""
RUNS_OF_FEW_STEPS = 15
"""How many runs are left where runs cannot be made shorter and cost more than ``price``."""
QUIET = 0.01
"""The last run trains on the records that score, too, where the noise of a score stays below this."""


@_validate.named_right
def tune(
    *searched: Space | Mechanism,
    space: Space | None = None,
    mechanism: Mechanism | None = None,
    epsilon: float,
    delta: float,
    compute: float | None = None,
    survey: SurveyPlan | int | None = None,
    price: float = PRICE,
    workers: int = 1,
    progress: bool = True,
    start_method: str = "spawn",
    executor: str | Factory | concurrent.futures.Executor | None = None,
    devices: Sequence[str] | str | None = None,
    checkpoint_every: Every = FIVE_MINUTES,
    on_run: OnRun | None = None,
    journal: str | Path | Store | None = "tune.db",
    name: str = "tune",
    maximize: bool = True,
    entropy: Entropy = SYSTEM,
    data_name: str | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Release:
    """Tune the hyperparameters of a private training run, and train with them: all of it costs (ε, δ) together.

    Short runs with more noise cost next to nothing beside the full run, so all of their results are published, an
    ordinary optimiser follows them, and one full run is made at the λ they recommend. The noise of all runs is solved
    for. What tuning costs, usually a few per cent more noise in the full run or less, is printed before it starts.

    **Guarantee.** The model, its λ and the whole table of the survey (``release.survey``) together are (ε, δ)-DP, by
    composition; ``release.certificate`` says so in public values. Nothing about the search is secret but the data, the
    seeds and how long runs take.

    The last run is not ranked, so ``release.score`` is None. To say how good the model is, evaluate it on public
    records; or ask for its score with ``survey=SurveyPlan(score=True)``, which is taken on records that did not train
    it, and paid for.

    Args:
        searched: the space and the mechanism, or the mechanism alone: ``tune(space, mechanism, ...)`` or
            ``tune(mechanism, ...)``. Both may be given by name.
        space: the hyperparameters of the full run, and a prior of them; by default those that the mechanism names
            (:meth:`dphypo.integrations.torch.DPSGD.default_space`).
        mechanism: the full run, such as :class:`dphypo.integrations.torch.DPSGD`. It offers
            ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``, the same training cut short.
        epsilon, delta: what everything that is released may cost together.
        compute: the most compute, in full runs; the last run takes 1 of it. Where batch size or steps are tuned,
            settings with which it could be exceeded are excluded.
        survey: a :class:`dphypo.SurveyPlan`, or the number of short runs; by default it is planned.
        price: how much more noise in the full run a planned survey may cost, as a fraction.
        workers: how many runs to make at a time.
        progress: print what tuning costs, and every run of the survey.
        start_method, executor, devices, checkpoint_every, on_run: as for :meth:`dphypo.Stages.run`.
        journal, name, maximize, entropy, data_name, ledger: as for :class:`dphypo.Study`. A call that was interrupted
            goes on.

    >>> import math
    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> def training(noise_multiplier, steps=400):
    ...     def train(params, *, seed):  # a stand-in for training on private records
    ...         return {"lr": params["lr"], "steps": steps}, -abs(math.log(params["lr"] / 0.1))
    ...     event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise_multiplier), steps)
    ...     return Training(train, event=event, relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def at(self, noise_multiplier=None, fraction=1.0, match=False):
    ...         noise = noise_multiplier or self.event.event.noise_multiplier
    ...         return training(noise / math.sqrt(fraction) if match else noise, round(400 * fraction))
    >>> release = tune(dphypo.Space({"lr": loguniform(1e-3, 1)}), training(1.0), epsilon=2.0, delta=1e-6,
    ...                survey=20, journal=None, progress=False)
    >>> 0.05 < release.params["lr"] < 0.2, release.model["steps"], len(release.survey.rows)
    (True, 400, 20)
    >>> 1.99 < release.certificate.epsilon <= 2.0
    True
    """
    space, mechanism = _subject(searched, space, mechanism)
    check_entropy(entropy)
    crew = Crew(workers, start_method, executor, devices, checkpoint_every)
    with keeping(journal, name) as keep, solving(show=progress):
        tuning = plan_tuning(
            space, mechanism, epsilon=epsilon, delta=delta, compute=compute, survey=survey, price=price, keep=keep
        )
    declared = tuning.declare(space, delta, maximize=maximize, private=entropy.private, data_name=data_name)
    chain = Chain(declared, journal, name, entropy, ledger)
    if _validate.flag(progress=progress):
        say(tuning.summary)
    return chain.run(crew, progress=progress, on_run=on_run)


def _subject(
    searched: Sequence[Space | Mechanism], space: Space | None, mechanism: Mechanism | None
) -> tuple[Space, Mechanism]:
    """The space and the mechanism, given by place or by name."""
    places = list(searched)
    if mechanism is None:
        if not places:
            raise _validate.fail("mechanism", None, "give tune(mechanism, ...) or tune(space, mechanism, ...)")
        mechanism = cast(Mechanism, places.pop())
    if places and space is None:
        space = cast(Space, places.pop())
    if places:
        raise TypeError("tune takes a space and a mechanism: tune(space, mechanism, ...) or tune(mechanism, ...)")
    check_is_mechanism(mechanism)
    found = mechanism.default_space() if space is None else space
    if found is None:
        remedy = 'the mechanism has no default: give one, such as Space({"lr": loguniform(1e-3, 10)})'
        raise _validate.fail("space", None, remedy)
    return found, mechanism


@dataclass(frozen=True)
class Tuning:
    """A survey and a last run with their noise: what ``dphypo.tune`` runs.

    Args:
        survey: what was declared, with nothing left out.
        cost: the survey and the last run, and what they cost together.
        epsilon: the total that was asked for.
        price, accepted: by how much the full run's noise exceeds that of one run without any tuning; what was accepted.
        largest: the compute of the longest full run that is allowed, in those of the mechanism's own setting.
        records: whom the last run trains on, in a sentence, where the mechanism set records apart itself.
    """

    survey: SurveyPlan
    cost: Cost
    epsilon: float
    price: float
    accepted: float = PRICE
    largest: float = 1.0
    records: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.cost.parts

    @property
    def short(self) -> Mechanism:
        return self.parts[0].mechanism

    @property
    def full(self) -> Mechanism:
        return self.parts[-1].mechanism

    @property
    def compute(self) -> float:
        """The most compute that the survey and the last run can take together, in full runs."""
        return self.survey.compute * self.largest

    def declare(
        self, space: Space, delta: float, *, maximize: bool = True, private: bool = True, data_name: str | None = None
    ) -> Declaration:
        """The search that :func:`dphypo.tune` runs; ``Stages.of`` asks and tells, or shows the guarantee first."""
        public: dict[str, Any] = {"maximize": maximize, "private": private, "data_name": data_name}
        return Declaration.of(space, self.parts, delta=delta, cost=self.cost, epsilon=self.epsilon, **public)

    @property
    def summary(self) -> str:
        """One line with the cost of tuning and, if it is high, a second one with what lowers it. Public."""
        more, takes, part = 100 * max(self.price, 0.0), self.survey.compute - 1, self.survey.fraction
        noise, unit = f"{more:.2g}" if more < 100 else f"{more:.0f}", "run" if round(takes, 3) == 1 else "runs"
        kind = "full runs" if part == 1 else f"short runs of {part:.3g} of the steps"
        line = (
            f"Tuning costs {noise} % more noise and {takes:.3g} {unit} of compute: {self.survey.runs} {kind}, all "
            f"published, then one full run.{self.records}"
        )
        if self.largest != 1:
            line += f" Settings differ in compute: it is at most {self.compute:.3g} runs of the given setting, in all."
        if self.price > self.accepted:
            line += (
                f"\nThat is more than the {100 * self.accepted:.2g} % that was accepted (price). It costs less with "
                "more steps (a smaller batch, or more epochs), fewer runs, more records or a larger epsilon; dphypo "
                "plan compares other designs."
            )
        return line


def plan_tuning(
    space: Space,
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    compute: float | None = None,
    survey: SurveyPlan | int | None = None,
    price: float = PRICE,
    keep: Keep | None = None,
) -> Tuning:
    """A survey and one run that cost ε at δ; number and length of the short runs where not given.

    Runs are longer than the default if so few steps would be left that nothing is learnt. They are shorter, and then
    fewer, if the compute or the price would be exceeded (``paper/RESULTS.md`` has the evidence).

    Where the mechanism set records apart for its scores by itself, the last run trains on all records if the noise of a
    score stays below 0.01. It then counts for both sides, and the scores may cost only what the short runs cost. With
    ``SurveyPlan(score=True)`` it does not: the records that score the release never train it.
    """
    given: object = SurveyPlan(runs=survey) if isinstance(survey, int) else SurveyPlan() if survey is None else survey
    if not isinstance(given, SurveyPlan):
        raise _validate.fail("survey", survey, "give a dphypo.SurveyPlan, or the number of short runs")
    price = _validate.positive(price=price)
    check_space(space)
    check_is_mechanism(mechanism)
    _validate.warn_of_delta(_validate.delta(delta=delta), records_of(mechanism))
    over_space.check_fit(mechanism, space)

    steps = steps_of(mechanism, space)

    def planned(given: SurveyPlan) -> Tuning:
        plan = within_compute(given, space, steps, compute)
        largest, within = settings_within(mechanism, space, None if compute is None else compute / plan.compute)
        found = NoiseProblem(space, mechanism, plan, within, epsilon, delta, keep)
        while given.fraction is None and found.price > price:
            assert plan.fraction is not None
            shorter = max(plan.fraction / 2, least_fraction(steps))
            if shorter < plan.fraction:
                plan = replace(plan, fraction=shorter)
            elif given.runs is None and (plan.runs or 0) > RUNS_OF_FEW_STEPS:
                plan = replace(plan, runs=RUNS_OF_FEW_STEPS)
            else:
                break
            found = replace(found, plan=plan)
        cost, found_price = found.solve()
        return Tuning(plan, cost, epsilon, found_price, price, largest)

    if given.last is None and not given.score and mechanism.on_all_records() is not None:
        last: Any = operator.methodcaller("on_all_records")  # which states no split: it counts for everyone
        whole = planned(replace(given, last=last))
        noise = whole.short.score_deviation
        if noise is None or noise <= QUIET:
            return replace(whole, records=" It trains on all records, those that score included.")
        records = f" It trains on the records that do not score: on all, scores would have a noise of {noise:.2g}."
        tuning = replace(planned(given), records=records)
    else:
        tuning = planned(given)
    noise = tuning.short.score_deviation
    if noise is not None and mechanism.solves_for_scores:
        _validate.warn_of_score_noise(noise)
    return tuning
