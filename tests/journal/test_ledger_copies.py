"""One entry pays for one search: copies and restored backups of a journal are refused, a moved one goes on."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from pathlib import Path

import dp_accounting as dp
import pytest
from support.journal_world import trial
from support.ledger_world import make

from dphypo import Ledger, account
from dphypo.errors import LedgerError
from dphypo.journal.journal import Journal
from dphypo.journal.ledger import Reservation
from dphypo.journal.store import open_store
from dphypo.laws import Pmf
from dphypo.mechanisms import Outcome

REFUSED = "does not end where the ledger expects"
NAMES = (f"ledger {number}" for number in itertools.count())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", epsilon=2.0, delta=1e-6)


def step(journal: Path, ledger: object) -> None:
    with make(journal, ledger=ledger) as study:
        study.tell(study.ask(), ({"lr": 1.0}, 0.5))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("winner", ["original", "copy"])
def test_of_two_copies_the_first_to_commit_goes_on(kind, winner, request, tmp_path):
    where = tmp_path / "ledger.db" if kind == "sqlite" else request.getfixturevalue("postgres")
    ledger = Ledger.open(where, epsilon=2.0, delta=1e-6, name=next(NAMES))
    original, copy = tmp_path / "original.db", tmp_path / "copy.db"
    step(original, ledger)
    shutil.copy(original, copy)
    first, second = (original, copy) if winner == "original" else (copy, original)
    with make(first, ledger=ledger) as study:
        study.ask()
    for _ in range(2):
        with pytest.raises(LedgerError, match=REFUSED):
            make(second, ledger=ledger).run(progress=False)
    assert make(first, ledger=ledger).run(progress=False).model is not None
    assert [entry.released for entry in ledger.entries] == [("study",)]
    with pytest.raises(LedgerError, match=REFUSED):
        make(second, ledger=ledger).ask()
    make(tmp_path / "new.db", ledger=ledger).ask()  # a new search reserves for itself
    assert len(ledger.entries) == 2


def test_two_copies_that_are_open_at_once_do_not_both_go_on(ledger, tmp_path):
    step(tmp_path / "a.db", ledger)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with make(tmp_path / "a.db", ledger=ledger) as first, make(tmp_path / "b.db", ledger=ledger) as second:
        drawn = second.ask()
        with pytest.raises(LedgerError, match=REFUSED):
            first.ask()
        second.tell(drawn, ({"lr": 1.0}, 0.7))
        with pytest.raises(LedgerError, match=REFUSED):
            first.ask()


def test_two_copies_never_make_two_releases(ledger, tmp_path):
    def opened(path: Path) -> Journal:
        reservation = Reservation(ledger, make().guarantee, "study", private=True)
        journal = Journal(open_store(path), "study", reservation=reservation)
        journal.begin({}, lambda: 1)
        return journal

    journal = opened(tmp_path / "a.db")
    journal.claim(trial(0))
    journal.rest()
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    other = opened(tmp_path / "b.db")  # it is at the same commit, and so it may still be the one
    journal = opened(tmp_path / "a.db")
    journal.finish(trial(0), Outcome(None, 1.0), b"model")
    shutil.copy(tmp_path / "a.db", tmp_path / "same.db")
    shutil.copy(tmp_path / "a.db-wal", tmp_path / "same.db-wal")
    journal.release("MODEL", "{}")
    for act in (lambda: other.finish(trial(0), Outcome(None, 2.0), b"other"), lambda: other.release("MODEL", "{}")):
        with pytest.raises(LedgerError, match=REFUSED):
            act()
    (entry,) = ledger.entries
    with pytest.raises(LedgerError, match=REFUSED):
        ledger.close(entry.key, "study", "f" * 64)
    opened(tmp_path / "same.db").release("MODEL", "{}")  # the same release again, which tells nothing more
    assert ledger.entries[0].released == ("study",)


def test_a_moved_journal_goes_on_and_a_restored_backup_does_not(ledger, tmp_path):
    journal, moved = tmp_path / "study.db", tmp_path / "elsewhere.db"
    step(journal, ledger)
    backup = shutil.copy(journal, tmp_path / "backup.db")
    journal.rename(moved)
    with make(moved, ledger=ledger) as study:
        study.ask()
    shutil.copy(backup, journal)
    with pytest.raises(LedgerError, match=REFUSED):
        make(journal, ledger=ledger).run(progress=False)
    assert make(moved, ledger=ledger).run(progress=False).model is not None


def test_later_parts_of_a_search_belong_to_the_same_entry(ledger, tmp_path):
    journal, copy = tmp_path / "stages.db", tmp_path / "copy.db"
    search = make(journal, kind="stages", ledger=ledger)
    while not search.released:
        search.tell(search.ask(), ({"lr": 1.0}, 0.5))
    search.close()
    shutil.copy(journal, copy)
    with make(journal, kind="stages", ledger=ledger) as original:
        original.tell(original.ask(), ({"lr": 1.0}, 0.5))
    with pytest.raises(LedgerError, match=REFUSED):
        make(copy, kind="stages", ledger=ledger).run(progress=False)
    assert make(journal, kind="stages", ledger=ledger).run(progress=False).model is not None
    assert [entry.released for entry in ledger.entries] == [("stages, stage 1", "stages, stage 2")]


@pytest.mark.parametrize("again", ["same process", "other process"])
def test_a_search_that_could_not_reach_its_ledger_goes_on(ledger, tmp_path, monkeypatch, again):
    """Its journal is one commit ahead then, and nobody has acted on that."""
    search = make(tmp_path / "study.db", ledger=ledger)
    search.tell(search.ask(), ({"lr": 1.0}, 0.5))
    moved, reach = tmp_path / "moved.db", Path(ledger.path)
    reach.rename(moved)
    with pytest.raises(LedgerError, match=r"it was deleted or moved\. Put it back and resume") as caught:
        search.ask()
    assert "ledger open" not in str(caught.value), "a new one would not know what was spent"
    moved.rename(reach)
    if again == "other process":
        search.close()
        search = make(tmp_path / "study.db", ledger=ledger)
    assert search.run(progress=False).model is not None


def test_another_ledger_under_the_same_name_is_refused(ledger, tmp_path):
    step(tmp_path / "study.db", ledger)
    Path(ledger.path).unlink()
    Ledger.open(ledger.path, epsilon=2.0, delta=1e-6)
    for act in (lambda: ledger.reserve(make().guarantee, name="search"), lambda: ledger.entries):
        with pytest.raises(LedgerError, match="is not the same ledger as before"):
            act()
    with pytest.raises(LedgerError, match="begun with another ledger"):
        make(tmp_path / "study.db", ledger=ledger.path).run(progress=False)


def test_reserving_reads_no_more_where_there_are_more_entries(tmp_path, monkeypatch):
    """Counted in instructions of SQLite's virtual machine, in tens."""
    counted, connect = [0], sqlite3.connect

    def counting(*given, **named):
        connection = connect(*given, **named)
        connection.set_progress_handler(lambda: counted.__setitem__(0, counted[0] + 1), 10)
        return connection

    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=8.0, delta=1e-6)
    cheap = account(dp.GaussianDpEvent(2000.0), Pmf({1: 1.0}))
    taken = []
    for number in range(200):
        key = ledger.reserve(cheap, name=f"search {number}")
        ledger.advance(key, "study", "", "a" * 64)
        if number in (5, 199):
            with monkeypatch.context() as patched:
                patched.setattr(sqlite3, "connect", counting)
                counted[0] = 0
                ledger.reserve(cheap, name="once more", key=key)
                ledger.reserve(cheap, name="another")
                ledger.close(key, "study", "a" * 64)
                taken.append(counted[0])
    assert taken[1] < 1.5 * taken[0]
    assert len(ledger.entries) == 202


def test_a_ledger_does_not_show_how_many_runs_were_made(tmp_path):
    """Its file has no counter that grows with commits."""
    seen = []
    for runs in (1, 30):
        ledger = Ledger.open(tmp_path / f"{runs}.db", epsilon=2.0, delta=1e-6)
        key = ledger.reserve(make().guarantee, name="study")
        for number in range(runs):
            ledger.advance(key, "study", f"{number:064x}" if number else "", f"{number + 1:064x}")
        content = Path(ledger.path).read_bytes()
        seen.append((len(content), content[:100]))
    assert seen[0] == seen[1]
