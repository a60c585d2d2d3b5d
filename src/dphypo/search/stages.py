"""The public side of a search, and a search in several parts: surveys, then one study or one last run.

A survey may put the prior of the next part around what it found. Each part has its own guarantee, whatever prior it is
given, so the whole is their adaptive composition.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dphypo import _validate
from dphypo.accounting import Certificate, Composition
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.errors import SecretValue
from dphypo.executors.executor import FIVE_MINUTES, Crew, Every, Factory
from dphypo.journal import Ledger
from dphypo.journal.journal import Trial
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism
from dphypo.search import refusals
from dphypo.search.chain import Chain
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration
from dphypo.search.part import Part
from dphypo.search.release import Release
from dphypo.search.stage import Stage
from dphypo.search.table import OnRun
from dphypo.space import Space


class Search:
    """A declared search with a journal: :class:`dphypo.Study` or :class:`dphypo.Stages`, which ask and tell."""

    _chain: Chain

    @classmethod
    def _over(cls, chain: Chain) -> Self:
        """A search whose parts were declared before."""
        search = cls.__new__(cls)
        search._chain = chain
        return search

    @property
    def declaration(self) -> Declaration:
        """What determines the guarantee."""
        return self._chain.declaration

    @property
    def guarantee(self) -> Composition:
        """The guarantee of all that is released together, known before anything runs."""
        return self.declaration.guarantee

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document. It depends on what was declared, and is the same before the search and after.

        That of a release in stages adds what the earlier stages have released.
        """
        return self.declaration.certificate

    def run(
        self,
        workers: int = 1,
        progress: bool = True,
        start_method: str = "spawn",
        *,
        executor: str | Factory | concurrent.futures.Executor | None = None,
        devices: Sequence[str] | str | None = None,
        checkpoint_every: Every = FIVE_MINUTES,
        on_run: OnRun | None = None,
        **options: object,
    ) -> Release:
        """Framework 1: make T runs and release the best; in stages, stage by stage. What was interrupted goes on.

        Nothing is released before the last run: an interrupt leaves a search that can be resumed. A search that has
        been released gives the same release again, and all that is printed is where it was read.

        Args:
            workers: how many runs to make at a time; 1 makes them in this process. A worker that dies loses its run,
                which then counts as failed, or is made again (see ``lost``).
            progress: print the cost of the whole search before, and show a bar on a terminal, erased at the end. How
                many runs it shows is secret, as is how long they take. The start of a later stage is shown on a
                terminal only: a logger adds times, which would show how long the stage before took.
            start_method: how worker processes start (see ``multiprocessing``). With "spawn" the mechanism must be
                importable, from the top of a module; "fork" takes any function but not threads.
            executor: who makes the runs: the name of one of ``dphypo.executors``, or an executor of
                ``concurrent.futures``; by default this process, or ``workers`` processes of its own.
            devices: devices of this machine, such as ["cuda:0", "cuda:1"], or "all"; each has a worker of its own.
            checkpoint_every: a ``datetime.timedelta`` or a number of steps; None writes none. A last run that was
                killed resumes from its checkpoint, a file beside the journal and as secret. A study has none.
            on_run: called on the curator's side with every published run of a survey, a row with ``params``, ``score``
                and ``status``: at once if the survey has ``durations="public"``, and if not when it has ended.
        """
        _validate.flag(progress=progress)
        if self.declaration.alone and checkpoint_every != FIVE_MINUTES:
            raise _validate.fail("checkpoint_every", checkpoint_every, "a study keeps no checkpoints: leave it out")
        crew = Crew(workers, start_method, executor, devices, checkpoint_every)
        return self._chain.run(crew, progress=progress, on_run=on_run, options=options)

    def release(self) -> Release:
        """The best run of the last part, ties broken by the keys drawn with them. Once, and only when all are told."""
        return self._chain.publish_last()

    def shred(self) -> None:
        """Reduce the journal of a released search to its certificates: T, the runs and the model are destroyed.

        Save the release first; its certificate holds what earlier stages released. On SQLite nothing of them is left
        in the file; the disk itself, PostgreSQL's log and backups are outside its reach.
        """
        self._chain.shred()

    def close(self) -> None:
        """Let other processes use the journal. What ``ask`` gave out and was not told counts as lost."""
        self._chain.close()

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


@dataclass(frozen=True, repr=False)
class StageTrial:
    """One run of a search in stages: train as ``mechanism`` does, with ``params`` and ``seed``, and tell the outcome.

    ``stage`` is counted from 1. The trial is secret, as all of them are: the ``repr`` names the stage alone.
    """

    stage: int
    mechanism: Mechanism
    trial: Trial

    @property
    def params(self) -> dict[str, Any]:
        return self.trial.params

    @property
    def seed(self) -> int:
        return self.trial.seed

    def __repr__(self) -> str:
        return f"<trial of stage {self.stage}>"


class Stages(Search):
    """A private search in parts, surveys and then one study or one last run: one journal, one budget, one model.

    **Guarantee.** All that is released together, the final release and the intermediate ones (``stages.released``), is
    (ε, δ)-DP with ε = ``stages.guarantee.epsilon(delta)``, under the conditions of :class:`dphypo.Study` for each
    part. The prior of a part depends on what the surveys before it published and on nothing else. A survey without a
    result leaves the prior as it was.

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
        self._chain = Chain(declared, journal, name, entropy, ledger)

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
        return cls._over(Chain(declaration, journal, name, entropy, ledger))

    def ask(self) -> StageTrial | None:
        """The next run to make, of the stage that is under way; None when there is none to give out now.

        Make it with ``trial.mechanism(trial.params, seed=trial.seed)``, or as that mechanism would, and tell the
        outcome. A trial has ``trial.params``, ``trial.seed``, ``trial.mechanism``, and ``trial.stage`` from 1 on.
        Several may be asked for before the first is told: ask and tell from one thread, and make the runs anywhere.
        When every run of a stage is told, the next ``ask`` makes that stage's release and begins the next stage: None
        is the end only when nothing is left to be told. That there is nothing is **secret**, as in
        :meth:`dphypo.Study.ask`.
        """
        found = self._chain.ask()
        if found is None:
            return None
        number, trial = found
        return StageTrial(number + 1, self.declaration.parts[number].executed, trial)

    def tell(self, trial: StageTrial, outcome: Any) -> None:
        """How a run ended, as for :meth:`dphypo.Study.tell`."""
        given: object = trial
        if not isinstance(given, StageTrial) or trial.stage < 1:
            raise ValueError("this trial is not of these stages: tell what stages.ask() returned")
        self._chain.tell(trial.stage - 1, trial.trial, outcome)

    def prior(self, stage: int) -> Space:
        """The prior of a stage, counted from 1: public, a function of what the stages before it have released."""
        with self._chain.looking():
            return self.declaration.prior(self._chain.earlier(self._place(stage)))

    @property
    def released(self) -> tuple[Any, ...]:
        """What the earlier stages have released so far, in order: public, and covered by the guarantee."""
        with self._chain.looking():
            return tuple(self._chain.published(self._chain.last))

    def curator(self, stage: int) -> Curator:
        """The trials of a stage, counted from 1, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return self._chain.curator(self._place(stage))

    def _place(self, stage: int) -> int:
        if _validate.integer(at_least=1, stage=stage) > len(self.declaration.parts):
            raise _validate.fail("stage", stage, f"there are {len(self.declaration.parts)}, counted from 1")
        return stage - 1

    def __repr__(self) -> str:
        return f"<stages: {', then '.join(map(str, self.declaration.parts))}>"
