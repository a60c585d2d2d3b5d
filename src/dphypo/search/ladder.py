"""The smallest ε that is good enough: a ladder of runs with less and less noise, until a score reaches a target.

A ladder declares totals ε₁ < … < ε_k. Rung j is one full run, scored; its noise is solved for, so that rungs 1 to j
together cost ε_j at δ. The first rung whose score reaches the target is released, and no further rung is run.

**Guarantee.** All rungs together cost (ε_k, δ), and whatever stops the ladder early is a function of what it published:
a rung that is not run is dominated by every pair. So the release is (ε_k, δ)-DP. The cost of rungs that were
*not* run is returned to a ledger, if there is one. Proofs: docs/theory/ladders.md.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from dphypo import _validate
from dphypo._stderr import say
from dphypo.accounting import Composition, solve_noise
from dphypo.accounting.calibrate import Keep
from dphypo.accounting.profiles import round_epsilon, show_delta, show_epsilon
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors.executor import FIVE_MINUTES, Every, Execution, Factory
from dphypo.journal import Ledger
from dphypo.journal.journal import Record, keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import SILENT, check_is_mechanism, records_of
from dphypo.search.declaration import Declaration, FitCount, PartSetting, cost_of, read_space
from dphypo.search.progress import solving
from dphypo.search.proposer import middle, moved_into
from dphypo.search.release import Release, SurveyTable, table_of
from dphypo.search.runner import Runner
from dphypo.search.survey import DeclaredRuns, Survey
from dphypo.space import Space

_MOST_RUNGS = 20
_DECIMALS = 4  # of the share of a model that is kept


@dataclass(frozen=True)
class Ladder:
    """A target score, and the totals that ``dphypo.tune(until=...)`` tries in turn.

    Args:
        target: the score to reach, such as an accuracy of 0.9.
        rungs: how many totals, each √2 times the one before; the last is the ``epsilon`` of ``tune``.
        epsilons: the totals instead, in increasing order; the last is at most the ``epsilon`` of ``tune``.
        wrong: the largest probability, over all rungs together, that "reached" is wrong: a score on private records
            must exceed the target by a margin that covers its noise and the sampling of the records that score.

    >>> [round(total, 2) for total in Ladder(0.9).totals(8.0)]
    [1.0, 1.41, 2.0, 2.83, 4.0, 5.66, 8.0]
    >>> Ladder(0.9, epsilons=(0.5, 1.0)).totals(2.0)
    (0.5, 1.0)
    """

    target: float
    rungs: int = 7
    epsilons: Sequence[float] | None = None
    wrong: float = 0.05

    def __post_init__(self) -> None:
        _validate.number(target=self.target)
        _validate.integer(at_least=1, rungs=self.rungs)
        _validate.within(0.0, 0.5, wrong=self.wrong)
        if self.rungs > _MOST_RUNGS:
            raise _validate.fail("rungs", self.rungs, f"give at most {_MOST_RUNGS}: each adds noise to the others")
        if self.epsilons is not None:
            object.__setattr__(self, "epsilons", increasing(self.epsilons))

    def totals(self, epsilon: float) -> tuple[float, ...]:
        """ε₁ < … < ε_k: what rungs 1 to j cost together."""
        if self.epsilons is None:
            return tuple(epsilon / 2 ** (number / 2) for number in reversed(range(self.rungs)))
        if self.epsilons[-1] > epsilon:
            remedy = f"the last total may not exceed epsilon = {epsilon:g}"
            raise _validate.fail("epsilons", self.epsilons, remedy)
        return tuple(self.epsilons)


def increasing(epsilons: object) -> tuple[float, ...]:
    """Several ε in increasing order."""
    given = tuple(_validate.positive(epsilons=one) for one in _validate.sequence(epsilons=epsilons))
    if not 1 <= len(given) <= _MOST_RUNGS or any(a >= b for a, b in itertools.pairwise(given)):
        raise _validate.fail("epsilons", epsilons, f"give 1 to {_MOST_RUNGS} in increasing order, such as (1, 2, 4, 8)")
    return given


@dataclass(frozen=True)
class Rung(Survey):
    """One full run whose result is published, model and score: a step of a ladder or a point of a frontier.

    Args:
        params: λ of the run, from public values.
        place: its number, from 1 on.
        epsilon: in a ladder, the cost of this rung and those before it; in a frontier, the cost of this run alone.
        ex_post: in a ladder of k rungs, the ε at δ/k of this rung and those before it.
        target, reaching: the target, and the score at which it counts as reached; None in a frontier.
        wrong: the probability that this rung is wrongly said to reach the target; None if none is stated.
        kept: how much of the model of the rung before it is kept (:meth:`dphypo.mechanisms.Mechanism.continued`); None
            if it begins untrained.
    """

    runs: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    place: int = 1
    epsilon: float = math.inf
    ex_post: float | None = None
    target: float | None = None
    reaching: float | None = None
    wrong: float | None = None
    kept: float | None = None

    may_stop: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"one run of {self.mechanism!r}, for ε = {show_epsilon(self.epsilon)}"

    def publishes(self) -> dict[str, Any]:
        stated = {"epsilon": self.epsilon, "ex post": self.ex_post, "until": self.target}
        stated |= {"reached from": self.reaching, "wrong": self.wrong, "kept of the model before": self.kept}
        known = {name: value for name, value in stated.items() if value is not None}
        found = super().publishes()
        releases = [*found["releases"], *([] if self.models else ["model"])]
        return {**found, "part": "rung", "releases": releases, **known}

    def compute(self) -> str:
        when = "" if self.target is None or self.place == 1 else ", if no rung before it reaches the target"
        return f"Compute: 1 run{when}."

    def begin(self, setting: PartSetting) -> DeclaredRuns:
        chosen = partial(moved_into, setting.prior, setting.declared, self.params)
        return DeclaredRuns.once(setting.prior, chosen, within=self.within, table=True)

    def after(self, model: Any) -> Mechanism:
        """The mechanism to run after a rung that published this model, which is None if its run failed."""
        continued = None if self.kept is None or model is None else self.mechanism.continued(self.kept, model)
        return self.mechanism if continued is None else continued

    def stops(self, published: SurveyTable) -> bool:
        """Whether the score reaches the target. It is noisy, published and paid for."""
        score, sign = published.rows[0].score, 1.0 if published.maximize else -1.0
        return self.reaching is not None and score is not None and sign * score >= sign * self.reaching

    def state(self, published: SurveyTable) -> dict[str, Any]:
        reached = {} if self.target is None else {"reached": self.stops(published)}
        return {**published.fingerprint(), "rung": self.place, **reached}

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        """The model that was scored, with its table."""
        return replace(best, params=dict(record.trials[0].params), surveys=(table_of(record),))


@dataclass(frozen=True)
class Climb:
    """Rungs with their noise: what ``tune(until=...)`` and ``frontier`` run."""

    rungs: tuple[Rung, ...]
    epsilon: float | None

    def declare(self, space: Space, delta: float, **public: Any) -> Declaration:
        return Declaration.of(space, self.rungs, delta=delta, epsilon=self.epsilon, **public)

    @property
    def summary(self) -> str:
        """What will be run and when it stops, in public values."""
        first, count = self.rungs[0], len(self.rungs)
        shown = ", ".join(show_epsilon(rung.epsilon) for rung in self.rungs)
        if first.target is None:
            return f"{count} runs, for ε = {shown}, each alone; all are released, and charged together."
        scores = [f"{rung.reaching:.4g}" for rung in self.rungs]
        reached = scores[0] if len(set(scores)) == 1 else ", ".join(scores)
        said = (
            f"Up to {count} runs, one after the other. The total up to each of them is ε = {shown}. The first whose "
            f"score reaches {reached} is released, and no run follows it."
        )
        if first.wrong is None:
            return f"{said} Scores are compared with {first.target:g} as they are: no probability is stated."
        wrong = f"wrong with a probability of at most {show_delta(count * first.wrong)}"
        return f"{said} The claim that such a model classifies {first.target:g} of new records correctly is {wrong}."


def plan_ladder(
    space: Space, mechanism: Mechanism, ladder: Ladder, *, epsilon: float, delta: float, keep: Keep | None = None
) -> Climb:
    """The rungs of a ladder, with noise such that rungs 1 to j together cost ε_j at δ."""
    totals = ladder.totals(_validate.positive(epsilon=epsilon))
    solver = _Solver.of(space, mechanism, delta, keep)
    counts = FitCount.of(mechanism, epsilon=totals[0], delta=delta)
    rungs: list[Rung] = []
    for place, total in enumerate(totals, 1):
        made = solver.rung(rungs, total, place=place, counts=counts if place == 1 else None)
        reaching, wrong = _reaching(made.mechanism, ladder, len(totals))
        made = _continuing(rungs, replace(made, target=ladder.target, reaching=reaching, wrong=wrong))
        ex_post = round_epsilon(cost_of(space, [*rungs, made]).epsilon(delta / len(totals)))
        rungs.append(replace(made, ex_post=ex_post))
    return Climb(tuple(rungs), epsilon)


def _continuing(before: Sequence[Rung], rung: Rung) -> Rung:
    """A rung that begins from the model of the one before, if it can: docs/theory/ladders.md, "Warm rungs".

    The share that is kept is κ, κ² = Σ_{i<j} σ_i⁻² / Σ_{i≤j} σ_i⁻².
    """
    begun = None if "learning_rate" in rung.params else rung.mechanism.continued(0.0)
    if begun is None:
        return rung
    weights = [float(one.mechanism.noise_multiplier) ** -2 for one in (*before, replace(rung, mechanism=begun))]  # type: ignore[attr-defined]
    kept = round(math.sqrt(1 - weights[-1] / math.fsum(weights)), _DECIMALS)
    return replace(rung, mechanism=begun, kept=kept if before else None)


def _reaching(mechanism: Mechanism, ladder: Ladder, rungs: int) -> tuple[float, float | None]:
    """The score at which a rung reaches the target, and the probability that this is wrong."""
    if mechanism.score_event is None:
        return ladder.target, None
    if mechanism.split is None:
        remedy = (
            "the records that score may train the model too, so that a score says little about new records: score by "
            '"accuracy", which sets records apart, on the other part of split_by_hash, or on public records'
        )
        raise _validate.fail("until", ladder.target, remedy)
    wrong = ladder.wrong / rungs
    reaching = mechanism.score_reaching(ladder.target, wrong)
    if reaching is None:
        remedy = 'the deviation of its scores is unknown: score by "accuracy", or on public records'
        raise _validate.fail("until", ladder.target, remedy)
    return reaching, wrong


@dataclass(frozen=True)
class _Solver:
    """Solves for the noise of rungs, one after the other."""

    space: Space
    mechanism: Mechanism
    delta: float
    keep: Keep | None

    @classmethod
    def of(cls, space: Space, mechanism: Mechanism, delta: float, keep: Keep | None) -> _Solver:
        _validate.warn_of_delta(_validate.positive_delta(delta=delta), records_of(mechanism))
        over_space.check_fit(mechanism, space)
        return cls(space, mechanism, delta, keep)

    def rung(self, before: Sequence[Rung], total: float, **stated: Any) -> Rung:
        """The next rung, with the least noise such that it and those before it together cost ``total``."""
        mechanism = self.mechanism
        budget: dict[str, Any] = {"epsilon": total, "delta": self.delta, "keep": self.keep}

        def with_rung(full: Mechanism) -> Composition:
            return cost_of(self.space, [*before, Rung(full, **stated)])

        silent = mechanism.with_silent_scores()
        noise = solve_noise(lambda value: with_rung(silent.with_noise(value)), **budget).value
        full = silent.with_noise(noise)
        if mechanism.solves_for_scores:
            assert mechanism.split is not None  # or its scores could not be silent
            budget |= {"side": mechanism.split.scoring, "largest": SILENT}
            full = full.with_score_noise(
                solve_noise(lambda value: with_rung(full.with_score_noise(value)), **budget).value
            )
        return Rung(full, params=known_params(full, self.space), epsilon=total, **stated)


def known_params(mechanism: Mechanism, space: Space) -> dict[str, Any]:
    """λ without a search: the middle of the prior, and the learning rate that follows from public values."""
    params, known = middle(space), mechanism.known()
    return {**params, known.name: known.value} if known is not None and known.name in params else params


@_validate.named_right
def frontier(
    mechanism: Mechanism,
    *,
    epsilons: Sequence[float],
    delta: float,
    epsilon: float | None = None,
    space: Space | Mapping[str, Any] | None = None,
    progress: bool = True,
    executor: str | Factory | concurrent.futures.Executor | None = None,
    checkpoint_every: Every = FIVE_MINUTES,
    journal: str | Path | Store | None = "frontier.db",
    name: str = "frontier",
    maximize: bool = True,
    entropy: Entropy = SYSTEM,
    data_name: str | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Release:
    """Train and release a model for each of several ε: the measured curve of score against ε, fully charged.

    **Guarantee.** Each run has the noise for which it costs its ε alone. All runs are released, so they compose:
    ``release.certificate`` states the ε of all together, which is larger than any of them. It is printed before the
    first run. To pay for one good model instead, use ``dphypo.tune(until=...)``.

    Args:
        mechanism: the full run, such as :class:`dphypo.torch.DPSGD`.
        epsilons: what each run costs alone, in increasing order.
        delta: the δ of every ε, and of all together.
        epsilon: the most that all runs may cost together; they are refused if they cost more.
        space: as for :func:`dphypo.tune`. Every run uses its middle, and the learning rate that its own noise
            determines.
        progress, executor, checkpoint_every, journal, name, maximize, entropy, data_name, ledger: as for
            :func:`dphypo.tune`. An interrupted call resumes.

    Returns:
        A release whose table has one run, with its model, for each ε: ``release.surveys[0].rows[0].score``,
        ``release.surveys[0].model(0)``. The model of the release is that of the largest ε.
    """
    check_entropy(entropy)
    check_is_mechanism(mechanism)
    with keeping(journal, name) as keep, solving(show=progress):
        solver = _Solver.of(read_space(space, mechanism), mechanism, delta, keep)
        alone = [solver.rung([], one, place=place, models=True) for place, one in enumerate(increasing(epsilons), 1)]
    climb = Climb(tuple(alone), epsilon)
    declared = climb.declare(solver.space, delta, maximize=maximize, private=entropy.private, data_name=data_name)
    runner = Runner(declared, journal, name, entropy, ledger)
    if _validate.flag(progress=progress):
        say(climb.summary)
    return runner.run(Execution(1, "spawn", executor, None, checkpoint_every), progress=progress)
