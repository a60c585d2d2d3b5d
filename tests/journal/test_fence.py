"""One process runs a study: whatever its own code does with the file, and whatever becomes of the file."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent
from sqlalchemy import make_url, update

from dphypo import Geometric, Ledger, account
from dphypo.errors import JournalError, JournalInUseError, LedgerError
from dphypo.journal.journal import Journal, Trial
from dphypo.journal.store import PostgreSQL, Store, book, open_store
from dphypo.mechanisms import Outcome

NAMES = (f"fence {number}" for number in itertools.count())


def trial(number: int) -> Trial:
    return Trial({"lr": 0.1}, 7 + number, number, b"k%d" % number)


def begun(where, name: str = "study", total: int = 3) -> Journal:
    journal = Journal(open_store(where), name)
    journal.begin({}, lambda: total)
    return journal


HOLDER = """
    import sys, threading
    from dphypo.journal.journal import Journal
    from dphypo.journal.store import open_store
    journal = Journal(open_store(sys.argv[1]), "study")
    journal.begin({}, lambda: 3)
    for act in sys.stdin:  # what a backup thread, or a trainer that looks at its folder, may do
        thread = threading.Thread(target=lambda: [open(sys.argv[1] + end, "rb").close() for end in ("", "-wal")])
        thread.start()
        thread.join()
        print("done", flush=True)
"""


def test_a_second_process_is_refused_after_the_file_was_opened_and_closed(tmp_path, monkeypatch):
    """Closing any descriptor of a file drops all POSIX locks that the process has on it."""
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.2)
    path = str(tmp_path / "study.db")
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    holder.stdin.write("look\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "done\n"
    with pytest.raises(JournalInUseError):
        begun(path)
    holder.kill()
    holder.communicate()
    begun(path).rest()


def test_the_lock_leaves_no_file_and_is_found_through_links(tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.1)
    path = tmp_path / "study.db"
    journal = begun(path)
    (tmp_path / "link.db").symlink_to(path)
    with pytest.raises(JournalInUseError):
        begun(tmp_path / "link.db")
    journal.rest()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.db", "study.db"]
    begun(tmp_path / "link.db").rest()


def _reserve_and_die(path: str) -> None:
    ledger = Ledger(path)
    Store.rest = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
    ledger.reserve(account(GaussianDpEvent(9.0), Geometric(mean=2)), name="killed")


def killed_after_reserving(path: Path) -> None:
    killed = multiprocessing.get_context("fork").Process(target=_reserve_and_die, args=(str(path),))
    killed.start()
    killed.join()
    assert path.with_name("ledger.db-wal").exists(), "it was killed before the log was written into the file"


def test_the_log_of_a_ledger_that_was_deleted_gives_a_new_one_no_larger_total(tmp_path):
    """SQLite takes a log that lies next to a file for that file's own."""
    path, log = tmp_path / "ledger.db", tmp_path / "ledger.db-wal"
    Ledger.open(path, epsilon=8.0, delta=1e-6)
    killed_after_reserving(path)
    path.rename(tmp_path / "moved.db")
    with pytest.raises(LedgerError, match=r"ledger\.db-wal, the log of an earlier ledger"):
        Ledger.open(path, epsilon=2.0, delta=1e-7)
    assert not path.exists()
    (tmp_path / "moved.db").rename(path)
    assert [entry.name for entry in Ledger(path).entries] == ["killed"]
    assert not log.exists()
    path.unlink()
    assert Ledger.open(path, epsilon=2.0, delta=1e-7).epsilon == 2.0


@pytest.mark.parametrize("mounted", [False, True])
def test_a_file_with_two_names_is_refused(tmp_path, monkeypatch, mounted):
    """SQLite's log lies next to the name that was used: under another one, what was committed is missing."""
    path, other = tmp_path / "ledger.db", tmp_path / "other.db"
    ledger = Ledger.open(path, epsilon=2.0, delta=1e-6)
    killed_after_reserving(path)
    if mounted:
        monkeypatch.setattr(os.path, "ismount", lambda name: Path(name) == path)
    else:
        os.link(path, other)
        with pytest.raises(LedgerError, match=r"another name \(a hard link"):
            Ledger(other)
    for use in (lambda: ledger.entries, lambda: Journal(open_store(path), "study").begin({}, lambda: 3)):
        with pytest.raises((LedgerError, JournalError), match="another name"):
            use()
    monkeypatch.undo()
    other.unlink(missing_ok=True)
    assert [entry.name for entry in ledger.entries] == ["killed"]


def test_a_forked_child_neither_keeps_nor_ends_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.1)
    path = tmp_path / "study.db"
    journal = begun(path)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        journal._store.close()  # as the collector might
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    with pytest.raises(JournalInUseError):
        begun(path)
    journal.claim(trial(0))
    journal.rest()
    again = begun(path)  # the child lives on
    assert len(again.record.trials) == 1
    again.rest()
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for end in (*ready, *go):
        os.close(end)


class Unlocked(PostgreSQL):
    """As behind a pooler that forgets session locks."""

    def hold(self, connection, name):
        pass


def two(kind: str, request, tmp_path) -> tuple[Store, Store]:
    if kind == "postgres":
        url = make_url(request.getfixturevalue("postgres"))
        return Store(Unlocked(url)), Store(Unlocked(url))
    store = open_store(tmp_path / "study.db")
    return store, store


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_second_coordinator_fences_the_first(kind, request, tmp_path):
    """Whatever lock failed: the first can commit nothing more, not even after it has read the journal again."""
    name = next(NAMES)
    first, second = (Journal(store, name) for store in two(kind, request, tmp_path))
    first.begin({}, lambda: 3)
    first.claim(trial(0))
    if kind == "postgres":
        second.begin({}, lambda: 4)
    else:  # SQLite has one connection here: the token is changed as another process would
        taken = update(book).values(owner="another")
        first._store.commit(lambda connection: connection.execute(taken))
    for _ in range(3):
        with pytest.raises(JournalError, match="taken this study over"):
            first.finish(trial(0), Outcome(None, 1.0), b"model")
        with pytest.raises(JournalError, match="taken this study over"):
            first.attempted(trial(0))
    if kind == "postgres":
        second.finish(trial(0), Outcome(None, 2.0), b"model")
        assert second.record.results[0].score == 2.0
        second._store.close()
    first._store.close()


def test_threads_share_a_store(tmp_path):
    """Transactions come one after the other, whoever begins them."""
    journal = begun(tmp_path / "study.db", total=200)
    wrong = []

    def look() -> None:
        try:
            for _ in range(50):
                journal._store.names()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(50):
        journal.claim(trial(number))
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(journal.record.trials) == 50
    journal.rest()


STARTED_TOGETHER = """
    import sys
    from dphypo.journal.journal import Journal
    from dphypo.journal.store import open_store
    store = open_store(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    Journal(store, sys.argv[2]).begin({}, lambda: 3)
"""


@pytest.mark.slow
def test_studies_started_together_on_an_empty_database_all_begin(postgres):
    """CREATE TABLE IF NOT EXISTS of PostgreSQL fails if two processes run it at once."""
    from sqlalchemy import create_engine, text

    url = make_url(postgres).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE started_together"))
    where = url.set(drivername="postgresql", database="started_together").render_as_string(hide_password=False)
    code = textwrap.dedent(STARTED_TOGETHER)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, where, f"study {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [(process.communicate()[1], process.returncode) for process in processes]
    assert all(status == 0 for _, status in ends), ends
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE started_together"))
    engine.dispose()
