"""The journal: what it makes impossible, what it keeps, what it leaves behind. On SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
import textwrap

import pytest
from sqlalchemy import insert, make_url, select

from dphypo.journal import (
    Journal,
    JournalError,
    JournalInUseError,
    PostgreSQL,
    SQLite,
    Store,
    Trial,
    engines,
    open_store,
)
from dphypo.journal import params as _params
from dphypo.journal import schema as schema
from dphypo.mechanisms import Outcome
from dphypo.testing import check_engine

NAMES = (f"study {number}" for number in itertools.count())


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def store(request, tmp_path):
    if request.param == "postgres":
        opened = open_store(request.getfixturevalue("postgres"))
    else:
        opened = open_store(tmp_path / "study.db" if request.param == "sqlite" else None)
    yield opened
    opened.close()


@pytest.fixture
def journal(store):
    journal = Journal(store, next(NAMES))
    journal.begin({"law": "public"}, lambda: 3)
    return journal


def trial(number: int, **changes: object) -> Trial:
    return Trial(**{"params": {"lr": 0.1}, "seed": 7 + number, "number": number, "tie_key": b"k%d" % number} | changes)


def finished(journal: Journal, *scores: float | None) -> None:
    for number, score in enumerate(scores):
        journal.claim(trial(number))
        result = Outcome(None, score, None if score is not None else "failed")
        journal.finish(trial(number), result, None if score is None else b"model %d" % number)


def test_t_is_drawn_once_and_kept(store):
    name = next(NAMES)
    draws = iter([5, 6])
    first = Journal(store, name)
    assert first.begin({"law": "x"}, lambda: next(draws)) == {"law": "x"}
    again = Journal(store, name)
    assert again.begin({"law": "y"}, lambda: next(draws)) == {"law": "x"}
    assert again.record.total == 5
    assert next(draws) == 6


def test_a_draw_that_fails_leaves_no_study(store):
    journal = Journal(store, next(NAMES))

    def broken() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.begin({}, broken)
    journal.begin({}, lambda: 2)
    assert journal.record.total == 2


def test_everything_committed_is_read_back(store, journal):
    params = {"lr": 0.1, "layers": (64, (3, None)), "flag": True, "name": "ünïcode", "n": 3}
    journal.claim(trial(0, params=params, seed=2**63 - 1, tie_key=bytes(range(16))))
    journal.finish(trial(0), Outcome(None, 0.1 + 0.2), b"\x00model\xff")
    journal.claim(trial(1, attempts=2))
    again = Journal(store, journal._name)
    again.begin({}, lambda: 9)
    record = again.record
    assert record.total == 3
    assert record.trials[0].params == params
    assert record.trials[0].seed == 2**63 - 1
    assert record.trials[0].tie_key == bytes(range(16))
    assert record.trials[1].attempts == 2
    assert record.results.keys() == {0}
    assert record.results[0].score == 0.1 + 0.2
    assert record.best == 0
    assert again.model() == b"\x00model\xff"
    assert not record.released
    assert not record.complete


def refused(journal: Journal, act) -> None:
    before = vars(journal._load())
    with pytest.raises(JournalError, match="contradict") as caught:
        act()
    assert caught.value.__context__ is None
    assert vars(journal.record) == before


def test_a_run_is_drawn_once(journal):
    journal.claim(trial(0))
    refused(journal, lambda: journal.claim(trial(0, seed=99)))


@pytest.mark.parametrize("number", [3, 4, -1])
def test_no_run_is_beyond_t(journal, number):
    refused(journal, lambda: journal.claim(trial(number)))


def test_a_run_has_one_outcome(journal):
    journal.claim(trial(0))
    journal.finish(trial(0), Outcome(None, 1.0), b"m")
    refused(journal, lambda: journal.finish(trial(0), Outcome(None, 2.0), b"m"))
    refused(journal, lambda: journal.finish(trial(0), Outcome.failed("failed"), None))


@pytest.mark.parametrize(
    ("score", "failure"),
    [(None, None), (1.0, "failed"), (float("inf"), None), (-float("inf"), None), (float("nan"), None)],
)
def test_an_outcome_is_a_finite_score_or_a_failure(journal, score, failure):
    journal.claim(trial(0))
    refused(journal, lambda: journal.finish(trial(0), Outcome(None, score, failure), None))


def test_no_outcome_without_a_run(journal):
    refused(journal, lambda: journal.finish(trial(0), Outcome(None, 1.0), b"m"))


def test_attempts_are_bounded(journal):
    journal.claim(trial(0))
    journal.attempted(trial(0, attempts=3))
    refused(journal, lambda: journal.attempted(trial(0, attempts=4)))


def test_the_kept_model_belongs_to_an_outcome(journal):
    row = {"study": journal._name, "number": 0, "model": b"m"}
    refused(journal, lambda: journal._store.commit(lambda connection: connection.execute(insert(schema.best), row)))


def test_a_release_is_made_once_and_only_when_all_runs_are_in(journal):
    finished(journal, 1.0, None)
    with pytest.raises(JournalError, match="every outcome"):
        journal.release("MODEL", "{}")
    journal.claim(trial(2))
    journal.finish(trial(2), Outcome(None, 0.5), None)
    journal.release("MODEL", "{}")
    assert journal.record.released
    refused(journal, lambda: journal.release("MODEL", "{}"))


def test_only_the_best_model_is_kept(journal):
    finished(journal, 1.0, 2.0, 3.0)
    rows = journal._store.commit(
        lambda connection: connection.execute(
            select(schema.best.c.model).where(schema.best.c.study == journal._name)
        ).all()
    )
    assert rows == [(b"model 2",)]


def test_shredding_leaves_the_certificate(journal):
    finished(journal, 1.0, 2.0, None)
    journal.release("MODEL", '{"epsilon": 1}')
    journal.shred()
    journal.shred()
    record = journal.record
    assert record.shredded
    assert record.released
    assert (record.total, record.trials, record.results, record.best) == (None, [], {}, None)
    assert record.certificate == '{"epsilon": 1}'


def test_an_error_holds_nothing_of_the_rows(journal):
    journal.claim(trial(0, params={"lr": "SECRETVALUE"}))
    with pytest.raises(JournalError) as caught:
        journal.claim(trial(0, params={"lr": "SECRETVALUE"}))
    assert "SECRETVALUE" not in f"{caught.value!r} {caught.getrepr(style='long', funcargs=False)}".replace(
        'params={"lr": "SECRETVALUE"}', ""
    )


# SQLite's files


def test_the_files_are_private_from_the_first_moment(tmp_path):
    old = os.umask(0)
    try:
        store = open_store(tmp_path / "study.db")
        journal = Journal(store, "study")
        journal.begin({}, lambda: 3)
        finished(journal, 1.0)
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["study.db", "study.db-lock", "study.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        store.close()
    finally:
        os.umask(old)
    assert [file.name for file in tmp_path.iterdir()] == ["study.db"]


def test_an_open_file_is_made_private(tmp_path):
    path = tmp_path / "study.db"
    path.touch(0o644)
    store = open_store(path)
    Journal(store, "study").begin({}, lambda: 3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.close()


def test_every_commit_is_on_the_disk_before_it_returns(tmp_path):
    store = open_store(tmp_path / "study.db")
    settings = store.commit(
        lambda connection: {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "locking_mode", "temp_store")
        }
    )
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "locking_mode": "exclusive",
        "temp_store": 2,
    }
    store.close()


def test_a_beaten_model_leaves_the_files_at_once(tmp_path):
    """Every model is smaller than the one before, so that the pages of a beaten one are freed and not written over."""
    store = open_store(tmp_path / "study.db")
    journal = Journal(store, "study")
    journal.begin({}, lambda: 3)
    models = [os.urandom(size) for size in (200_000, 40_000, 500)]

    def on_disk(model: bytes) -> bool:
        """Whether any 32 bytes of a model that are on one page are in the database, its log or its journal."""
        files = [file.read_bytes() for file in tmp_path.iterdir()]
        return any(model[at : at + 32] in file for at in range(0, len(model) - 31, 256) for file in files)

    for number, model in enumerate(models):
        journal.claim(trial(number))
        journal.finish(trial(number), Outcome(None, float(number)), model)
        assert [on_disk(one) for one in models] == [n == number for n in range(3)]
    store.close()
    assert [on_disk(one) for one in models] == [False, False, True]


def test_a_shredded_file_holds_nothing_of_the_study_and_does_not_depend_on_t(tmp_path):
    contents = []
    for total in (3, 40):
        path = tmp_path / f"{total}.db"
        store = open_store(path)
        journal = Journal(store, "study")
        journal.begin({"law": "public"}, lambda total=total: total)
        for number in range(total):
            journal.claim(trial(number, params={"lr": "LAMBDA"}, tie_key=b"TIEKEY"))
            failed = number % 3 == 0
            result = Outcome.failed("FAILURE") if failed else Outcome(None, 1234.5 + number)
            journal.finish(trial(number), result, None if failed else b"WEIGHTS" * 3000)
        journal.release("MODEL", '{"certificate": "public"}')
        journal.shred()
        store.close()
        contents.append(path.read_bytes())
        for secret in (b"LAMBDA", b"TIEKEY", b"FAILURE", b"WEIGHTS"):
            assert secret not in contents[-1]
        assert b'{"certificate": "public"}' in contents[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.db", "40.db"]
    assert contents[0] == contents[1]


# One process at a time

HOLDER = """
    import sys, time
    from dphypo.journal import *
    journal = Journal(open_store(sys.argv[1]), sys.argv[2])
    journal.begin({}, lambda: 3)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_study_is_held_by_one_process_and_freed_by_its_death(kind, request, tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.journal.sqlite._WAIT_S", 0.2)
    monkeypatch.setattr("dphypo.journal.postgresql._WAIT_S", 0.2)
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


# Other databases


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("dphypo.journal.sqlite._WAIT_S", 0.2)
    monkeypatch.setattr("dphypo.journal.postgresql._WAIT_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_the_built_in_engines_conform(tmp_path, postgres):
    check_engine(lambda: SQLite(tmp_path / "study.db"))
    check_engine(lambda: SQLite(None))
    check_engine(lambda: PostgreSQL(make_url(postgres)))


def test_an_engine_that_does_not_check_foreign_keys_is_told(tmp_path):
    class Careless(SQLite):
        def connect(self, **options):
            connection = super().connect(**options)
            connection.connection.driver_connection.execute("PRAGMA foreign_keys = OFF")
            return connection

    with pytest.raises(AssertionError, match="an outcome without a run"):
        check_engine(lambda: Careless(tmp_path / "study.db"))


def test_an_engine_that_two_processes_may_use_is_told(postgres):
    class Shared(PostgreSQL):
        def hold(self, connection, name):
            pass

    with pytest.raises(AssertionError, match="two connections"):
        check_engine(lambda: Shared(make_url(postgres)))


# Where a journal is


def test_a_journal_is_a_path_a_url_a_store_or_memory(tmp_path):
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
    with pytest.raises(JournalError, match="cannot be created: No such file"):
        Journal(open_store(tmp_path / "missing" / "study.db"), "study").begin({}, lambda: 1)


def test_a_file_that_is_no_journal_is_a_clear_error(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(JournalError, match="not a journal"):
        Journal(open_store(path), "study").begin({}, lambda: 1)


def test_params_are_read_back_as_they_were():
    params = {"a": (1, (2.5, None)), "b": True, "c": float("inf"), "d": "x"}
    assert _params.loads(_params.dumps(params)) == params


# What is left in PostgreSQL


def _statistics(connection) -> list:
    from sqlalchemy import text

    columns = "relname, n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup, n_live_tup"
    query = f"SELECT {columns} FROM pg_stat_user_tables WHERE relname LIKE 'dphypo%' ORDER BY 1"
    connection.execute(text("SELECT pg_stat_force_next_flush()"))
    connection.commit()
    connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return [tuple(row) for row in connection.execute(text(query))]


def test_shredding_in_postgresql_leaves_no_count_of_the_runs(postgres):
    """Neither in the statistics of the tables, nor in the transaction numbers of the rows, nor in the files."""
    from sqlalchemy import create_engine, text

    url = make_url(postgres).set(drivername="postgresql+psycopg")
    server = create_engine(url, isolation_level="AUTOCOMMIT")
    seen = []
    for total in (3, 11):
        with server.connect() as connection:
            connection.execute(text(f"CREATE DATABASE shredded_{total}"))
        own = url.set(database=f"shredded_{total}")
        store = open_store(own.set(drivername="postgresql").render_as_string(hide_password=False))
        other, journal = Journal(store, "other"), Journal(store, "study")
        other.begin({}, lambda: 2)
        other.claim(trial(0))
        journal.begin({"law": "public"}, lambda total=total: total)
        finished(journal, *map(float, range(total)))
        journal.release("MODEL", '{"certificate": "public"}')
        journal.shred()
        assert journal.record.shredded
        assert len(other.record.trials) == 1
        other.finish(trial(0), Outcome(None, 1.0), b"m")
        store.close()
        engine = create_engine(own)
        with engine.connect() as connection:
            spread = "SELECT max(xmin::text::bigint) - min(xmin::text::bigint) FROM dphypo_study"
            seen.append((_statistics(connection), connection.scalar(text(spread))))
        engine.dispose()
    assert seen[0] == seen[1]
    with server.connect() as connection:
        for total in (3, 11):
            connection.execute(text(f"DROP DATABASE shredded_{total}"))
    server.dispose()


def test_a_beaten_model_leaves_the_files_of_postgresql(postgres):
    from sqlalchemy import text

    journal = Journal(open_store(postgres), next(NAMES))
    journal.begin({}, lambda: 3)

    def pages() -> int:
        size = text("SELECT pg_total_relation_size('dphypo_best')")
        return journal._store.commit(lambda connection: connection.scalar(size))

    model = os.urandom(200_000)
    journal.claim(trial(0))
    journal.finish(trial(0), Outcome(None, 0.0), model)
    one = pages()
    for number in (1, 2):
        journal.claim(trial(number))
        journal.finish(trial(number), Outcome(None, float(number)), model)
        assert pages() <= one
    journal._store.close()


def test_an_engine_of_ones_own_is_found_by_the_scheme_of_its_url(tmp_path, impatient):
    """One class in one file, anywhere: nothing else is edited."""

    @engines.register("drawer")
    class Drawer(SQLite):
        def __init__(self, url):
            super().__init__(tmp_path / f"{url.database}.db")

    store = open_store("drawer:///study")
    Journal(store, "study").begin({}, lambda: 3)
    assert (tmp_path / "study.db").exists()
    store.close()
    check_engine(lambda: Drawer(make_url("drawer:///other")))
    with pytest.raises(ValueError, match="journal"):
        open_store("cupboard:///study")
