"""Runs on any executor of ``concurrent.futures``: pools of processes or threads, loky, MPI, and those of clusters.

An engine may start a task twice, on its own account, when a worker seems lost. A run must not be made twice, so each
start asks the study first, through a socket with a key of its own: the first may go on, every other is refused.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import secrets
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing.connection import Client, Listener
from typing import Any

from dphypo.errors import ExecutorError
from dphypo.executors.executor import Withdrawn
from dphypo.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome, attempt


@dataclass(frozen=True, repr=False)
class Ticket:
    """What a worker needs to ask whether it may make a run. The key is a secret."""

    address: tuple[str, int]
    key: bytes
    start: str


class Claims:
    """Grants each start of a run once, to whoever asks first; it ends with the process that runs the study.

    >>> claims = Claims()
    >>> ticket = claims.issue()
    >>> claim(ticket), claim(ticket)
    (True, False)
    >>> claims.close()
    """

    def __init__(self, host: str = "") -> None:
        self._key = secrets.token_bytes(32)
        self._listener = Listener((host or "127.0.0.1", 0), family="AF_INET", authkey=self._key, backlog=128)
        self._open: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._serve, name="dphypo claims", daemon=True).start()

    def issue(self) -> Ticket:
        """A ticket for one start of a run."""
        start = secrets.token_hex(16)
        with self._lock:
            self._open.add(start)
        address: Any = self._listener.address
        return Ticket(address, self._key, start)

    def withdraw(self, ticket: Ticket) -> None:
        """Refuse a start that has not asked yet."""
        with self._lock:
            self._open.discard(ticket.start)

    def _serve(self) -> None:
        while not self._closed:
            # A stranger without the key, or one that hangs up, must not end the service.
            with contextlib.suppress(Exception):
                asked = self._listener.accept()
                threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: Any) -> None:
        with contextlib.suppress(OSError, EOFError), asked:
            start = asked.recv_bytes(64).decode("ascii", "replace")
            with self._lock:
                granted = start in self._open
                self._open.discard(start)
            asked.send_bytes(b"go" if granted else b"no")

    def close(self) -> None:
        """Grant nothing more."""
        with self._lock:
            self._closed = True
            self._open.clear()
        with contextlib.suppress(OSError), socket.create_connection(self._listener.address, timeout=1):
            pass  # wakes the thread, which then ends
        self._listener.close()


def claim(ticket: Ticket) -> bool:
    """Whether this is the one start of the run. False too if the study is gone: nobody waits for the run then."""
    try:
        with Client(ticket.address, authkey=ticket.key) as study:
            study.send_bytes(ticket.start.encode())
            return study.recv_bytes(2) == b"go"
    except (OSError, EOFError):
        return False


def make_once(ticket: Ticket, mechanism: Mechanism, params: dict[str, Any], seed: int) -> Outcome | None:
    """Make a run if nobody else has begun it; None if somebody has."""
    if not claim(ticket):
        return None
    return replace(attempt(mechanism, params, seed), leaving=None)


class Futures:
    """Makes runs on an executor of ``concurrent.futures``, which stays open for its owner to close.

    Where one dead worker breaks the whole pool, as in ``ProcessPoolExecutor``, all runs under way are lost with it:
    :class:`dphypo.executors.Processes` loses one.

    Args:
        mechanism: what one run is. An executor of processes must be able to pickle it.
        pool: the executor.
        workers: how many runs to submit at a time.
        host: the address of this machine that workers on other machines can reach; this machine alone by default.
    """

    def __init__(
        self, mechanism: Mechanism, pool: concurrent.futures.Executor, *, workers: int = 1, host: str = ""
    ) -> None:
        self._mechanism, self._pool, self._count = mechanism, pool, workers
        self._claims = Claims(host)
        self._working: dict[Future[Outcome | None], tuple[Trial, Ticket]] = {}

    @property
    def idle(self) -> bool:
        return len(self._working) < self._count

    @property
    def busy(self) -> bool:
        return bool(self._working)

    def start(self, trial: Trial) -> None:
        ticket = self._claims.issue()
        try:
            future = self._pool.submit(make_once, ticket, self._mechanism, trial.params, trial.seed)
        except concurrent.futures.BrokenExecutor:
            raise ExecutorError from None
        self._working[future] = trial, ticket

    def wait(self) -> tuple[Trial, Outcome | Withdrawn | None]:
        """A run whose worker died is lost. One that the engine started twice was made at most once, and is lost too."""
        done = concurrent.futures.wait(self._working, return_when=concurrent.futures.FIRST_COMPLETED).done
        future = next(future for future in self._working if future in done)
        trial, ticket = self._working.pop(future)
        self._claims.withdraw(ticket)
        try:
            return trial, future.result()
        except concurrent.futures.CancelledError:
            return trial, Withdrawn()
        except concurrent.futures.BrokenExecutor:
            return trial, None

    def close(self) -> None:
        self._claims.close()
        for future in self._working:
            future.cancel()
        self._working.clear()
