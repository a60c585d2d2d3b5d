"""Framework 1 of the paper, DP-HyPO 𝒜(D, π⁽⁰⁾, 𝒯, C, c), run durably.

| the paper | here |
|---|---|
| Initialize π⁽⁰⁾ | the prior of ``declaration.space`` |
| Initialize the result set A = {} | a new journal |
| Draw T ∼ 𝒯 | ``part.record``: T is drawn and committed before anything else |
| for j = 0 to T − 1 | until ``part.next`` gives no more runs |
| (x, q) ∼ Q(D, π⁽ʲ⁾) | ``part.next`` draws λ ∼ π⁽ʲ⁾ and commits it; a worker runs M_λ on D |
| A = A ∪ {(x, q)} | ``part.finish`` commits the outcome; of the models, the best one is kept |
| Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C | ``policy.py``: the sampler's density, then its projection |
| Output (x, q) from A with the highest q | ``publish``: the best run, and nothing else |

The paper's loop makes one run after the other. Runs may be made side by side too: a λ that is drawn while other runs
are under way uses less of A, which the theorems allow. What counts is score and key, never which run ended first.

A survey is made by the same loop: T is declared, an optimiser takes the place of the band, and all of A is published.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dphypo import _validate
from dphypo.errors import Stopped, refusals
from dphypo.executors import Executor, Withdrawn
from dphypo.executors.executor import Crew
from dphypo.executors.groups import Groups
from dphypo.executors.processes import Processes
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.live import CheckpointFile, Followed, LiveSteps
from dphypo.search.table import OnRun

if TYPE_CHECKING:
    from dphypo.search.part import GroupSizes
    from dphypo.search.under_way import PartUnderWay


def dp_hypo(
    part: PartUnderWay, crew: Crew, publish: Callable[[], None], *, progress: bool, on_run: OnRun | None = None
) -> None:
    """Make the runs of a part, or those that are left, and publish.

    Nothing is published before the last run has ended. With ``progress`` people see on a terminal that runs are made.
    """
    part.record()  # T is drawn and committed
    watch = part.watch(show=progress, ticking=crew.threads, on_run=on_run)
    with _made_by(crew, part, show=progress) as workers, watch as one_more:
        while True:
            part.check_hope()
            while workers.idle and (trial := part.next()) is not None:  # density, band, λ
                workers.start(trial)
            if not workers.busy:
                break  # T runs have ended
            trial, outcome = workers.wait()
            if outcome is None:
                part.lost(trial)
            elif isinstance(outcome, Withdrawn):
                part.withdrawn(trial)
            else:
                part.finish(trial, outcome)
                one_more(trial, outcome)
    publish()


@contextlib.contextmanager
def _made_by(crew: Crew, part: PartUnderWay, *, show: bool) -> Iterator[Executor]:
    """A block in which a crew makes the runs, or a mechanism that makes many at once; ``show`` shows published runs."""
    mechanism, decider = part.mechanism, part.decider
    part.lost_runs.check(crew)
    if part.last_run and crew.devices is not None:
        crew = replace(crew, workers=1)
    groups = None
    if crew.executor is None and isinstance(mechanism, capabilities.ManyAtOnce):
        same = mechanism.same_alone and part.lost_runs is Lost.AGAIN  # in a study a run is the same among others
        groups = decider.groups(crew.workers) if same or decider.published else None
    each = on_each_device(crew, mechanism, one=part.last_run)
    with part.making(groups, here=len(each) == 1 and (crew.here or groups is not None)):
        if decider.published and crew.local and len(each) == 1:
            each = [Followed(each[0], _follower(crew, part, show=show))]
        with _hired(crew, each, groups, alone=not decider.published) as workers:
            yield workers


def on_each_device(crew: Crew, mechanism: Mechanism, *, one: bool) -> list[Mechanism]:
    """The same training on each of the crew's devices; on the first of them if there is ``one`` run."""
    if crew.devices is None or not isinstance(mechanism, capabilities.OnDevices):
        return [mechanism]
    return [mechanism.at(device=name) for name in (crew.devices[:1] if one else crew.devices)]


def _follower(crew: Crew, part: PartUnderWay, *, show: bool) -> LiveSteps:
    """Follows published runs that one device of this machine makes; a last run keeps checkpoints."""
    opening, every = part.opening, crew.checkpoint_every
    file = None
    if part.last_run and opening.checkpoint is not None and every is not None:
        file = CheckpointFile(opening.checkpoint, every)
    return LiveSteps("last run" if part.last_run else "survey", show, show and opening.timed, file, opening.live)


def _hired(
    crew: Crew, each: Sequence[Mechanism], groups: GroupSizes | None, *, alone: bool
) -> AbstractContextManager[Executor]:
    """An executor for the mechanism, which is given once for each device; ``alone`` makes lost runs again alone."""
    if groups is not None:
        return contextlib.closing(Groups(each, groups.of, alone=alone, start_method=crew.start_method))
    if len(each) == 1:
        return crew.hire(each[0])
    workers = Processes(each[0], workers=crew.workers, start_method=crew.start_method, each=each)
    return contextlib.closing(workers)


class Turn:
    """A lock: while one thread makes the runs, others are refused. ``stages`` selects the wording of the refusal."""

    def __init__(self, *, stages: bool = False) -> None:
        self._lock = threading.RLock()
        self._runner: threading.Thread | None = None
        self._stages = stages

    @contextlib.contextmanager
    def short(self) -> Iterator[None]:
        """A step that no other thread may interrupt."""
        with self._lock:
            if self._runner not in (None, threading.current_thread()):
                raise refusals.OtherThread(stages=self._stages)
            yield

    @contextlib.contextmanager
    def look(self) -> Iterator[None]:
        """A step that only reads: it waits for the others' steps and is never refused."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def long(self) -> Iterator[None]:
        """Making all the runs: until the block ends, no other thread may take a step."""
        with self._lock:
            if self._runner is not None:
                raise refusals.OtherThread(stages=self._stages)
            self._runner = threading.current_thread()
        try:
            yield
        finally:
            self._runner = None


_ENDS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class Terminated(Stopped):
    """The process was told to end while runs were made."""

    def __init__(self, number: int, raised: BaseException | None) -> None:
        super().__init__()
        self.number = number
        self.raised = raised


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """A block that a terminating signal ends as an interrupt would; then the process ends.

    The handler that was there before is asked first: it may decide to go on, and what it raises is raised when the
    block has been left, so that no run takes it for its own. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    before = {number: signal.getsignal(number) for number in _ENDS}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}

    def stop(number: int, frame: Any) -> None:
        handler = before[number]
        if os.getpid() != owner:  # a process that a run has forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if callable(handler):
            try:
                handler(number, frame)
            except BaseException as raised:
                raise Terminated(number, raised) from None
            return
        raise Terminated(number, None)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except Terminated as ended:
        _restore(before, stop)
        if ended.raised is not None:
            raise ended.raised from None
        os.kill(owner, ended.number)  # as if nobody had caught it
        raise
    finally:
        _restore(before, stop)


def _restore(before: dict[Any, Any], ours: Any) -> None:
    for number, handler in before.items():
        if signal.getsignal(number) is ours:
            signal.signal(number, handler)


class Lost(StrEnum):
    """What becomes of a run whose process died.

    Whether the data killed a process cannot be seen from outside. Retrying such a run selects for runs that survive,
    unless all randomness of the run comes from its seed: then it ends as before. Counting it as failed is covered if
    runs die independently; an outage that takes many of them would change the law of T (docs/theory.md, "Facts about
    the search").

    An interrupt, SIGTERM, a cluster that takes a worker back, and a machine that goes away with all its processes do
    not count as deaths of a run: the run is made again with its seed, whatever is declared here.
    """

    AGAIN = "again"
    """It is made again with the same seed, at most twice: for mechanisms whose randomness comes from the seed alone."""

    FAILED = "failed"
    """It counts as failed at once."""

    @classmethod
    def read(cls, given: Lost | str | None, mechanism: Mechanism) -> Lost:
        """What the user gave; by default what fits the mechanism, which may say of itself that it is ``seeded``."""
        if given is None:
            return cls.AGAIN if capabilities.is_seeded(mechanism) else cls.FAILED
        if not isinstance(given, str) or given not in list(cls):
            raise _validate.fail("lost", given, 'give "again" or "failed", or None for what fits the mechanism')
        return cls(given)

    def check(self, crew: Crew) -> None:
        """Refuse executors whose runs die together if a death is an outcome: deaths must be independent."""
        if self is Lost.FAILED and crew.breaks:
            raise _validate.fail(
                "executor",
                crew.executor,
                "one process that dies breaks such a pool and takes the other runs with it, so that their failures are "
                'not independent. Use executor="processes", or workers=1; or, if all randomness of a run comes from '
                'its seed, declare the mechanism with seeded=True, or lost="again"',
            )

    @property
    def condition(self) -> str:
        """What the guarantee assumes, for the certificate."""
        if self is Lost.AGAIN:
            return (
                "a run whose process died was made again with its seed, at most twice; that is covered if all "
                "randomness of a run comes from its seed, or if no death depends on the data"
            )
        return (
            "a run whose process died counts as failed, which is covered if runs die independently of one another; one "
            "that was stopped in order, or whose search went on on another machine, at most twice, was made again with "
            "its seed, which is covered if neither depends on the data"
        )


@contextlib.contextmanager
def interruptible(journal: str | None) -> Iterator[None]:
    """Let an interrupt from the keyboard end in two lines, which say where the journal is, instead of a traceback."""
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted:
        return
    where = "its journal is in memory" if journal is None else f"everything committed is in {journal}"
    again = "call run() again in this process" if journal is None else "run the same program, or call run(), again"
    said = f"The search was interrupted: nothing is released, and {where}.\nTo go on, {again}."
    before = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and error.args == (said,):
            print(said, file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = say
    # Raised outside the handler: where the run was is not printed. Not a subclass: Python ends as interrupted for this.
    raise KeyboardInterrupt(said)
