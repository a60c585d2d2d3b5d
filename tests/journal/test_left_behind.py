"""What a journal leaves behind: in its files, in the pages of beaten models, and in PostgreSQL's statistics."""

from __future__ import annotations

import os
import stat

import pytest
from sqlalchemy import make_url
from support.journal_world import NAMES, finished, trial

from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.mechanisms import Outcome


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
        for secret in (b"LAMBDA", b"TIEKEY".hex().encode(), b"FAILURE", b"WEIGHTS"):
            assert secret not in contents[-1]
        assert b"certificate" in contents[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.db", "40.db"]
    assert contents[0] == contents[1]


def _statistics(connection) -> list:
    from sqlalchemy import text

    columns = "relname, n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup, n_live_tup"
    query = f"SELECT {columns} FROM pg_stat_user_tables WHERE relname LIKE 'dphypo%' ORDER BY 1"
    connection.execute(text("SELECT pg_stat_force_next_flush()"))
    connection.commit()
    connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return [tuple(row) for row in connection.execute(text(query))]


@pytest.mark.slow
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
            spread = "SELECT max(xmin::text::bigint) - min(xmin::text::bigint) FROM dphypo_book"
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
        size = text("SELECT pg_total_relation_size('dphypo_secret')")
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
