"""Studies, and searches in several parts: what is declared, and how a study draws λ.

In Framework 1 of the paper a study does "Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C" and "draw λ ∼ π⁽ʲ⁾":
:class:`DrawnRuns` asks the search rule for weights, and the band projects them and draws.

A survey may centre the prior of the next part on what it found. Each part has its own guarantee for any prior, so the
guarantee of the whole is their adaptive composition.
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.accounting import Certificate, Composition, Guarantee, Term, account
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band, Greedy
from dphypo.band.band import BandLike
from dphypo.band.projections import Projection, named_projection
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.errors import SamplerError, SecretValue
from dphypo.executors.executor import FIVE_MINUTES, Every, Execution, Factory, GroupSizes, Lost
from dphypo.journal import Ledger
from dphypo.journal.journal import Record, Trial
from dphypo.journal.store import Store
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.mechanisms.mechanism import check_is_mechanism
from dphypo.samplers import History, Sampler, default_sampler
from dphypo.samplers.sampler import basis, description, is_ours
from dphypo.search import progress as _progress
from dphypo.search import refusals
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration, Part, PartSetting, Past, Runs
from dphypo.search.release import OnRun, Release
from dphypo.search.runner import Runner
from dphypo.space import Candidates, Grid, Space
from dphypo.space.space import MOST_CANDIDATES


@dataclass(frozen=True)
class Policy:
    """A search rule kept inside the band, and what the guarantee assumes about it: the settings of a study."""

    band: Band
    sampler: Sampler
    projection: Projection
    candidates: int
    cells: Mapping[str, int] | None  # the ``grid`` of the study
    policy: PolicyClass
    first: int  # n₀, how many of the first runs are drawn from the prior

    @property
    def adaptive(self) -> bool:
        """Whether the history matters: with c = C = 1 the prior is the only density in the band."""
        return self.band.C > 1

    @property
    def history_only(self) -> bool:
        """Whether the guarantee relies on a search rule that sees only the history."""
        return self.adaptive and self.policy is PolicyClass.HISTORY

    @property
    def counted(self) -> int:
        """n₀ as the guarantee counts it. Without a band every run is drawn from the prior, and no bound needs n₀."""
        return self.first if self.adaptive else 0

    def describe(self) -> dict[str, Any]:
        """The search rule with its settings, as JSON: a history-only study may not change it later."""
        cells = None if self.cells is None else dict(self.cells)
        settings = {"projection": repr(self.projection), "candidates": self.candidates, "grid": cells}
        return {**description(self.sampler), **settings}

    def certified(self) -> dict[str, Any] | None:
        """The search rule as a certificate states it, and who vouches that it sees only the history."""
        if not self.history_only:
            return None
        return {**self.describe(), "sees only the history by": basis(self.sampler, self.projection)}

    def grid(self, prior: Space) -> Grid | None:
        """The cells of a prior. A small finite space is searched over all of them; ``cells`` cuts a larger one."""
        sizes = [parameter.dimension.size for parameter in prior.parameters]
        small = all(size is not None for size in sizes) and math.prod(size or 0 for size in sizes) <= self.candidates
        return prior.grid(**self.cells) if self.cells is not None else prior.grid() if small else None


def _refuse_class(**named: object) -> None:
    """Refuse a class in place of its instance: it has the methods, and no run could call them."""
    for name, given in named.items():
        if isinstance(given, type):
            raise _validate.fail(name, given, f"it is a class: give {given.__name__}(...)")


def _checked_sampler(sampler: object) -> Sampler:
    if isinstance(sampler, Sampler):
        return sampler
    remedy = (
        "give one of dphypo.samplers, such as GaussianProcess() or OptunaSampler(TPESampler()), or an object "
        "with weights(candidates, history); dphypo.testing.check_sampler tests one"
    )
    if hasattr(sampler, "sample_relative"):
        remedy = f"it is a sampler of Optuna: give dphypo.samplers.OptunaSampler({type(sampler).__name__}(...))"
    raise _validate.fail("sampler", sampler, remedy)


def _claim(policy: PolicyClass | str | None, sampler: Sampler, projection: Projection) -> PolicyClass:
    """What the search rule may look at: what the user claims, or else what the rule states itself."""
    qualifies = basis(sampler, projection) is not None
    if policy is None:
        return PolicyClass.HISTORY if qualifies else PolicyClass.ANYTHING
    found = _validate.choice(PolicyClass, policy=policy)
    if found is PolicyClass.HISTORY and not qualifies:
        remedy = f"{type(sampler).__name__} or its projection may look at more than the history: leave policy out, or "
        remedy += "declare history_only = True in the class that defines weights (of a projection: ratios), if what "
        remedy += "they give depends on the candidates, the history and independent randomness alone"
        raise _validate.fail("policy", policy, remedy)
    return found


def _cells(given: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise _validate.fail("grid", given, 'give the number of cells by name, such as {"lr": 32}')
    return {name: _validate.integer(at_least=1, **{f"grid[{name!r}]": count}) for name, count in given.items()}


@dataclass(frozen=True)
class DrawnRuns(Runs):
    """What decides the runs of a study: T is drawn from its law, and λ inside the band.

    With ``grid``, that set of cells with its masses is the prior for the whole search. Without it, fresh candidates are
    drawn for every run, each from the prior given everything before: reusing one set, or one Sobol sequence, for
    several runs would break the band.
    """

    law: Law
    policy: Policy
    space: Space  # in which the search rule sees λ
    grid: Grid | None
    lag: int | None

    @property
    def in_order(self) -> bool:
        return self.policy.history_only

    def draw_total(self, entropy: Entropy) -> int:
        return self.law.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        return bool(self.law.pmf(total) > 0)

    def groups(self, workers: int) -> GroupSizes | None:
        return GroupSizes(workers, workers) if workers > 1 else None

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        return max(number - lag, 0) if self.in_order else None

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ, drawn from the prior itself while the search rule sees fewer than ``first`` results.

        A run never sees more results than there are runs before it, so the first n₀ = ``first`` runs are drawn from the
        prior, with any lag. Without a band every run is.
        """
        history = past.history(record, usable) if self.policy.adaptive else None
        if history is not None and len(history) < self.policy.first:
            history = None
        if self.grid is not None:
            return self.grid.draw_within(self._index(self.grid, history, entropy), entropy.child("within"))
        if history is None:
            return self.space.sample(entropy.child("draw"))
        candidates = self.space.candidates(self.policy.candidates, entropy.child("candidates"))
        return candidates.params(self._index(candidates, history, entropy))

    def _index(self, candidates: Candidates | Grid, history: History | None, entropy: Entropy) -> int:
        masses = candidates.masses if history is None else self._projected(candidates, history)
        return self.policy.band.draw(masses, entropy.child("draw"), candidates.masses)

    def _projected(self, candidates: Candidates | Grid, history: History) -> Floats:
        policy, prior = self.policy, candidates.masses
        failure: Exception
        try:
            weights = np.asarray(policy.sampler.weights(candidates, history), dtype=np.float64)
            if weights.shape != prior.shape:
                raise ValueError(f"weights have shape {weights.shape}: there are {len(prior)} candidates")
            return policy.band.project(weights, prior, policy.projection)
        except Exception as error:
            failure = error
        # Raised here, outside the handler: the rule's own error may quote the history and is not to be printed.
        raise SamplerError(policy.sampler, failure)


@dataclass(frozen=True)
class Stage(Part):
    """A study, at the end of :class:`dphypo.Stages`: after surveys, its prior lies around what they found.

    Args:
        mechanism: what one run is: the final mechanism, or a cheaper one (``mechanism.at(epochs=1)``).
        runs: the law of T.
        band, sampler, projection, candidates, grid, lost, policy, first_from_prior, lag: as for :class:`dphypo.Study`.
            The band is relative to the prior that the surveys leave.
    """

    mechanism: Mechanism
    runs: Law
    band: BandLike = Band(1, 1)  # noqa: RUF009 - a frozen value
    sampler: Sampler | None = None
    projection: Projection | str = Greedy()  # noqa: RUF009
    candidates: int = 8192
    grid: Mapping[str, int] | None = None
    lost: Lost | str | None = None
    policy: PolicyClass | str | None = None
    first_from_prior: int | None = None
    lag: int | None = None

    secret: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_is_mechanism(self.mechanism)
        if self.lag is not None:
            _validate.integer(at_least=0, lag=self.lag)
        object.__setattr__(self, "band", Band.of(self.band))
        _ = self.lost_runs, self.search_policy  # which check the other arguments

    def __str__(self) -> str:
        return f"{self.mechanism!r} with {self.runs!r} in {self.search_policy.band!r}"

    @cached_property
    def search_policy(self) -> Policy:
        """The search rule, held to the band; what was left out is filled in."""
        band, into = Band.of(self.band), self.projection
        _refuse_class(sampler=self.sampler, projection=into)
        sampler = default_sampler(band) if self.sampler is None else _checked_sampler(self.sampler)
        into = named_projection(into) if isinstance(into, str) else into
        if not isinstance(into, Projection):
            raise _validate.fail("projection", into, "give one, such as dphypo.band.Greedy(), or its name")
        if _validate.integer(at_least=1, candidates=self.candidates) > MOST_CANDIDATES:
            raise _validate.fail("candidates", self.candidates, f"give at most {MOST_CANDIDATES}")
        if self.first_from_prior is not None:
            first = _validate.integer(at_least=1, first_from_prior=self.first_from_prior)
        else:  # samplers of this library have a start
            first = int(getattr(sampler, "start", 1)) if is_ours(sampler) else 1
        policy = _claim(self.policy, sampler, into)
        return Policy(band, sampler, into, self.candidates, _cells(self.grid), policy, first)

    @property
    def lost_runs(self) -> Lost:
        return Lost.read(self.lost, self.mechanism)

    def account(self, space: Space) -> Guarantee:
        """The guarantee of this study alone, over the whole of the original space."""
        return self._best_of(over_space.events(self.mechanism, space))

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """One term; or two, for training and scores, if a split sets records apart and neighbours add or remove one."""
        self.search_policy.grid(space)  # which refuses cells of parameters that are not in the space
        if not last:
            raise ValueError("a Stage is followed by another part: surveys come first, then one Stage or one LastRun")
        mechanism, sides = self.mechanism, self.mechanism.split
        if alone or sides is None or mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE:
            return (Term(self.account(space)),)
        trains, scores = over_space.by_side(mechanism, space)
        terms = [Term(self._best_of(trains), sides.training)]
        if scores:
            terms.append(Term(self._best_of(scores), sides.scoring, scores=True))
        return tuple(terms)

    def _best_of(self, events: list[Any]) -> Guarantee:
        return account(
            *(events, self.runs, self.search_policy.band),
            relation=self.mechanism.relation,
            policy=self.search_policy.policy,
            first_from_prior=self.search_policy.counted,
        )

    def search_rule(self) -> dict[str, Any] | None:
        return self.search_policy.certified()

    def publishes(self) -> dict[str, Any]:
        return {"releases": ["params", "model", "score"], "score on": self.mechanism.scored_on}

    def compute(self) -> str:
        return _progress.compute(self.runs)

    def begin(self, setting: PartSetting) -> DrawnRuns:
        prior = setting.prior
        return DrawnRuns(self.runs, self.search_policy, prior, self.search_policy.grid(prior), self.lag)


@dataclass(frozen=True, repr=False, kw_only=True)
class StageTrial(Trial):
    """One run of a search: train as ``mechanism`` does, with ``params`` and ``seed``, and report the outcome.

    ``stage`` is counted from 1; a study has one. Trials are secret, so the ``repr`` shows only the stage.
    """

    stage: int
    mechanism: Mechanism = field(compare=False)

    def __repr__(self) -> str:
        return f"<trial of stage {self.stage}>"


class Search:
    """A declared search with a journal: :class:`dphypo.Study` or :class:`dphypo.Stages`, which ask and tell."""

    _runner: Runner

    @property
    def declaration(self) -> Declaration:
        """What determines the guarantee."""
        return self._runner.declaration

    @property
    def guarantee(self) -> Composition:
        """The guarantee of all that is released together, known before anything runs."""
        return self.declaration.guarantee

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document. It depends on what was declared, and is the same before the search and after.

        The certificate of a release in stages also states what the earlier stages have released.
        """
        return self.declaration.certificate

    def run(
        self,
        workers: int = 1,
        progress: bool = True,
        start_method: str = "spawn",
        *,
        executor: str | Factory | concurrent.futures.Executor | None = None,
        devices: Sequence[str] | str | int | None = None,
        checkpoint_every: Every = FIVE_MINUTES,
        on_run: OnRun | None = None,
        **options: object,
    ) -> Release:
        """Execute the runs and return the release. An interrupted search resumes.

        Nothing is released before the last run has ended. A search that has already been released returns the same
        release again, and prints only from which journal it was read.

        Args:
            workers: how many runs to execute at a time; 1 executes them in this process. If a worker dies, its run is
                repeated or counts as failed (see ``lost``).
            progress: print the cost of the whole search first, and the published runs of surveys. The start of a
                later part is shown on a terminal only: a log with times would show how long the part before took.
            start_method: how worker processes start (see ``multiprocessing``). With "spawn" the mechanism must be
                importable, from the top of a module; "fork" takes any function but not threads.
            executor: what executes the runs: one of ``dphypo.executors``, or an executor of ``concurrent.futures``; by
                default this process, or ``workers`` processes of its own.
            devices: devices of this machine, such as ["cuda:0", "cuda:1"], a number of them, or "all"; each has its own
                worker.
            checkpoint_every: a ``datetime.timedelta`` or a number of steps; None writes none. A last run that was
                killed resumes from its checkpoint, a secret file next to the journal. A study has none.
            on_run: called on the curator's side with every published run of a survey, a row with ``params``, ``score``
                and ``status``: at once if the survey has ``durations="public"``, and if not when it has ended. It is
                never called if there is no survey, and refused if there is a study.
        """
        _validate.flag(progress=progress)
        if self.declaration.alone and checkpoint_every != FIVE_MINUTES:
            raise _validate.fail("checkpoint_every", checkpoint_every, "a study keeps no checkpoints: leave it out")
        execution = Execution(workers, start_method, executor, devices, checkpoint_every)
        return self._runner.run(execution, progress=progress, on_run=on_run, options=options)

    def ask(self) -> StageTrial | None:
        """The next run to execute, of the part in progress; None if there is none now.

        Execute it with ``trial.mechanism(trial.params, seed=trial.seed)``, or as that mechanism would, and report the
        outcome with :meth:`tell`; ``trial.stage`` is the number of the part, from 1 on. You may ask for several runs
        before you tell the first outcome. Ask and tell from one thread; execute the runs anywhere. After the last
        outcome of a part, the next ``ask`` publishes that part and begins the next one.

        A result of None is **secret**, like T: use it to end the loop and for nothing else. It means the end only if no
        outcome is missing. A run that an earlier process asked for and did not finish is returned again with the same λ
        and seed.
        """
        if (found := self._runner.ask()) is None:
            return None
        number, trial = found
        return StageTrial(**vars(trial), stage=number + 1, mechanism=self._runner.part(number).mechanism)

    def tell(self, trial: StageTrial, outcome: Any) -> None:
        """Record how a run ended: an ``Outcome``, a ``(model, score)`` pair, or ``Outcome.failed(reason)``.

        Anything else is a TypeError, and nothing is recorded: call ``tell`` again. A score that is a number but not
        finite is a failed run.
        """
        self._runner.tell(trial.stage - 1 if isinstance(trial, StageTrial) else -1, trial, outcome)

    def release(self) -> Release:
        """Release the best run of the last part, once, after the last ``tell``. Random keys break ties."""
        return self._runner.publish_last()

    def shred(self) -> None:
        """Reduce the journal of a released search to its certificates: T, the runs and the model are destroyed.

        Save the release first; its certificate holds what earlier stages released. On SQLite nothing of them is left
        in the file; the disk itself, PostgreSQL's log and backups are outside its reach.
        """
        self._runner.shred()

    def close(self) -> None:
        """Let other processes use the journal. A trial without an outcome counts as lost."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in refusals.SECRETS:
            raise SecretValue(f"{refusals.SECRET_VALUE} ({name!r} was asked for.)")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _several(stages: object) -> Sequence[Any]:
    """A list of parts that is more than a study by itself."""
    parts = stages if isinstance(stages, Sequence) and all(isinstance(stage, Part) for stage in stages) else ()
    if parts and not (len(parts) == 1 and isinstance(parts[0], Stage)):
        return parts
    remedy = "give a list of dphypo.Survey, then one dphypo.Stage or one dphypo.LastRun; a study alone is dphypo.Study"
    raise _validate.fail("stages", stages, remedy)


class Study(Search):
    """A private hyperparameter search: one journal, one T, one release. It is a declaration with one part, a Stage.

    **Guarantee.** The release is (ε, δ)-DP with ε = ``study.guarantee.epsilon(delta)``, for any sampler, provided that
    the mechanism's event bounds one run for every λ, that given its λ a run depends on no other run, and that nothing
    but the release leaves the curator's side: not the journal, not how long the search took.

    Args:
        space: the hyperparameters and their prior.
        mechanism: what one run is, declared with ``@dphypo.mechanism``.
        runs: the law of T, the number of runs.
        band: how far the sampling density may move from the prior, a ``Band`` or its two numbers (c, C); (1, 1) is
            private random search (the paper's Algorithm 2).
        sampler: the search rule; it only matters inside a band, where a Gaussian process is the default.
        projection: how its weights are projected into the band.
        delta: the δ of the certificate.
        journal: a file for SQLite, a ``postgresql://`` URL, an open store, or None to keep it in memory.
        name: distinguishes studies in one database.
        maximize: whether larger scores are better.
        candidates: how many fresh candidates are drawn for every run.
        grid: into how many cells to cut continuous parameters, ``{"lr": 32}``, to search over one fixed grid instead.
        entropy: where randomness comes from; with ``Seeded`` there is no guarantee, and the certificate says so.
        lost: how to treat a run whose process died. "again" repeats it with its seed until it has died three times
            without progress, which is right if all its randomness comes from the seed; "failed" counts it as failed. By
            default, what the mechanism states (``seeded``). An orderly stop and the loss of the whole machine do not
            count as deaths, nor does a death after the run has written a checkpoint.
        data_name: a public name of the data set. A journal that was begun under another name is refused, so that no
            release of other data is returned; the name is in the certificate.
        policy: what the search rule may look at: ``"history"`` or ``"anything"``, which costs more. By default
            ``"history"`` if the sampler states ``history_only = True`` (see :class:`dphypo.samplers.Sampler`).
        first_from_prior: how many of the first runs are drawn from the prior, without asking the search rule: the more,
            the less a band costs. By default the number that the sampler states (``GaussianProcess.start``), else 1.
        lag: how many of the latest runs a history-only rule does not see, so that lag + 1 can be executed at a time.
            It stays the same when a study is resumed. By default one less than the ``workers`` of the first ``run``.
        ledger: a :class:`dphypo.Ledger`, or its file: the study reserves there what it costs, once, before its first
            run, and is refused if the total would be exceeded. A killed study still counts.
        epsilon: the total ε that the study may cost at ``delta``. One that costs more is refused before its first run.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from dphypo.laws import Geometric
    >>> from scipy.stats import loguniform
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(4.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"weight": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for training on private records
    >>> space = dphypo.Space({"lr": loguniform(1e-3, 1)})
    >>> study = dphypo.Study(space, train, Geometric(mean=10), delta=1e-6, journal=None)
    >>> round(study.guarantee.epsilon(1e-6), 1)
    1.6
    >>> release = study.run(progress=False)
    >>> release.params == {"lr": release.model["weight"]}
    True
    """

    def __init__(
        self,
        space: Space,
        mechanism: Mechanism,
        runs: Law,
        band: BandLike = Band(1, 1),  # noqa: B008 - a frozen value
        sampler: Sampler | None = None,
        projection: Projection | str = Greedy(),  # noqa: B008
        *,
        delta: float,
        journal: str | Path | Store | None = "study.db",
        name: str = "study",
        maximize: bool = True,
        candidates: int = 8192,
        grid: Mapping[str, int] | None = None,
        entropy: Entropy = SYSTEM,
        lost: Lost | str | None = None,
        data_name: str | None = None,
        policy: PolicyClass | str | None = None,
        first_from_prior: int | None = None,
        lag: int | None = None,
        ledger: Ledger | str | Path | None = None,
        epsilon: float | None = None,
    ) -> None:
        check_entropy(entropy)
        only = Stage(
            *(mechanism, runs, band, sampler, projection),
            candidates=candidates,
            grid=grid,
            lost=lost,
            policy=policy,
            first_from_prior=first_from_prior,
            lag=lag,
        )
        public: dict[str, Any] = {"maximize": maximize, "private": entropy.private, "data_name": data_name}
        declared = Declaration.of(space, [only], delta=delta, epsilon=epsilon, **public)
        self._runner = Runner(declared, journal, name, entropy, ledger)

    def released(self) -> Release | None:
        """The release again if there is one: the same values, which cost nothing more. None if there is none yet."""
        return self._runner.release(again=True) if self._runner.finished() else None

    def curator(self) -> Curator:
        """The trials, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return self._runner.curator(0)

    def __repr__(self) -> str:
        return f"<study: {self.declaration.parts[0]}>"


class Stages(Search):
    """A private search in parts, surveys and then one study or one last run: one journal, one budget, one model.

    **Guarantee.** All that is released together, the final release and the intermediate ones (``stages.released``), is
    (ε, δ)-DP with ε = ``stages.guarantee.epsilon(delta)``, under the conditions of :class:`dphypo.Study` for each
    part. The prior of a part depends on what the surveys before it published and on nothing else. A survey without a
    result leaves the prior unchanged.

    Args:
        space: the hyperparameters and their original prior. Every stage's event must hold for all of it.
        stages: the parts, in order: one or more :class:`dphypo.Survey`, at the end perhaps a :class:`dphypo.Stage` (a
            study) or a :class:`dphypo.LastRun`. What the last one releases is the release.
            :func:`dphypo.accounting.solve_noise` finds the noise with which they cost a total.
        delta, journal, name, maximize, entropy, data_name, ledger, epsilon: as for :class:`dphypo.Study`.
            Stage k is the study "name, stage k" in the journal. The cost of all stages together is reserved before
            the first run.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> def training(noise):
    ...     @dphypo.mechanism(event=dp.GaussianDpEvent(noise), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def train(params, *, seed):
    ...         return {"weight": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for training on private records
    ...     return train
    >>> search = Stages(
    ...     dphypo.Space({"lr": loguniform(1e-3, 1)}),
    ...     [dphypo.Survey(training(40.0), 20, prior=dphypo.PriorAround(spread=0.1)),
    ...      dphypo.Stage(training(4.0), dphypo.Geometric(mean=5))],
    ...     delta=1e-6, journal=None)
    >>> round(search.guarantee.epsilon(1e-6), 1)
    1.5
    >>> release = search.run(progress=False)
    >>> release.params == {"lr": release.model["weight"]}, len(search.released[0].rows)
    (True, 20)
    """

    def __init__(
        self,
        space: Space,
        stages: Sequence[Part],
        *,
        delta: float,
        journal: str | Path | Store | None = "stages.db",
        name: str = "stages",
        maximize: bool = True,
        entropy: Entropy = SYSTEM,
        data_name: str | None = None,
        ledger: Ledger | str | Path | None = None,
        epsilon: float | None = None,
    ) -> None:
        check_entropy(entropy)
        public: dict[str, Any] = {"maximize": maximize, "private": entropy.private, "data_name": data_name}
        declared = Declaration.of(space, _several(stages), delta=delta, epsilon=epsilon, **public)
        self._runner = Runner(declared, journal, name, entropy, ledger)

    @classmethod
    def of(
        cls,
        declaration: Declaration,
        *,
        journal: str | Path | Store | None = "stages.db",
        name: str = "stages",
        entropy: Entropy = SYSTEM,
        ledger: Ledger | str | Path | None = None,
    ) -> Stages:
        """A search that was declared before: many searches may share a declaration, which is accounted for once."""
        search = cls.__new__(cls)
        search._runner = Runner(declaration, journal, name, entropy, ledger)
        return search

    def prior(self, stage: int) -> Space:
        """The prior of a stage, counted from 1: public, a function of what the stages before it have released."""
        with self._runner.looking():
            return self.declaration.prior(self._runner.earlier(self._place(stage)))

    @property
    def released(self) -> tuple[Any, ...]:
        """What the earlier stages have released so far, in order: public, and covered by the guarantee."""
        with self._runner.looking():
            return tuple(self._runner.published(self._runner.last))

    def curator(self, stage: int) -> Curator:
        """The trials of a stage, counted from 1, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return self._runner.curator(self._place(stage))

    def _place(self, stage: int) -> int:
        if _validate.integer(at_least=1, stage=stage) > len(self.declaration.parts):
            raise _validate.fail("stage", stage, f"there are {len(self.declaration.parts)}, counted from 1")
        return stage - 1

    def __repr__(self) -> str:
        return f"<stages: {', then '.join(map(str, self.declaration.parts))}>"
