"""Framework 1 of the paper, run durably: draw T, make T runs inside the band, release the best and nothing else."""

from __future__ import annotations

import concurrent.futures
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Guarantee, PolicyClass
from dphypo.band import Band, BandLike, Greedy, Rule
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors import Crew, Factory
from dphypo.journal import Journal, Ledger, Store, Trial, make_reservation, open_store
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism
from dphypo.samplers import Sampler
from dphypo.search import progress as _progress
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration
from dphypo.search.framework1 import dp_hypo
from dphypo.search.lost import Lost
from dphypo.search.release import Release
from dphypo.search.runs import Search
from dphypo.space import Space

log = logging.getLogger("dphypo")


class Study:
    """A private hyperparameter search: one journal, one T, one release.

    **Guarantee.** The release is (ε, δ)-DP with ε = ``study.guarantee.epsilon(delta)``, for any sampler, provided that
    the mechanism's event bounds one run for every λ, that given its λ a run depends on no other run, and that nothing
    but the release leaves the curator's side: not the journal, not how long the search took.

    Args:
        space: the hyperparameters and their prior.
        mechanism: what one run is, declared with ``@dphypo.mechanism``.
        runs: the law of T, the number of runs.
        band: how far the sampling density may move from the prior, a ``Band`` or its two numbers (c, C); (1, 1) is
            private random search (Algorithm 1).
        sampler: the search rule; it only matters inside a band, where a Gaussian process is the default.
        rule: how the rule's weights are projected into the band.
        delta: the δ of the certificate.
        journal: a file for SQLite, a ``postgresql://`` URL, an open store, or None to keep it in memory.
        name: tells studies in one database apart.
        maximize: whether larger scores are better.
        candidates: how many fresh candidates are drawn for every run.
        grid: into how many cells to cut continuous parameters, ``{"lr": 32}``, to search over one fixed grid instead.
        entropy: where randomness comes from; with ``Seeded`` there is no guarantee, and the certificate says so.
        lost: what becomes of a run whose process died: "again" makes it again with its seed, at most twice, which is
            right if all its randomness comes from the seed; "failed" counts it as failed. By default what the mechanism
            says of itself (``seeded``). An orderly stop and the loss of the whole machine do not count as deaths.
        data_name: a public name of the data set. A journal that was begun under another name is refused, so that no
            release of other data is returned; the name is in the certificate.
        policy: what the search rule may look at: ``"history"`` or ``"anything"``, which costs more. By default
            ``"history"`` if the rule is one of ours or has ``history_only = True``.
        first_from_prior: how many of the first runs are drawn from the prior, without asking the rule: the more, the
            less a band costs. By default what a rule of ours leaves to the prior (``GaussianProcess.start``), else 1.
        lag: how many of the latest runs a history-only rule does not see, so that lag + 1 runs can be made at a time.
            It stays the same when a study is resumed. By default one less than the ``workers`` of the first ``run``.
        ledger: a :class:`dphypo.Ledger`, or its file: the study reserves there what it costs, once, before its first
            run, and is refused if the total would be exceeded. One that is killed has spent.

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
        rule: Rule | str = Greedy(),  # noqa: B008
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
    ) -> None:
        check_entropy(entropy)
        declaration = Declaration.of(
            *(space, mechanism, runs, band, sampler, rule),
            delta=delta,
            maximize=maximize,
            candidates=candidates,
            grid=grid,
            private=entropy.private,
            lost=lost,
            data_name=data_name,
            policy=policy,
            first_from_prior=first_from_prior,
        )
        self._begin(declaration, journal, name, entropy, lag, ledger)

    @classmethod
    def of(
        cls,
        declaration: Declaration,
        *,
        journal: str | Path | Store | None = "study.db",
        name: str = "study",
        entropy: Entropy = SYSTEM,
        lag: int | None = None,
        ledger: Ledger | str | Path | None = None,
    ) -> Study:
        """A study that was declared before: many studies may share a declaration, which is accounted for once."""
        if entropy.private != declaration.private:
            raise _validate.fail("entropy", entropy, "a study is declared private, or seeded, as its entropy is")
        study = cls.__new__(cls)
        study._begin(declaration, journal, name, entropy, lag, ledger)
        return study

    def _begin(
        self,
        declaration: Declaration,
        journal: str | Path | Store | None,
        name: str,
        entropy: Entropy,
        lag: int | None,
        ledger: Ledger | str | Path | None,
    ) -> None:
        self.declaration = declaration
        reservation = make_reservation(
            ledger, declaration.guarantee, name, private=declaration.private, delta=declaration.delta
        )
        kept = Journal(open_store(journal), name, shared=isinstance(journal, Store), reservation=reservation)
        given = None if lag is None else _validate.integer(at_least=0, lag=lag)
        self._search = Search(declaration, kept, entropy, lost=declaration.lost, lag=given)

    @property
    def guarantee(self) -> Guarantee:
        """What the release reveals, known before anything runs."""
        return self.declaration.guarantee

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document. It depends on public values only: the same before the search and after."""
        return self.declaration.certificate

    def run(
        self,
        workers: int = 1,
        progress: bool = True,
        start_method: str = "spawn",
        *,
        executor: str | Factory | concurrent.futures.Executor | None = None,
        **options: object,
    ) -> Release:
        """Framework 1: make T runs and release the best. A study that was interrupted goes on where it was.

        Nothing is released before the last run: an interrupt leaves a study that can be resumed. A study that has been
        released gives the same release again.

        Args:
            workers: how many runs to make at a time; 1 makes them in this process. A worker that dies loses its run,
                which then counts as failed, or is made again (see ``lost``).
            progress: print the cost before (not if the release was made already), and show a bar on a terminal,
                erased at the end. How many runs it shows is secret, as is how long they take.
            start_method: how worker processes start (see ``multiprocessing``). With "spawn" the mechanism must be
                importable, from the top of a module; "fork" takes any function but not threads.
            executor: who makes the runs: the name of one of ``dphypo.executors``, or an executor of
                ``concurrent.futures``; by default this process, or ``workers`` processes of its own.
        """
        errors.refuse_options(options)
        _validate.flag(progress=progress)
        crew = Crew(workers, start_method, executor)
        self._search.side_by_side(crew.workers)
        with _progress.interruptible(self._search.address), self._search.running(here=crew.here):
            if self._search.record().released:
                _progress.say_read_again(self._search.address, show=progress)
                return self._published(again=True)
            if progress:
                print(_progress.cost(self.certificate, self.guarantee.runs), file=sys.stderr)
            log.info("the search starts, or goes on where it was")
            dp_hypo(self.declaration, self._search, crew, self.certificate, progress=progress)
            log.info("the release is made")
            return self._published()

    def _published(self, *, again: bool = False) -> Release:
        release = self._search.published(self.declaration.mechanism.saver)
        return replace(release, read_from=self._search.address or "memory") if again else release

    def ask(self) -> Trial | None:
        """The next run to make, with its ``params`` and ``seed``; None when there is none to give out.

        That there is none is **secret**, like T: use it to end the loop and for nothing else. A run that an earlier
        process was given and did not tell is given out again as it was.
        """
        return self._search.ask()

    def tell(self, trial: Trial, outcome: Any) -> None:
        """How a run ended: an ``Outcome``, a ``(model, score)`` pair, or ``Outcome.failed(reason)``.

        Anything else is a TypeError, and nothing is recorded: tell the trial again. A score that is a number but not
        finite is a failed run.
        """
        self._search.tell(trial, outcome, self.declaration.mechanism.saver)

    def release(self) -> Release:
        """The best of the T runs, ties broken by the keys drawn with them. Once, and only when all are told."""
        self._search.publish(self.certificate)
        log.info("the release is made")
        return self._published()

    def released(self) -> Release | None:
        """The release again if there is one: the same values, which cost nothing more. None if there is none yet."""
        return self._published(again=True) if self._search.record().released else None

    def shred(self) -> None:
        """Reduce the journal of a released study to its certificate: T, the runs and the model are destroyed.

        Save the release first. On SQLite nothing of them is left in the file; the disk itself, PostgreSQL's log and
        backups are outside its reach.
        """
        self._search.shred()

    def curator(self) -> Curator:
        """The trials, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return Curator(self._search)

    def close(self) -> None:
        """Let other processes use the journal. What ``ask`` gave out and was not told counts as lost."""
        self._search.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<study: {self.declaration.mechanism!r} with {self.guarantee.runs!r} in {self.guarantee.band!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in errors.SECRETS:
            raise errors.SecretValue(f"(study.{name})")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
