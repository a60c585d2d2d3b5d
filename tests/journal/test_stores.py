"""Stores: the built-in databases conform, broken ones are told, and a journal is found where it is said to be."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from sqlalchemy import make_url
from support.journal_world import NAMES
from support.slow import mostly_slow
from support.store_conformance import check_store
from support.study_world import make

from dphypo.errors import JournalError, JournalInUseError
from dphypo.journal.journal import Journal, frozen
from dphypo.journal.store import PostgreSQL, SQLite, Store, open_store

HOLDER = """
    import sys, time
    from dphypo.journal.journal import Journal
    from dphypo.journal.store import PostgreSQL, open_store
    PostgreSQL.beat_s = 0.2
    journal = Journal(open_store(sys.argv[1]), sys.argv[2])
    journal.begin({}, lambda: 3)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", mostly_slow(["postgres", "sqlite"]))
def test_a_study_is_held_by_one_process_and_freed_by_its_death(kind, request, tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.2)
    monkeypatch.setattr("dphypo.journal.store._WAIT_FOR_SERVER_S", 0.2)
    where = request.getfixturevalue("postgres") if kind == "postgres" else str(tmp_path / "study.db")
    name = next(NAMES)
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), where, name], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    mine = Journal(open_store(where), name)
    with pytest.raises(JournalInUseError):
        mine.begin({}, lambda: 4)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    monkeypatch.undo()
    mine.begin({}, lambda: 4)
    assert mine.record.total == 3
    mine._store.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.2)
    monkeypatch.setattr("dphypo.journal.store._WAIT_FOR_SERVER_S", 0.2)
    monkeypatch.setattr("dphypo.journal.store.PostgreSQL.beat_s", 0.2)


@pytest.mark.usefixtures("impatient")
def test_the_built_in_databases_conform(tmp_path, postgres):
    check_store(lambda: SQLite(tmp_path / "study.db"))
    check_store(lambda: SQLite(None))
    check_store(lambda: PostgreSQL(make_url(postgres)))


def test_a_database_that_rounds_is_told(tmp_path):
    class Careless(SQLite):
        def prepare(self, connection, kind):
            super().prepare(connection, kind)
            rounded = "UPDATE dphypo_change SET content = replace(content, '0.30000000000000004', '0.3')"
            connection.exec_driver_sql(rounded)
            connection.commit()

    with pytest.raises(JournalError, match="changed by something other"):
        check_store(lambda: Careless(tmp_path / "study.db"))


def test_a_database_that_two_processes_may_use_is_told(postgres):
    class Shared(PostgreSQL):
        def hold(self, connection, name):
            pass

    with pytest.raises(AssertionError, match="two connections"):
        check_store(lambda: Shared(make_url(postgres)))


def test_a_journal_is_a_path_a_url_a_store_or_memory(tmp_path):
    with pytest.raises(ValueError, match="journal"):
        open_store("cupboard:///study")
    store = Store(SQLite(None))
    assert open_store(store) is store
    url = open_store(f"sqlite:///{tmp_path}/a.db")
    Journal(url, "study").begin({}, lambda: 1)
    assert (tmp_path / "a.db").exists()
    url.close()


@pytest.mark.parametrize("where", ["mysql://user:PASSWORD@host/db", "://", "sqlite://"])
def test_another_database_is_refused_without_showing_its_password(where):
    with pytest.raises(ValueError, match="journal") as caught:
        open_store(where)
    assert "PASSWORD" not in str(caught.value)


def test_a_file_that_cannot_be_made_is_a_clear_error(tmp_path):
    with pytest.raises(JournalError, match=r"cannot be used: No such file .* in a folder that exists"):
        Journal(open_store(tmp_path / "missing" / "study.db"), "study").begin({}, lambda: 1)


@pytest.mark.parametrize("length", [201, 249, 255, 300])
def test_a_name_that_is_too_long_for_the_files_beside_it_is_refused_when_it_is_given(length, tmp_path):
    for kind in ("journal", "ledger"):
        with pytest.raises(ValueError, match=rf"{kind} = .* give a file name of at most 200 bytes"):
            open_store(tmp_path / ("é" * (length // 2) + "x" * (length % 2)), kind=kind)
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_the_greatest_length_is_used(tmp_path):
    with make(tmp_path / ("x" * 200)) as study:
        study.run(progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 200]


def test_a_file_that_is_no_journal_is_a_clear_error(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(JournalError, match="a file of another kind"):
        Journal(open_store(path), "study").begin({}, lambda: 1)


def test_params_are_read_back_as_they_were():
    params = {"a": (1, (2.5, None)), "b": True, "c": float("inf"), "d": "x"}
    assert frozen(json.loads(json.dumps(params))) == params
