"""Rows that were edited, added or removed by something else are seen as such; other people's files are left alone."""

from __future__ import annotations

import itertools
import os
import sqlite3
import stat
import subprocess

import pytest
from sqlalchemy import make_url, text
from support.study_world import facts, make

from dphypo.errors import JournalError, JournalMissingError, JournalReadOnlyError, JournalTamperedError
from dphypo.journal import Journal, Trial, open_store
from dphypo.mechanisms import Outcome
from dphypo.search.release import read_certificate

NAMES = (f"tampered {number}" for number in itertools.count())


def trial(number: int) -> Trial:
    return Trial({"lr": 0.1}, 7 + number, number, b"k%d" % number)


def written(where, name: str, *, released: bool = False) -> None:
    journal = Journal(open_store(where), name)
    journal.begin({"law": "public"}, lambda: 2)
    for number in range(2):
        journal.claim(trial(number))
        journal.finish(trial(number), Outcome(None, float(number)), b"model %d" % number)
    if released:
        journal.release("MODEL", '{"epsilon": 1}')
    journal.rest()


EDITS = {
    "the declaration": 'UPDATE dphypo_study SET declaration = \'{"law": "other"}\' WHERE name = :name',
    "a text that is no JSON": "UPDATE dphypo_study SET declaration = 'x' WHERE name = :name",
    "a score": "UPDATE dphypo_outcome SET score = score + 1 WHERE study = :name AND number = 0",
    "a failure": "UPDATE dphypo_outcome SET score = NULL, failure = 'x' WHERE study = :name AND number = 0",
    "a λ": "UPDATE dphypo_trial SET params = '{\"lr\": 0.2}' WHERE study = :name AND number = 0",
    "a λ that is no JSON": "UPDATE dphypo_trial SET params = 'SECRET' WHERE study = :name AND number = 0",
    "a λ that is a list": "UPDATE dphypo_trial SET params = '[1]' WHERE study = :name AND number = 0",
    "a seed": "UPDATE dphypo_trial SET seed = seed + 1 WHERE study = :name AND number = 1",
    "attempts": "UPDATE dphypo_trial SET attempts = 0 WHERE study = :name AND number = 1",
    "an outcome removed": "DELETE FROM dphypo_outcome WHERE study = :name AND number = 0",
    "the model removed": "DELETE FROM dphypo_best WHERE study = :name",
    "the seal removed": "DELETE FROM dphypo_seal WHERE study = :name",
    "the seal": "UPDATE dphypo_seal SET total = '00' WHERE study = :name",
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_seen(kind, edit, request, tmp_path):
    where, name = (tmp_path / "study.db", "study")
    if kind == "postgres":
        where, name = request.getfixturevalue("postgres"), next(NAMES)
    written(where, name)
    store = open_store(where)
    store.commit(lambda connection: connection.execute(text(EDITS[edit]), {"name": name}))
    for _ in range(2):
        with pytest.raises(JournalTamperedError, match="changed by something other than this library") as caught:
            Journal(store, name).begin({"law": "public"}, lambda: 2)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    store.close()


@pytest.mark.parametrize("total", ["NULL", "1", "9", "-3", "'x'"])
def test_an_edited_number_of_runs_is_seen(tmp_path, total):
    """The foreign keys of the runs forbid it while they are checked."""
    written(tmp_path / "study.db", "study")
    connection = sqlite3.connect(tmp_path / "study.db")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(f"UPDATE dphypo_study SET total = {total}")
    connection.commit()
    connection.close()
    journal = Journal(open_store(tmp_path / "study.db"), "study")
    with pytest.raises(JournalTamperedError, match="changed by something other than this library"):
        journal.begin({"law": "public"}, lambda: 2)
    journal.rest()


def test_an_edited_model_is_seen_when_it_is_read(tmp_path):
    written(tmp_path / "study.db", "study")
    store = open_store(tmp_path / "study.db")
    store.commit(lambda connection: connection.execute(text("UPDATE dphypo_best SET model = x'00'")))
    journal = Journal(store, "study")
    journal.begin({}, lambda: 2)
    with pytest.raises(JournalTamperedError, match="the model"):
        journal.model()
    store.close()


def test_an_edit_while_the_study_runs_is_seen_at_the_next_commit(postgres):
    name = next(NAMES)
    journal, other = Journal(open_store(postgres), name), open_store(postgres)
    journal.begin({}, lambda: 2)
    journal.claim(trial(0))
    other.commit(lambda connection: connection.execute(text("UPDATE dphypo_seal SET total = 'x'")))
    other.close()
    with pytest.raises(JournalTamperedError):
        journal.finish(trial(0), Outcome(None, 1.0), b"m")
    journal._store.close()


def test_a_number_of_runs_that_the_law_never_gives_is_refused(tmp_path):
    written(tmp_path / "study.db", "study")
    journal = Journal(open_store(tmp_path / "study.db"), "study")
    with pytest.raises(JournalTamperedError, match="the law of T never gives"):
        journal.begin({}, lambda: 2, possible=lambda total: total > 4)
    journal.rest()


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
    with pytest.raises(JournalError, match=r"is not a journal: it is .* It was not changed"):
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


def test_a_certificate_is_read_without_a_change(tmp_path):
    path = tmp_path / "study.db"
    with make(path) as study:
        certificate = study.run(progress=False).certificate
    path.chmod(0o644)
    before = snapshot(path)
    assert read_certificate(path).to_dict() == certificate.to_dict()
    assert snapshot(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["study.db"]
    with pytest.raises(JournalMissingError):
        read_certificate(tmp_path / "other.db")
    assert [file.name for file in tmp_path.iterdir()] == ["study.db"]


def test_a_certificate_is_read_from_a_database_without_a_journal(postgres):
    url = make_url(postgres).set(database="template1").render_as_string(hide_password=False)
    with pytest.raises(JournalMissingError):
        read_certificate(url)


def test_a_released_journal_on_a_read_only_file_system_can_be_read(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a file system can be mounted only by root")
    try:
        with make(disk / "study.db") as study:
            study.run(progress=False)
            expected = facts(study)
        with make(disk / "unfinished.db") as study:
            study.ask()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with make(disk / "study.db") as study:
            study.run(progress=False)
            assert facts(study) == expected
            with pytest.raises(JournalReadOnlyError, match="read-only"):
                study.shred()
        assert read_certificate(disk / "study.db").to_dict() == expected[-1]
        with make(disk / "unfinished.db") as study, pytest.raises(JournalReadOnlyError, match="copy the file"):
            study.run(progress=False)
        with make(disk / "new.db") as study, pytest.raises(JournalError):
            study.run(progress=False)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Journals of dphypo 0.1: no seal, the declaration as it is

OLD = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE dphypo_study (name TEXT NOT NULL, declaration TEXT NOT NULL, total INTEGER, PRIMARY KEY (name),
        CHECK (total >= 0), UNIQUE (name, total));
    CREATE TABLE dphypo_trial (study TEXT NOT NULL, number INTEGER NOT NULL, total INTEGER NOT NULL,
        params TEXT NOT NULL, seed BIGINT NOT NULL, tie_key BLOB NOT NULL, attempts INTEGER NOT NULL,
        PRIMARY KEY (study, number), FOREIGN KEY(study, total) REFERENCES dphypo_study (name, total));
    CREATE TABLE dphypo_outcome (study TEXT NOT NULL, number INTEGER NOT NULL, score DOUBLE, failure TEXT,
        PRIMARY KEY (study, number), FOREIGN KEY(study, number) REFERENCES dphypo_trial (study, number));
    CREATE TABLE dphypo_best (study TEXT NOT NULL, number INTEGER NOT NULL, model BLOB NOT NULL, PRIMARY KEY (study),
        FOREIGN KEY(study, number) REFERENCES dphypo_outcome (study, number));
    CREATE TABLE dphypo_release (study TEXT NOT NULL, ending TEXT NOT NULL, certificate TEXT NOT NULL,
        PRIMARY KEY (study), FOREIGN KEY(study) REFERENCES dphypo_study (name));
    INSERT INTO dphypo_study VALUES ('study', '{"law": "public"}', 2);
    INSERT INTO dphypo_trial VALUES ('study', 0, 2, '{"lr": 0.5}', 11, x'01', 1);
    INSERT INTO dphypo_outcome VALUES ('study', 0, 0.25, NULL);
    INSERT INTO dphypo_best VALUES ('study', 0, x'6d');
"""


def old(path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.close()


def test_a_journal_of_the_first_version_is_read_and_gone_on_with(tmp_path):
    path = tmp_path / "study.db"
    old(path)
    reader = open_store(path, read_only=True)
    record = Journal(reader, "study").record
    assert (record.total, record.results[0].score, record.declaration) == (2, 0.25, {"law": "public"})
    reader.close()
    journal = Journal(open_store(path), "study")
    assert journal.begin({}, lambda: 9) == {"law": "public"}
    assert journal.model() == b"m"
    journal.claim(trial(1))
    journal.finish(trial(1), Outcome(None, 1.0), b"n")
    journal.release("MODEL", "{}")
    journal.rest()
    again = Journal(open_store(path), "study")
    assert again.record.released
    assert again.model() == b"n"
    again.rest()


def test_a_journal_of_a_later_version_says_so(tmp_path):
    path = tmp_path / "study.db"
    old(path)
    connection = sqlite3.connect(path)
    connection.execute('UPDATE dphypo_study SET declaration = \'{"format": 3, "declaration": {}}\'')
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="later version of dphypo"):
        Journal(open_store(path), "study").begin({}, lambda: 1)


# Public numbers that took long to find


def test_a_number_is_solved_for_once(tmp_path):
    asked = []

    def solve() -> float:
        asked.append(1)
        return 0.1 + 0.2

    for _ in range(2):
        journal = Journal(open_store(tmp_path / "study.db"), "study")
        assert journal.solved({"epsilon": 3.0, "delta": 1e-5}, solve) == 0.1 + 0.2
        journal.rest()
    assert len(asked) == 1
    journal.solved({"epsilon": 4.0, "delta": 1e-5}, solve)
    assert len(asked) == 2
    journal.rest()
