"""Runs on any executor of ``concurrent.futures``: pools of processes or threads, loky, MPI, and those of clusters.

A run is executed once, whatever a cluster does. A cluster may start a task twice when a worker seems lost. So each
start first asks the coordinator for permission, over a socket and with a secret key, and only the first start is
granted. The coordinator keeps in memory which runs have begun: a start that asks after the coordinator has ended, or
was replaced, is refused. A worker also reports that its run has ended, so that a result that the cluster throws away
is known to be lost.

The packages of clusters are optional, and imported when they are first used.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import secrets
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing import connection
from typing import Any

from dphypo.errors import ExecutorError, Stopped, UnsupportedModelError
from dphypo.executors.executor import BROKEN, MIXED_UP, NO_WORKERS, Withdrawn, attempt_elsewhere
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Declared, Mechanism, Outcome

_PATIENCE = 3  # how often in a row all workers may die before one of them begins a run
_MOST_WITHDRAWALS = 10  # of one run, after it has begun
_SILENCE_S = 60  # how long either side waits for the next message
_TRIES = 3  # attempts to connect; a request that was sent is never repeated
_BEGIN, _END = "begin", "end"


class Futures:
    """Executes runs by a function that returns a future of ``concurrent.futures`` for each.

    Args:
        submit: as of an executor. Futures that have not ended when the search stops are cancelled.
        host: an address of this machine that the workers can reach; by default workers must be on this machine.
        died: what a future raises if the worker of its run died.
        gone: what a future raises if the cluster itself is gone.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        submit: Callable[..., Future[Any]],
        *,
        workers: int = 1,
        host: str = "",
        died: tuple[type[BaseException], ...] = (concurrent.futures.BrokenExecutor,),
        gone: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._mechanism, self._submit, self._count = mechanism, submit, workers
        self._died, self._gone = died, gone
        self._early_deaths = 0
        self._withdrawals: Counter[int] = Counter()  # of runs that were begun
        self._working: dict[Future[Ended], tuple[Trial, Start]] = {}
        self._claims = Claims(host)

    @property
    def idle(self) -> bool:
        return len(self._working) < self._count

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def start(self, trial: Trial) -> None:
        task = self._claims.issue(trial.params, trial.seed)
        problem = MIXED_UP
        try:
            future: object = self._submit(make_once, task, self._mechanism)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            broken = isinstance(error, (concurrent.futures.BrokenExecutor, *self._gone))
            future, problem = None, BROKEN if broken else _failed(error)
        if not isinstance(future, Future):  # raised outside the handler: what a cluster says may hold its task
            raise ExecutorError(problem)
        self._working[future] = trial, task

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        """The next run that ended.

        A run whose worker died is lost, and so is one that the cluster started twice, or whose outcome it threw away.
        If the worker died before the run began, the run is withdrawn. One that was begun and withdrawn too often is
        lost: the run itself may be the reason.
        """
        done = concurrent.futures.wait(self._working, return_when=concurrent.futures.FIRST_COMPLETED).done
        future = next(future for future in self._working if future in done)
        trial, task = self._working.pop(future)
        begun, over = self._claims.withdraw(task)
        ended = self._read(future)
        if isinstance(ended, UnsupportedModelError):
            raise ended
        if over and isinstance(ended, Withdrawn):
            return trial, None
        if begun:
            self._early_deaths = 0
            self._withdrawals[trial.number] += isinstance(ended, Withdrawn)
            too_often = isinstance(ended, Withdrawn) and self._withdrawals[trial.number] > _MOST_WITHDRAWALS
            return trial, None if too_often else ended
        if ended is not None and not isinstance(ended, Withdrawn):
            raise ExecutorError(MIXED_UP)  # a run that was never begun
        self._early_deaths += ended is None
        if self._early_deaths >= _PATIENCE * self._count:
            host, port = self._claims.address
            unreachable = (
                f"several workers in a row could not reach the process that runs the study at {host}:{port}: give an "
                "address of this machine that they can reach (host=...), and let them through its firewall"
            )
            raise ExecutorError(unreachable if future.exception() is None else NO_WORKERS)
        return trial, Withdrawn()

    def _read(self, future: Future[Ended]) -> Ended:
        error = concurrent.futures.CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, concurrent.futures.CancelledError):
            return Withdrawn()
        if isinstance(error, self._died):
            return None
        if error is not None:  # it is not chained: what a cluster says may hold its task
            raise ExecutorError(BROKEN if isinstance(error, self._gone) else _failed(error))
        return future.result()

    def close(self) -> None:
        self._claims.close()
        for future in self._working:
            with contextlib.suppress(Exception):  # the others are to be cancelled, too
                future.cancel()
        self._working.clear()


def _failed(error: BaseException) -> str:
    """What an executor did wrong. Its own message may quote λ or the seed."""
    return (
        f"the executor raised {type(error).__name__}. Nothing was recorded, and the search resumes where it stopped. "
        "If the mechanism cannot be pickled, define it at the top of a module; otherwise read its logs, "
        "or use another one"
    )


@dataclass(frozen=True)
class Pool:
    """An executor of ``concurrent.futures`` with workers on other machines: ``run(executor=Pool(pool, host=...))``.

    Args:
        pool: the executor, for example of ``mpi4py``, Parsl or executorlib. It is not closed.
        host: an address of this machine that the workers can reach.

    >>> with concurrent.futures.ThreadPoolExecutor(1) as threads:
    ...     Pool(threads, host="127.0.0.1").breaks
    True
    """

    pool: concurrent.futures.Executor
    host: str

    breaks = True  # the death of one worker breaks most such pools

    def __call__(self, mechanism: Mechanism, /, *, workers: int) -> Futures:
        return Futures(mechanism, self.pool.submit, workers=workers, host=self.host)


def package(module: str, extra: str) -> Any:
    """Import the package of a cluster, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    raise ModuleNotFoundError(f"this executor needs the package {module}: pip install 'dphypo[{extra}]'", name=module)


def sendable(mechanism: Mechanism) -> Mechanism:
    """The mechanism in a form that can be sent: one that the script defines is sent by value, not by name."""
    if isinstance(mechanism, Declared) and mechanism.__module__ == "__main__":
        return replace(mechanism)  # a copy cannot be found under its name, so it is pickled by value
    return mechanism


@dataclass(frozen=True, repr=False)
class Start:
    """One start of a run, as it is given to a cluster. Its ``repr`` shows nothing, because clusters log arguments."""

    address: tuple[str, int]  # where to ask for permission
    key: bytes  # secret: authenticates both sides
    start: str
    params: dict[str, Any]
    seed: int


class Claims:
    """Grants each start of a run once, to the first that asks. It ends with the coordinator."""

    def __init__(self, host: str = "") -> None:
        self._key = secrets.token_bytes(32)
        self._listener = socket.create_server((host or "127.0.0.1", 0), backlog=1024)
        self._open: set[str] = set()  # starts that nobody has asked for
        self._over: set[str] = set()  # starts whose runs have ended
        self._lock = threading.Lock()
        self._closed = False
        self.address: tuple[str, int] = self._listener.getsockname()  # where workers ask
        threading.Thread(target=self._serve, name="dphypo claims", daemon=True).start()

    def issue(self, params: dict[str, Any], seed: int) -> Start:
        """Create a start of a run, which is granted once."""
        start = secrets.token_hex(16)
        with self._lock:
            self._open.add(start)
        return Start(self.address, self._key, start, params, seed)

    def withdraw(self, task: Start) -> tuple[bool, bool]:
        """Refuse a start from now on; whether its run was begun, and whether it has ended."""
        with self._lock:
            over = task.start in self._over
            self._over.discard(task.start)
        return not self._take(task.start), over

    def _take(self, start: str) -> bool:
        with self._lock:
            found = start in self._open
            self._open.discard(start)
            return found

    def _serve(self) -> None:
        while not self._closed:
            with contextlib.suppress(Exception):  # a client that disconnects must not end the service
                asked = connection.Connection(self._listener.accept()[0].detach())
                threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: Any) -> None:
        """Answer one request. A client without the key, or one that sends nothing, does not delay others."""
        with contextlib.suppress(Exception), asked:
            _limit(asked)
            connection.deliver_challenge(asked, self._key)
            connection.answer_challenge(asked, self._key)
            word, _, start = asked.recv_bytes(64).decode("ascii", "replace").partition(" ")
            if word == _END:
                with self._lock:
                    self._over.add(start)
            asked.send_bytes(b"go" if word == _BEGIN and self._take(start) else b"no")

    def close(self) -> None:
        """Grant nothing more."""
        with self._lock:
            self._closed = True
            self._open.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # also for forked children, which have it open too
        self._listener.close()


def claim(task: Start) -> bool:
    """Whether this start of the run is the first; False also if the coordinator is gone."""
    return _ask(task, _BEGIN)


def _ask(task: Start, word: str) -> bool:
    asked = False
    for tried in range(_TRIES):
        try:
            with connection.Client(task.address) as study:
                _limit(study)
                connection.answer_challenge(study, task.key)
                connection.deliver_challenge(study, task.key)
                asked = True
                study.send_bytes(f"{word} {task.start}".encode())
                return bool(study.recv_bytes(2) == b"go")
        except ConnectionRefusedError:
            return False
        except (OSError, EOFError):  # the network
            if asked:  # permission may have been granted, and must not be asked for again
                return False
            time.sleep(tried)
    return False


def _limit(end: Any) -> None:
    """Set a timeout, because the machine of the other side may have gone down."""
    with socket.socket(fileno=socket.dup(end.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are short: combining two takes 40 ms
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _SILENCE_S, 0))


Ended = Outcome | Withdrawn | UnsupportedModelError | None


def make_once(task: Start, mechanism: Mechanism) -> Ended:
    """Execute a run unless it has begun elsewhere; then return None. If a signal stops the worker, withdraw the run."""
    try:
        if not claim(task):
            return None
        ended = attempt_elsewhere(mechanism, task.params, task.seed)
        _ask(task, _END)
        return ended
    except Stopped:
        return Withdrawn()
