"""What ``Study`` and ``Stages`` have in common: the public side of a search, over the chain of its parts."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from dphypo import _validate
from dphypo.accounting import Certificate, Composition
from dphypo.errors import refusals
from dphypo.executors.executor import FIVE_MINUTES, Crew, Every, Factory
from dphypo.search.chain import Chain
from dphypo.search.declaration import Declaration
from dphypo.search.release import Release
from dphypo.search.table import OnRun


class Search:
    """A declared search with a journal: :class:`dphypo.Study` or :class:`dphypo.Stages`, which ask and tell."""

    _chain: Chain
    _word: ClassVar[str]  # what refusals call it

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
            raise refusals.SecretValue(f"({self._word}.{name})", stages=self._word == "stages")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
