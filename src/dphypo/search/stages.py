"""A chain of searches: each release shapes the next prior by a declared public rule, and the guarantees compose.

A first search with cheap runs (few epochs, more noise, a subsample) releases its winner; that is public now, and the
prior of the next search may be any function of it. Each stage is a DP-HyPO search with its own guarantee, whatever
prior it is given, so the whole is their adaptive composition: dominating pairs, convolved.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Composition, Guarantee
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors import Crew, Factory
from dphypo.journal import Ledger, Store
from dphypo.mechanisms import Mechanism
from dphypo.search import progress as _progress
from dphypo.search.curator import Curator
from dphypo.search.part import Part, Released, Running
from dphypo.search.plan import Plan
from dphypo.search.plan_file import PlanFile, read_plan
from dphypo.search.prior_around import PriorAround as PriorAround
from dphypo.search.release import Release
from dphypo.search.stage import Stage as Stage
from dphypo.search.stage import StageTrial
from dphypo.search.table import Surveyed
from dphypo.search.turn import Turn
from dphypo.search.under_way import UnderWay
from dphypo.space import Space

log = logging.getLogger("dphypo")


class Stages:
    """A private search in stages: one journal, one budget, one model.

    **Guarantee.** All that is released together, the final release and the intermediate ones (``stages.released``), is
    (ε, δ)-DP with ε = ``stages.guarantee.epsilon(delta)``, under the conditions of :class:`dphypo.Study` for each
    stage. The rule between two stages is given the release of the earlier one and nothing else. A stage without a
    result (no run, or all failed) leaves the prior as it was.

    Args:
        space: the hyperparameters and their original prior. Every stage's event must hold for all of it.
        stages: two or more :class:`dphypo.Stage`, in order; the last one's winner is the release.
        delta: the δ of the certificate.
        journal: a file for SQLite, a ``postgresql://`` URL, an open store, or None to keep it in memory.
        name: tells searches in one database apart; stage k is the study "name, stage k" there.
        maximize: whether larger scores are better.
        entropy: where randomness comes from; with ``Seeded`` there is no guarantee, and the certificate says so.
        data_name: a public name of the data set, as for :class:`dphypo.Study`.
        ledger: as for :class:`dphypo.Study`: the cost of all stages together is reserved before the first run.

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
    ...     [Stage(training(20.0), dphypo.Geometric(mean=20), prior=PriorAround(spread=0.1)),
    ...      Stage(training(4.0), dphypo.Geometric(mean=5))],
    ...     delta=1e-6, journal=None)
    >>> round(search.guarantee.epsilon(1e-6), 1)
    1.6
    >>> release = search.run(progress=False)
    >>> release.params == {"lr": release.model["weight"]}, list(search.released[0].params)
    (True, ['lr'])
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
    ) -> None:
        check_entropy(entropy)
        parts = several(stages, "dphypo.Study")
        plan = Plan.of(space, parts, delta=delta, maximize=maximize, private=entropy.private, data_name=data_name)
        self._begin(plan, journal, name, entropy, ledger)

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        journal: str | Path | Store | None = "stages.db",
        name: str = "stages",
        entropy: Entropy = SYSTEM,
        ledger: Ledger | str | Path | None = None,
    ) -> Stages:
        """A search that was declared before: many searches may share a plan, which is accounted for once."""
        if entropy.private != plan.private:
            raise _validate.fail("entropy", entropy, "a plan is declared private, or seeded, as its entropy is")
        search = cls.__new__(cls)
        search._begin(plan, journal, name, entropy, ledger)
        return search

    @classmethod
    def from_plan(
        cls,
        plan: PlanFile | str | Path,
        space: Space,
        mechanism: Mechanism,
        *,
        journal: str | Path | Store | None = "stages.db",
        name: str = "stages",
        maximize: bool = True,
        entropy: Entropy = SYSTEM,
        data_name: str | None = None,
        ledger: Ledger | str | Path | None = None,
    ) -> Stages:
        """The search that a plan file states, with runs of this mechanism. One that would cost anything else is
        refused before it begins.

        Args:
            plan: a :class:`dphypo.search.PlanFile`, or the path of a file that ``dphypo plan --write`` wrote.
            space, journal, name, maximize, entropy, data_name, ledger: as for :class:`dphypo.Stages`.
            mechanism: the full run; it offers ``at(noise_multiplier=...)`` and ``at(fraction=...)``.
        """
        check_entropy(entropy)
        declared = read_plan(plan).declare(
            space, mechanism, maximize=maximize, private=entropy.private, data_name=data_name
        )
        return cls.of(declared, journal=journal, name=name, entropy=entropy, ledger=ledger)

    def _begin(
        self,
        plan: Plan,
        journal: str | Path | Store | None,
        name: str,
        entropy: Entropy,
        ledger: Ledger | str | Path | None,
    ) -> None:
        self.plan = plan
        self._under_way = UnderWay(plan, journal, name, entropy, ledger)
        self._last = self._under_way.last
        self._turn = Turn(stages=True)

    @property
    def guarantee(self) -> Guarantee | Composition:
        """The guarantee of all stages together, known before anything runs."""
        return self.plan.guarantee

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document. It depends on what was declared; the release's own adds what the earlier stages
        have released."""
        return self.plan.certificate

    def run(
        self,
        workers: int = 1,
        progress: bool = True,
        start_method: str = "spawn",
        *,
        executor: str | Factory | concurrent.futures.Executor | None = None,
        **options: object,
    ) -> Release:
        """Run the stages in order and release the winner of the last. What was interrupted goes on where it was.

        The arguments, and what is refused, are those of :meth:`dphypo.Study.run`. With ``progress`` the cost of all
        stages is printed before the first. That a later stage begins is said on a terminal only, as the bar is, and
        not to the logger: with times it would show how long the stage before it took, which is secret. When the last
        stage has released, the same release is returned, and all that is printed is where it was read.
        """
        errors.refuse_options(options)
        _validate.flag(progress=progress)
        crew = Crew(workers, start_method, executor)
        with _progress.interruptible(self._under_way.address), self._turn.long():
            try:
                first = self._under_way.first()
                if self._under_way.part(first).finished:
                    _progress.say_read_again(self._under_way.address, show=progress)
                    again = self._released(self._under_way.part(self._last))
                    return replace(again, read_from=self._under_way.address or "memory")
                if progress:
                    print(self._cost(), file=sys.stderr)
                log.info("the search starts, or goes on where it was")
                for number in range(first, self._last + 1):
                    self._announce(number, progress)
                    self._under_way.part(number).run(crew, progress=progress)
                log.info("the release is made")
                return self._released(self._under_way.part(self._last))
            finally:
                self.close()

    def ask(self) -> StageTrial | None:
        """The next run to make, of the stage that is under way; None when there is none to give out now.

        Make it with ``trial.mechanism(trial.params, seed=trial.seed)``, or as that mechanism would, and tell the
        outcome. A trial (:class:`dphypo.search.StageTrial`) has four fields:

        - ``trial.params``: the hyperparameters to train with, a dict;
        - ``trial.seed``: the seed to train with;
        - ``trial.mechanism``: what a run of this stage is;
        - ``trial.stage``: which stage it is a run of, counted from 1.

        Several may be asked for before the first is told: ask and tell from one thread, and make the runs anywhere.
        When every run of a stage is told, the next ``ask`` makes that stage's release and begins the next stage: None
        is the end only when nothing is left to be told. That there is nothing is **secret**, as in
        :meth:`dphypo.Study.ask`.

        >>> import dp_accounting as dp
        >>> import dphypo
        >>> @dphypo.mechanism(event=dp.GaussianDpEvent(9.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        ... def train(params, *, seed):
        ...     return {"width": params["width"]}, float(params["width"])  # a stand-in for training
        >>> stage = Stage(train, dphypo.Geometric(mean=4))
        >>> search = Stages(dphypo.Space({"width": [8, 16, 32]}), [stage, stage], delta=1e-6, journal=None)
        >>> while (trial := search.ask()) is not None:
        ...     search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        >>> release = search.release()
        >>> release.model == release.params
        True
        """
        with self._turn.short():
            number = self._under_way.first()
            while (trial := self._under_way.part(number).ask()) is None:
                if number == self._last or not self._under_way.part(number).complete:
                    return None
                self._under_way.part(number).publish()
                number += 1
            return StageTrial(number + 1, self._under_way.part(number).mechanism, trial)

    def tell(self, trial: StageTrial, outcome: Any) -> None:
        """How a run ended: an ``Outcome``, a ``(model, score)`` pair, or ``Outcome.failed(reason)``.

        Anything else is a TypeError, and nothing is recorded: tell the trial again.
        """
        given: object = trial
        with self._turn.short():
            if not isinstance(given, StageTrial) or not 1 <= trial.stage <= self._under_way.first() + 1:
                raise ValueError("this trial is not of these stages: tell what stages.ask() returned")
            self._under_way.part(trial.stage - 1).tell(trial.trial, outcome)

    def release(self) -> Release:
        """The best run of the last stage. Once, when all runs of all stages are told; ``run`` shows it again."""
        with self._turn.short():
            number = self._under_way.first()
            part = self._under_way.part(number)
            if not part.finished and number < self._last:
                raise errors.Unfinished(stages=True)
            part.publish()
            log.info("the release is made")
            return self._released(part)

    def _released(self, last: Running) -> Release:
        """The release of the last part, with the tables of the surveys before it."""
        release = last.release()
        surveys = [value for value in self._under_way.published(self._last) if isinstance(value, Surveyed)]
        return replace(release, surveys=(*surveys, *release.surveys))

    def prior(self, stage: int) -> Space:
        """The prior of a stage, counted from 1: public, a function of what the stages before it have released."""
        number = _validate.integer(at_least=1, stage=stage) - 1
        with self._looking():
            return self.plan.prior(self._under_way.earlier(number))

    @property
    def released(self) -> tuple[Released, ...]:
        """What the earlier stages have released so far, in order: public, and covered by the guarantee."""
        with self._looking():
            return tuple(self._under_way.published(self._last))

    def shred(self) -> None:
        """Reduce the journals of all stages to their certificates, once the last stage has released.

        Save the release first; its certificate holds what the earlier stages released.
        """
        with self._turn.short(), self._looking():
            if not self._under_way.finished():
                raise errors.NotReleased(stages=True)
            self._under_way.shred()
        self.close()

    def curator(self, stage: int) -> Curator:
        """The trials of a stage, counted from 1, for the curator alone. **Nothing it shows carries a guarantee.**"""
        number = _validate.integer(at_least=1, stage=stage) - 1
        with self._turn.look():
            self._under_way.earlier(number)
            return self._under_way.part(number).curator()

    def close(self) -> None:
        """Let other processes use the journal. What ``ask`` gave out and was not told counts as lost."""
        with self._turn.short():
            self._under_way.close()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stages: {', then '.join(map(str, self.plan.parts))}>"

    def __getattr__(self, name: str) -> Any:
        if name in errors.SECRETS:
            raise errors.SecretValue(f"(stages.{name})", stages=True)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _announce(self, number: int, progress: bool) -> None:
        if progress and sys.stderr.isatty():
            print(_progress.stage(number + 1, self._last + 1), file=sys.stderr)

    def _cost(self) -> str:
        return _progress.cost_in_stages(self.certificate, [part.compute() for part in self.plan.parts])

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """A look at the journal. It is closed afterwards unless it was in use: what ask gave out would be lost."""
        with self._turn.look():
            in_use = self._under_way.in_use
            try:
                yield
            finally:
                if not in_use:
                    self.close()


def several(stages: object, alone: str) -> Sequence[Any]:
    """A list of two or more parts. ``alone`` names what to use for a single one."""
    if isinstance(stages, Sequence) and all(isinstance(stage, Part) for stage in stages):
        single = len(stages) == 1 and isinstance(stages[0], Stage)
        if stages and not single:
            return stages
    raise _validate.fail(
        "stages", stages, f"give a list of two or more dphypo.Stage(mechanism, runs); for a single search use {alone}"
    )
