"""A run is made once, whatever a cluster does: each start asks the study first, and the first alone may go on.

A cluster may start a task twice, on its own account, when a worker seems lost. So a start asks through a socket of the
study with a key of its own. The journal has the run already; that it was begun is known to the process that has the
journal, and ends with it: a start that asks after that process is gone, or was replaced, is refused.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from dphypo.errors import Stopped
from dphypo.errors.faults import UnsupportedModelError
from dphypo.executors.executor import Withdrawn, attempt_elsewhere
from dphypo.mechanisms import Mechanism, Outcome

_PATIENCE_S = 60  # how long either side waits for the other's next word
_TRIES = 3  # to connect; what was asked is never asked again


@dataclass(frozen=True, repr=False)
class Ticket:
    """What a worker needs to ask whether it may make a run. The key is a secret."""

    address: tuple[str, int]
    key: bytes
    start: str


class Claims:
    """Grants each start of a run once, to whoever asks first; it ends with the process that runs the study.

    Args:
        host: the address of this machine that workers can reach; by default only those on this machine can.

    >>> claims = Claims()
    >>> ticket = claims.issue()
    >>> claim(ticket), claim(ticket)
    (True, False)
    >>> claims.withdraw(ticket), claims.withdraw(claims.issue())
    (False, True)
    >>> claims.close()
    """

    def __init__(self, host: str = "") -> None:
        self._key = secrets.token_bytes(32)
        self._listener = socket.create_server((host or "127.0.0.1", 0), backlog=1024)
        self._open: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._bound: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._serve, name="dphypo claims", daemon=True).start()

    @property
    def address(self) -> str:
        """Where workers ask."""
        host, port = self._bound
        return f"{host}:{port}"

    def issue(self) -> Ticket:
        """A ticket for one start of a run."""
        start = secrets.token_hex(16)
        with self._lock:
            self._open.add(start)
        return Ticket(self._bound, self._key, start)

    def withdraw(self, ticket: Ticket) -> bool:
        """Refuse a start from now on; True if nobody has asked for it, so that the run was not begun."""
        with self._lock:
            asked = ticket.start not in self._open
            self._open.discard(ticket.start)
            return not asked

    def _serve(self) -> None:
        while not self._closed:
            with contextlib.suppress(Exception):  # one that hangs up must not end the service
                asked = connection.Connection(self._listener.accept()[0].detach())
                threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: Any) -> None:
        """One start. A stranger without the key, or one that says nothing, holds up nobody else."""
        with contextlib.suppress(Exception), asked:
            _limit(asked)
            connection.deliver_challenge(asked, self._key)
            connection.answer_challenge(asked, self._key)
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
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # for forked children too, who have it open as well
        self._listener.close()


def claim(ticket: Ticket) -> bool:
    """Whether this is the one start of the run. False too if the study is gone: nobody waits for the run then."""
    asked = False
    for tried in range(_TRIES):
        try:
            with connection.Client(ticket.address) as study:
                _limit(study)
                connection.answer_challenge(study, ticket.key)
                connection.deliver_challenge(study, ticket.key)
                asked = True
                study.send_bytes(ticket.start.encode())
                return bool(study.recv_bytes(2) == b"go")
        except ConnectionRefusedError:
            return False
        except (OSError, EOFError):  # the network
            if asked:  # it may have been granted: nobody may ask again
                return False
            time.sleep(tried)
    return False


def _limit(end: Any) -> None:
    """Give up on a peer that says nothing: its machine may be gone without a word."""
    with socket.socket(fileno=socket.dup(end.fileno())) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # short words: do not wait 40 ms to join two
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _PATIENCE_S, 0))


def facing(host: str) -> str:
    """The address of this machine that another one sees: the one from which it would be reached.

    >>> facing("127.0.0.1")
    '127.0.0.1'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nothing_sent:
        nothing_sent.connect((host, 9))
        return str(nothing_sent.getsockname()[0])


@dataclass(frozen=True, repr=False)
class Task:
    """One start of a run, as it is handed to a cluster. Clusters log their arguments: this one shows nothing."""

    ticket: Ticket
    params: dict[str, Any]
    seed: int


Ended = Outcome | Withdrawn | UnsupportedModelError | None


def make_once(task: Task, mechanism: Mechanism) -> Ended:
    """Make a run if nobody else has begun it; None if somebody has. A worker that a signal stops has withdrawn it."""
    try:
        return attempt_elsewhere(mechanism, task.params, task.seed) if claim(task.ticket) else None
    except Stopped:
        return Withdrawn()
