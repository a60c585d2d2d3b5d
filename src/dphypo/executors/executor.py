"""Who executes the runs: this process, one run at a time, or other processes.

Given its λ, a run is independent of the others, so runs may be executed in parallel. A λ that is drawn while other runs
still train depends on less of the history, which the theorems allow. Runs are ranked by score and tie-breaking key,
never by when they end.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from dphypo import _validate
from dphypo.errors import ExecutorError, UnsupportedModelError
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.mechanism import attempt

BROKEN = (
    "a worker died and the executor accepts no more work: run the study again with a new executor; it resumes where it "
    "stopped"
)
NO_WORKERS = (
    "several worker processes in a row ended before they could start a run; what they printed says why. With the start "
    "method \"spawn\" they import the main module again: protect the code there with if __name__ == '__main__'"
)


MIXED_UP = (
    "the executor returned something other than the outcome of the run that it was given, such as the outcome of "
    "another run. Nothing was recorded. Use another executor; the search resumes where it stopped. An executor of your "
    "own calls dphypo.mechanisms.mechanism.attempt and returns the outcome with its run"
)


class Withdrawn:
    """Returned instead of an outcome if the cluster took the worker back before the run ended."""


@runtime_checkable
class Executor(Protocol):
    """Executes runs, each at most once."""

    @property
    def idle(self) -> bool:
        """Whether another run can be started."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""

    def start(self, trial: Trial) -> None:
        """Begin a run; only while ``idle``."""

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        """The next run that ended, with what :func:`dphypo.mechanisms.mechanism.attempt` returned; only while ``busy``.

        Instead of the outcome, None means that the run's process died or may have died, and the search decides whether
        to repeat the run. :class:`Withdrawn` means that the process did not die.
        """

    def close(self) -> None:
        """Stop all runs, and end every process that was started for them."""


Factory = Callable[..., Executor]
"""Called with (mechanism, workers=..., start_method=...): a class, a function, or an object with a cluster's client."""


class InProcess:
    """Executes each run when it is waited for. A run that kills the process ends the search, which can be resumed."""

    def __init__(self, mechanism: Mechanism, *, workers: int = 1, start_method: str = "") -> None:
        self._mechanism = mechanism
        self._trial: Trial | None = None

    @property
    def idle(self) -> bool:
        return self._trial is None

    @property
    def busy(self) -> bool:
        return self._trial is not None

    def start(self, trial: Trial) -> None:
        self._trial = trial

    def wait(self) -> tuple[Trial, Outcome | None]:
        trial, self._trial = self._trial, None
        assert trial is not None
        return trial, attempt(self._mechanism, trial.params, trial.seed)

    def close(self) -> None:
        self._trial = None


class Checked:
    """An executor whose results are checked: each must be the outcome of a run that was started here.

    An executor that mixed up two results would give a run the score and the model of another λ.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._started: dict[int, Trial] = {}

    @property
    def idle(self) -> bool:
        return self._executor.idle

    @property
    def busy(self) -> bool:
        return self._executor.busy

    def start(self, trial: Trial) -> None:
        self._started[trial.number] = trial
        self._executor.start(trial)

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        ended: object = self._executor.wait()
        pair = ended if isinstance(ended, tuple) and len(ended) == 2 else (None, None)
        trial = self._started.pop(pair[0].number, None) if isinstance(pair[0], Trial) else None
        if trial is not None:
            outcome = pair[1]
            if outcome is None or isinstance(outcome, Withdrawn):
                return trial, outcome
            if isinstance(outcome, Outcome) and outcome.started_with == (trial.params, trial.seed):
                return trial, replace(outcome, started_with=None)
        raise ExecutorError(MIXED_UP)

    def close(self) -> None:
        self._executor.close()


def attempt_elsewhere(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome | UnsupportedModelError:
    """Execute a run in a worker. An error that the search must see is returned, because clusters log what is raised."""
    try:
        return replace(attempt(mechanism, params, seed), leaving=None)
    except UnsupportedModelError as error:
        return UnsupportedModelError(*error.args)


Every = timedelta | int | None
"""How often a checkpoint is written: after this much time, or this many steps; None for never."""
FIVE_MINUTES = timedelta(minutes=5)


@dataclass(frozen=True)
class Execution:
    """How runs are executed: the arguments of ``run`` from which :meth:`open` creates an executor."""

    workers: int = 1
    start_method: str = "spawn"
    executor: str | Factory | concurrent.futures.Executor | None = (
        None  # None: this process, or processes of this library
    )
    devices: Sequence[str] | str | None = None
    checkpoint_every: Every = FIVE_MINUTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", _validate.integer(at_least=1, workers=self.workers))
        every, devices = self.checkpoint_every, self.devices
        number: Any = every.total_seconds() if isinstance(every, timedelta) else every
        if not isinstance(self.start_method, str):
            raise _validate.fail(
                "start_method", self.start_method, "give the name of a start method of multiprocessing, such as 'spawn'"
            )
        if number is not None and (isinstance(every, bool) or not isinstance(every, timedelta | int) or number <= 0):
            remedy = "give a datetime.timedelta, a number of steps, or None for no checkpoints"
            raise _validate.fail("checkpoint_every", every, remedy)
        if devices is not None and self.executor is not None:
            raise _validate.fail(
                "devices", devices, "executor= already says where runs are executed: omit one of the two"
            )

    @property
    def local(self) -> bool:
        """Whether this library's processes on this machine execute the runs: they see its files and its terminal."""
        return self.executor in (None, "in_process", "processes")

    @property
    def here(self) -> bool:
        """Whether runs are executed in this process, so that a run that dies ends it."""
        if self.executor is None:
            return self.workers == 1
        return self.executor == "in_process" or isinstance(self.executor, concurrent.futures.ThreadPoolExecutor)

    @property
    def breaks(self) -> bool:
        """Whether the death of one process may end runs of others, as in a pool of ``concurrent.futures``."""
        pool = isinstance(self.executor, concurrent.futures.Executor) and not self.here
        return self.workers > 1 and (pool or bool(getattr(self.executor, "breaks", False)))

    def open(self, mechanism: Mechanism) -> AbstractContextManager[Executor]:
        """An executor for the runs of a mechanism, which is closed when the block ends."""
        executor: object = self.executor
        if executor is None:
            executor = InProcess if self.workers == 1 else "processes"
        if isinstance(executor, concurrent.futures.Executor):
            if type(executor).__module__.startswith("distributed."):
                remedy = "give dphypo.executors.Dask(client): Dask may start a run twice"
                raise _validate.fail("executor", executor, remedy)
            from dphypo.executors.futures import Pool

            executor = Pool(executor, host="")
        factory: Any = _named(executor) if isinstance(executor, str) else executor
        given: dict[str, Any] = {"workers": self.workers, "start_method": self.start_method}
        try:
            inspect.signature(factory).bind(mechanism, **given)
        except (TypeError, ValueError):  # it cannot be called so, or at all
            known = '"in_process", "processes", "dask", "ray"'
            made = "Dask(client), Ray(...) or Submitit(executor) of dphypo.executors"
            remedy = f"give {known}; {made}; or an executor of concurrent.futures"
            raise _validate.fail("executor", executor, remedy) from None
        opened: object = factory(mechanism, **given)
        if not isinstance(opened, Executor):
            raise _validate.fail("executor", executor, "it must return an Executor when it is called with a mechanism")
        return contextlib.closing(Checked(opened))


def _named(name: str) -> Factory | None:
    """The executor with a given name."""
    if name == "processes":
        from dphypo.executors.processes import Processes

        return Processes
    if name == "dask":
        from dphypo.executors.dask import on_current_client

        return on_current_client
    if name == "ray":
        from dphypo.executors.ray import Ray

        return Ray()
    return InProcess if name == "in_process" else None


class Lost(StrEnum):
    """What becomes of a run whose process died.

    It cannot be seen from outside whether the data caused the death. Repeating such a run selects for runs that
    survive, unless all its randomness comes from its seed: then it ends as before. Counting it as failed is covered by
    the guarantee if runs die independently; an outage that ends many of them would change the law of T
    (docs/theory/search.md, "Lost runs").

    Four things do not count as deaths of a run: an interrupt or SIGTERM; a cluster that takes a worker back; the loss
    of the machine with all its processes, which shows by another boot identifier; and a death after the run has
    written a checkpoint since it was last started. The run is then repeated with its seed, or resumed, whatever is
    declared here.
    """

    AGAIN = "again"
    """It is repeated with the same seed, and fails after three deaths without progress. For mechanisms whose randomness
    comes from the seed alone."""

    FAILED = "failed"
    """It counts as failed at once."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default AGAIN if the mechanism states that it is ``seeded``, else FAILED."""
        if given is None:
            return cls.AGAIN if mechanism.seeded is True else cls.FAILED
        return _validate.choice(cls, lost=given)

    def check(self, execution: Execution) -> None:
        """Refuse executors whose runs die together if a death is an outcome: deaths must be independent."""
        if self is Lost.FAILED and execution.breaks:
            remedy = (
                "when one process of such a pool dies, the other runs end too, so failures are not independent. Use "
                'executor="processes" or workers=1; or seeded=True or lost="again" if all randomness is from the seed'
            )
            raise _validate.fail("executor", execution.executor, remedy)

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was repeated with its seed, and counts as failed after three deaths without "
                "progress; that is covered if all randomness of a run comes from its seed, or if no death depends on "
                "the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; a "
            "run that was stopped in order, lost with its machine, or killed after it had written a checkpoint was "
            "repeated with its seed, which is covered if none of this depends on the data"
        )
