"""One run on several processes: each differentiates whole pieces of every batch, and their sums are added as integers.

The **leader** is process 0. It decides which runs to execute, reports the steps and keeps the checkpoints; the others
serve its runs. All draw the same batches, dither and noise from the seed of the run: words are keyed by the number of a
record or a parameter in the whole, never by a process. A step is then

    each process:  T_r = Σ round(clipped sum of a piece)    over the pieces p with p mod size = r, as int64
    all of them:   T = Σ_r T_r,  rounded with dither, plus noise, into the optimiser.

If records are in shards, p is the number of the piece's shard, and a process reads no record of another's shards.
Integers have the same sum in any order, so a run ends in the same bits on any number of processes. The process that
handles a record depends on the other records of the batch, so all processes must compute the same bits; they compare
these on a made-up piece before the first step. If a process is lost, the step ends for all before its release.

The network carries sums before noise, initial weights and the seed: **it is trusted**. Processes of one machine use its
loopback interface.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from dphypo.errors import ProcessLost, UnsupportedModelError
from dphypo.executors.executor import NO_WORKERS

T = TypeVar("T")
START_METHOD = "spawn"
"""How processes of this machine are started."""
_STEP, _TASK = timedelta(minutes=30), timedelta(days=30)  # how long to wait for a process in a run; for the next run
_END_S = 10  # how long a process may take to end by itself
_LOOPBACK = dict.fromkeys(
    ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo0" if os.uname().sysname == "Darwin" else "lo"
)
_LOST = (
    "A process of this run was lost, or could not be reached ({what}). The step is discarded. The run resumes from its "
    "last checkpoint, also on another number of processes"
)
_DIFFER = (
    "the processes of this run differ in {what}. Which of them processes a record depends on the other records, so "
    "no noise covers a difference. {remedy}"
)
_ARITHMETIC = "Use machines with the same processors or GPUs and the same versions of PyTorch, or one machine"


_STARTED: list[Team] = []  # the team of this process, if it has started the others itself


class RunFailedError(Exception):
    """A run failed on all processes before its first step; its outcome is the leader's."""


class Team:
    """The processes that execute a run together; this one has the number ``rank``, from 0 to ``size`` − 1."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        both = torch.cuda.is_available() and dist.is_nccl_available()
        self._sums: Any = dist.new_group(backend="cpu:gloo,cuda:nccl" if both else "gloo", timeout=_STEP)
        self._tasks: Any = dist.new_group(backend="gloo", timeout=_TASK)
        self.broken = False

    def mine(self, pieces: int, shards: int | None = None) -> list[int]:
        """Which of a step's pieces this process differentiates: those of its shards, if records are in shards."""
        turns = pieces if shards is None else shards
        return [piece for piece in range(pieces) if piece % turns % self.size == self.rank]

    def add(self, totals: torch.Tensor) -> None:
        """Add up the integers of all processes, in place."""
        with self._together():
            dist.all_reduce(totals, group=self._sums)

    def leaders(self, value: T | None = None) -> T:
        """The leader's value, on every process."""
        held = [value]
        with self._together():
            dist.broadcast_object_list(held, 0, group=self._tasks)
        return held[0]  # type: ignore[return-value]

    def gathered(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks."""
        found: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(found, value, group=self._tasks)
        return found

    def agree(self, digest: bytes, what: str, remedy: str = _ARITHMETIC) -> None:
        """Raise an error unless this digest is the same on every process."""
        if len(set(self.gathered(digest))) > 1:
            self.broken = True
            raise UnsupportedModelError(_DIFFER.format(what=what, remedy=remedy))

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """A block in which processes wait for each other."""
        if self.broken:
            raise ProcessLost(_LOST.format(what="an earlier run ended in the middle of a step"))
        try:
            yield
        except (RuntimeError, OSError, EOFError) as error:  # what torch.distributed raises if another process is gone
            self.broken = True
            raise ProcessLost(_LOST.format(what=type(error).__name__)) from None

    def made(self, make: Callable[[], T]) -> T:
        """The result of ``make`` on every process; if it fails on one, all raise, and the team remains usable."""
        error: Exception | None = None
        try:
            value = make()
        except UnsupportedModelError:
            raise
        except Exception as caught:
            error = caught
        if any(self.gathered(error is not None)):
            raise RunFailedError("the run cannot be executed with these values") from error
        return value

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """A block that all processes enter and leave together; an error in one of them breaks the team."""
        try:
            yield
        except RunFailedError:  # on all of them
            raise
        except BaseException:
            self.broken = True
            raise


def launched() -> bool:
    """Whether ``torchrun``, or another launcher, has started this process as one of several."""
    if multiprocessing.parent_process() is not None:  # a worker: its parent's variables do not apply to it
        return False
    named = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)
    return named or (dist.is_available() and dist.is_initialized() and not _STARTED)


def world() -> Team | None:
    """The processes of the launcher; None if there is one process. An existing process group is joined."""
    return _joined() if launched() else None


@functools.cache
def _joined() -> Team | None:
    if not dist.is_initialized():
        if int(os.environ["WORLD_SIZE"]) == 1:
            return None
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=_STEP)))  # type: ignore[attr-defined]
        # torchrun keeps its store when it starts processes again: the addresses of those that died are still in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"dphypo {attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_STEP)
        atexit.register(_leave)
    team = Team(dist.get_rank(), dist.get_world_size()) if dist.get_world_size() > 1 else None
    if team is not None and team.rank == 0:
        atexit.register(_dismiss, team)
    return team


def local_rank() -> int:
    """The number of this process among those of the launcher on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextlib.contextmanager
def started(serve: Callable[..., None], each: Sequence[tuple[Any, ...]]) -> Iterator[Team]:
    """A block with a team of this process, the leader, and new processes that call ``serve(team, *arguments)``.

    ``each`` holds the arguments of each new process. They end with the block, and with this process.
    """
    if dist.is_initialized():
        raise UnsupportedModelError("this process has a process group already: leave devices out, and the run uses it")
    context: Any = multiprocessing.get_context(START_METHOD)
    size = 1 + len(each)
    served: list[Any] = []
    with tempfile.TemporaryDirectory() as folder, _environment(_LOOPBACK):
        path = f"{folder}/store"
        store = dist.FileStore(path, size)  # type: ignore[attr-defined] # it listens to no network
        try:
            for rank, arguments in enumerate(each, 1):
                given = (serve, path, rank, size, arguments)
                served.append(context.Process(target=_serve, args=given, name="dphypo", daemon=True))
                _start(served[-1])
            for rank, process in enumerate(served, 1):
                _await(store, str(rank), process)
            dist.init_process_group("gloo", store=store, rank=0, world_size=size, timeout=_STEP)
            _STARTED.append(team := Team(0, size))
            yield team
            _dismiss(team)
            for process in served:
                process.join(_END_S)
        finally:
            _STARTED.clear()
            for process in served:
                if process.pid is not None:
                    process.kill()
                    process.join()
            _leave()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def _start(process: Any) -> None:
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UnsupportedModelError(
            f"the mechanism cannot be sent to another process ({error}): define the model, the loss and the score at "
            "the top of a module, leave devices out, or start the program with torchrun"
        ) from None


def _await(store: Any, key: str, process: Any) -> None:
    """Wait until a process has started; raise an error if it ends before."""
    while process.is_alive():
        with contextlib.suppress(RuntimeError):  # not yet
            return store.wait([key], timedelta(seconds=1))  # type: ignore[no-any-return]
    raise UnsupportedModelError(NO_WORKERS)


def _serve(serve: Callable[..., None], path: str, rank: int, size: int, arguments: tuple[Any, ...]) -> None:
    """The main function of a new process, which serves the runs of its leader, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the leader
    threading.Thread(target=_end_with_leader, daemon=True).start()
    store = dist.FileStore(path, size)  # type: ignore[attr-defined]
    store.set(str(rank), "ready")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_STEP)
    with contextlib.suppress(ProcessLost, Exception):  # a traceback would reveal a run whose outcome is secret
        serve(Team(rank, size), *arguments)
    _leave()


def _end_with_leader() -> None:
    leader = multiprocessing.parent_process()
    assert leader is not None
    leader.join()
    os._exit(1)


def _dismiss(team: Team) -> None:
    """Let the other processes end."""
    if not team.broken:
        with contextlib.suppress(ProcessLost):
            team.leaders(None)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
