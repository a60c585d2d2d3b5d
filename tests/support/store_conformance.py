"""The conformance suite of databases: what a journal needs of one."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from contextlib import closing
from typing import Any

from dphypo._validate import ensure
from dphypo.errors import JournalError, JournalInUseError
from dphypo.journal.journal import Journal, Trial
from dphypo.journal.store import Database, Store
from dphypo.mechanisms import Outcome


def check_store(connect: Callable[[], Database]) -> None:
    """Raise an ``AssertionError`` that says what a database does not do that a journal needs, if anything.

    ``connect`` connects anew to the same database every time. The check writes a study of its own under a random name
    and reduces it to its certificate in the end. It cannot check that a commit survives the loss of power.

    >>> import tempfile, pathlib
    >>> from dphypo.journal.store import SQLite
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_store(lambda: SQLite(pathlib.Path(folder) / "study.db"))
    """
    name = f"conformance {secrets.token_hex(8)}"
    store = Store(connect())
    try:
        _check_history(store, name)
        if not connect().durable:
            return
        _check_hold(store, Store(connect()), name)
        store.close()
        store = Store(connect())
        _check_kept(store, name)
    finally:
        store.close()


def _check_history(store: Store, name: str) -> None:
    journal = Journal(store, name)
    journal.begin({}, lambda: 2)
    Journal(store, name).begin({}, lambda: 9)
    ensure(Journal(store, name).record.total == 2, "a second T replaced the first")
    first = Trial({"x": (1, None)}, 2**63 - 1, 0, bytes(range(16)))
    second = Trial({"x": 1.5}, 0, 1, b"\xff")
    beyond = Trial({}, 0, 2, b"")
    _refuses("an outcome without a run", journal.finish, first, Outcome(None, 1.0), b"model")
    journal.claim(first)
    _refuses("a run drawn twice", journal.claim, first)
    for score in (math.inf, -math.inf, math.nan, None):
        _refuses(f"the score {score} without a failure", journal.finish, first, Outcome(None, score), None)
    journal.finish(first, Outcome(None, 0.1 + 0.2), b"\0first")
    _refuses("a second outcome of a run", journal.finish, first, Outcome(None, 2.0), None)
    journal.claim(second)
    _refuses("a run beyond T", journal.claim, beyond)
    _refuses("a release before the last outcome", journal.release, "MODEL", "{}")
    journal.finish(second, Outcome(None, 0.5), b"second\xff")
    journal.release("MODEL", "{}")
    _refuses("a second release", journal.release, "MODEL", "{}")


def _refuses(what: str, act: Callable[..., object], *given: Any, error: type[JournalError] = JournalError) -> None:
    try:
        act(*given)
    except error:
        return
    raise AssertionError(f"the database accepted {what}")


def _check_hold(store: Store, other: Store, name: str) -> None:
    """While one connection has a study, no other gets it: a run could be made twice."""
    store.hold(name)
    with closing(other):
        begin = Journal(other, name).begin
        _refuses("two connections that hold one study", begin, {}, lambda: 2, error=JournalInUseError)


def _check_kept(store: Store, name: str) -> None:
    """What was committed comes back bit for bit, and goes when it is shredded."""
    journal = Journal(store, name)
    journal.begin({}, lambda: 9)
    record = journal.record
    kept = [(trial.params, trial.seed, trial.tie_key) for trial in record.trials]
    expected = [({"x": (1, None)}, 2**63 - 1, bytes(range(16))), ({"x": 1.5}, 0, b"\xff")]
    ensure(record.total == 2 and kept == expected, "the runs that were committed came back changed, or not at all")
    ensure(record.results[0].score == 0.1 + 0.2, "a score came back changed")
    ensure(record.released, "the release was lost")
    ensure(record.best == 1 and journal.model() == b"second\xff", "the model of the best run came back changed")
    journal.shred()
    ensure(journal.record.shredded and not journal.record.trials, "shredding left runs behind")
