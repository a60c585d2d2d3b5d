"""Rows that were edited, added or removed by something else are seen as such; other people's files are left alone."""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
import stat
from contextlib import closing

import pytest
from sqlalchemy import make_url, text
from support.journal_world import read_certificate
from support.study_world import make

from dphypo.errors import JournalError, JournalMissingError, LedgerError
from dphypo.journal import Ledger
from dphypo.journal.journal import Journal, Trial, keeping
from dphypo.journal.store import End, append, open_store
from dphypo.mechanisms import Outcome

NAMES = (f"tampered {number}" for number in itertools.count())


def trial(number: int) -> Trial:
    return Trial({"lr": 0.1}, 7 + number, number, b"k%d" % number)


def written(where, name: str, *, released: bool = False) -> None:
    journal = Journal(open_store(where), name)
    journal.begin({"law": "public"}, lambda: 2)
    for number in range(2):
        journal.claim(trial(number))
        journal.finish(trial(number), Outcome(None, float(number)), b"model %d" % number * 20)
    if released:
        journal.release("MODEL", '{"epsilon": 1}')
    journal.rest()


CHANGED = "UPDATE dphypo_change SET content = replace(content, '{}', '{}') WHERE name = :name AND number = {}"
EDITS = {
    "the declaration": CHANGED.format("public", "other", 0),
    "the number of runs": CHANGED.format("2]", "9]", 0),
    "a text that is no JSON": "UPDATE dphypo_change SET content = 'SECRET' WHERE name = :name AND number = 0",
    "a text that is nested too deeply": f"UPDATE dphypo_change SET content = '{'[' * 9999}' WHERE name = :name",
    "a score": CHANGED.format("0.0", "5.0", 2),
    "a failure": CHANGED.format("0.0, null", 'null, "x"', 2),
    "a λ": CHANGED.format("0.1", "0.2", 1),
    "a run that is a list": "UPDATE dphypo_change SET content = '[1]' WHERE name = :name AND number = 1",
    "attempts": CHANGED.format(", 1, ", ", 0, ", 3),
    "a change removed": "DELETE FROM dphypo_change WHERE name = :name AND number = 2",
    "the last change removed": "DELETE FROM dphypo_change WHERE name = :name AND number = 4",
    "all changes removed": "DELETE FROM dphypo_change WHERE name = :name",
    "a seed": "UPDATE dphypo_secret SET content = {} WHERE name = :name AND number = 1",
    "the hash of a seed": "UPDATE dphypo_change SET digest = 'x' WHERE name = :name AND number = 1",
    "a seed removed": "DELETE FROM dphypo_secret WHERE name = :name AND number = 1",
    "the model removed": "DELETE FROM dphypo_secret WHERE name = :name AND number = 4",
    "a secret more": "INSERT INTO dphypo_secret SELECT kind, name, 2, 0, content FROM dphypo_secret WHERE name = :name"
    " AND number = 1",
    "the head": "UPDATE dphypo_book SET head = '00' WHERE name = :name",
    "two runs in another order": "",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_seen(kind, edit, request, tmp_path):
    where, name = (tmp_path / "study.db", "study")
    if kind == "postgres":
        where, name = request.getfixturevalue("postgres"), next(NAMES)
    written(where, name)
    store = open_store(where)
    seed = "x'00112233445566778899aabbccddeeff0000000000000007'" if kind == "sqlite" else "'\\x0011'::bytea"
    statements = [EDITS[edit].format(seed) if edit == "a seed" else EDITS[edit]]
    if edit.startswith("two runs"):  # unique numbers, one row at a time
        moves = ((1, 9), (3, 1), (9, 3))
        statements = [f"UPDATE dphypo_change SET number = {b} WHERE name = :name AND number = {a}" for a, b in moves]
    for one in statements:
        store.commit(lambda connection, one=one: connection.execute(text(one), {"name": name}))
    for _ in range(2):
        with pytest.raises(JournalError, match="changed by something other than this library") as caught:
            Journal(store, name).begin({"law": "public"}, lambda: 2)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    store.close()


HISTORIES = {
    "a run beyond T": [["begin", {}, 1], ["claim", 0, {}, "", 1, ""], ["claim", 1, {}, "", 1, ""]],
    "a run left out": [["begin", {}, 3], ["claim", 1, {}, "", 1, ""]],
    "no T": [["begin", {}, None]],
    "a negative T": [["begin", {}, -3]],
    "an outcome without a run": [["begin", {}, 1], ["finish", 0, 1.0, None, False, False]],
    "an infinite score": [
        ["begin", {}, 1],
        ["claim", 0, {}, "", 1, ""],
        ["finish", 0, float("inf"), None, False, False],
    ],
    "a release before the end": [["begin", {}, 1], ["release", "MODEL", "{}"]],
    "nothing before a run": [["claim", 0, {}, "", 1, ""]],
    "a study begun twice": [["begin", {}, 1], ["begin", {}, 2]],
    "a change of no kind": [["begin", {}, 1], ["dance"]],
    "a tie key that is no number": [["begin", {}, 1], ["claim", 0, {}, "xyz", 1, ""]],
    "a seed that is gone": [["begin", {}, 1], ["claim", 0, {}, "", 1, ""]],
}


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_that_no_study_has_is_refused_whatever_its_hashes(history):
    """Whoever has read the source can chain other changes: they must still be those of a study."""
    store = open_store(None)

    def write(connection):
        place = End("journal", "study")
        for content in HISTORIES[history]:
            place = append(connection, place, content, kept=bytes(32) if content[0] == "begin" else None)

    store.commit(write)
    with pytest.raises(JournalError, match="changed by something other than this library"):
        Journal(store, "study").begin({}, lambda: 2)


def test_an_edited_model_is_seen_when_it_is_read(tmp_path):
    written(tmp_path / "study.db", "study")
    store = open_store(tmp_path / "study.db")
    other = text(f"UPDATE dphypo_secret SET content = x'{'00' * 99}' WHERE number = 4")
    store.commit(lambda connection: connection.execute(other))
    journal = Journal(store, "study")
    journal.begin({}, lambda: 2)
    with pytest.raises(JournalError, match="the model"):
        journal.model()
    store.close()


def test_an_edit_while_the_study_runs_is_seen_at_the_next_commit(postgres):
    name = next(NAMES)
    journal, other = Journal(open_store(postgres), name), open_store(postgres)
    journal.begin({}, lambda: 2)
    journal.claim(trial(0))
    other.commit(lambda connection: connection.execute(text("UPDATE dphypo_book SET head = 'x'")))
    other.close()
    with pytest.raises(JournalError, match="changed by something other"):
        journal.finish(trial(0), Outcome(None, 1.0), b"m")
    journal._store.close()


# Other people's files


def snapshot(path) -> tuple[bytes, int, int]:
    found = path.stat()
    return path.read_bytes(), stat.S_IMODE(found.st_mode), found.st_mtime_ns


def foreign_sqlite(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


FOREIGN = {
    "text": lambda path: path.write_text("some notes of mine\n" * 100),
    "short": lambda path: path.write_text("x"),
    "database": foreign_sqlite,
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("act", ["run", "read_certificate"])
def test_a_file_of_another_kind_is_left_as_it_is(tmp_path, kind, act):
    path = tmp_path / "notes"
    FOREIGN[kind](path)
    path.chmod(0o644)
    before = snapshot(path)
    with pytest.raises(JournalError, match=r"cannot be used: it is .* It was not changed"):
        read_certificate(path) if act == "read_certificate" else make(path).run(progress=False)
    assert snapshot(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


def test_a_folder_is_left_as_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    for act in (lambda where: make(where).run(progress=False), read_certificate):
        for where in (str(folder), folder):
            with pytest.raises(JournalError, match="is a folder: give the name of a file in it"):
                act(where)
        for nothing in ("", "  "):
            with pytest.raises(ValueError, match=r"journal = .* give a file name"):
                act(nothing)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert list(folder.iterdir()) == []


def test_a_pipe_or_a_device_is_refused_and_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for where in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(JournalError, match="not an ordinary file"):
            make(where).run(progress=False)


@pytest.mark.parametrize("where", [3, 1.5, b"study.db", ["study.db"], {}])
def test_what_is_no_journal_is_a_clear_error(where):
    with pytest.raises(ValueError, match=r"journal = .* give a file name or a URL"):
        open_store(where)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql:/bob:PASSWORD@host/db",
        "postgresql://bob:PASSWORD@host:port/db",
        "mysql://bob:PASSWORD@host/db",
        "postgres:/bob:PASSWORD@host/db",
        "bob:PASSWORD@host/db",
        "postgresql://bob:PASSWORD@127.0.0.1:1/db",
    ],
)
def test_no_error_shows_a_password(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, JournalError)) as caught:
        Journal(open_store(where), "study").begin({}, lambda: 1)
    error: BaseException | None = caught.value
    while error is not None:
        assert "PASSWORD" not in repr(error)
        error = error.__cause__ or error.__context__
    assert "PASSWORD" not in str(open_store(where).address) if where.endswith(":1/db") else True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [None, 3, "", "a\nb", "\0", "x" * 501, b"study"])
def test_a_name_is_a_line_of_text(name):
    with pytest.raises(ValueError, match=r"name = .* give a line of text"):
        Journal(open_store(None), name)


# Reading


def test_reading_creates_no_journal_and_leaves_other_files_as_they_are(tmp_path):
    with make(tmp_path / "study.db") as study:
        certificate = study.run(progress=False).certificate
    assert read_certificate(tmp_path / "study.db").to_dict() == certificate.to_dict()
    with pytest.raises(JournalMissingError):
        read_certificate(tmp_path / "other.db")
    assert [file.name for file in tmp_path.iterdir()] == ["study.db"]
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    foreign.chmod(0o644)
    before = snapshot(foreign)
    with pytest.raises(JournalError, match="a database of another program"):
        read_certificate(foreign)
    assert snapshot(foreign) == before


def test_a_new_journal_in_a_folder_that_is_read_only_is_not_said_to_be_missing(tmp_path, monkeypatch):
    created = os.open

    def refused(name, flags, *mode, **more):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "read-only")
        return created(name, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(
        JournalError, match=r"read-only.*To start a search, give journal= in a writable folder"
    ) as caught:
        open_store(tmp_path / "study.db").names()
    assert not isinstance(caught.value, JournalMissingError)


def test_a_certificate_is_read_from_a_database_without_a_journal(postgres):
    url = make_url(postgres).set(database="template1").render_as_string(hide_password=False)
    with pytest.raises(JournalMissingError):
        read_certificate(url)


# Other versions


def test_a_journal_of_another_version_says_so(tmp_path):
    written(tmp_path / "study.db", "study")
    store = open_store(tmp_path / "study.db")
    store.commit(lambda connection: connection.execute(text("UPDATE dphypo_book SET format = 9")))
    with pytest.raises(JournalError, match=r"written by another version of dphypo \(format 9\)"):
        Journal(store, "study").begin({}, lambda: 1)
    store.close()


def test_a_ledger_is_not_a_journal_nor_a_journal_a_ledger(tmp_path):
    written(tmp_path / "study.db", "study")
    with pytest.raises(LedgerError, match="is a journal, not a ledger"):
        Ledger(tmp_path / "study.db")
    Ledger.open(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6)
    with pytest.raises(JournalError, match="is a ledger, not a journal"):
        Journal(open_store(tmp_path / "ledger.db"), "study").begin({}, lambda: 1)


# Public numbers that took long to find


def test_a_number_is_solved_for_once(tmp_path):
    asked = []

    def solve() -> float:
        asked.append(1)
        return 0.1 + 0.2

    for _ in range(2):
        with keeping(tmp_path / "study.db", "study") as keep:
            assert keep({"epsilon": 3.0, "delta": 1e-5}, solve) == 0.1 + 0.2
    assert len(asked) == 1
    with keeping(tmp_path / "study.db", "study") as keep:
        keep({"epsilon": 4.0, "delta": 1e-5}, solve)
    assert len(asked) == 2
