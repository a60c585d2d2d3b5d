"""The journal: what it makes impossible, and what it keeps. On SQLite, in memory and on a real PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, func, select
from support import scripts
from support.journal_world import NAMES, finished, trial

from dphypo.errors import JournalError
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store, secret
from dphypo.mechanisms import Outcome


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
    journal.claim(trial(0, params=params, seed=2**256 - 1, tie_key=bytes(range(16))))
    journal.finish(trial(0), Outcome(None, 0.1 + 0.2), b"\x00model\xff")
    journal.claim(trial(1, attempts=2))
    again = Journal(store, journal._name)
    again.begin({}, lambda: 9)
    record = again.record
    assert record.total == 3
    assert record.trials[0].params == params
    assert record.trials[0].seed == 2**256 - 1
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


def test_a_failed_run_keeps_no_model(journal):
    journal.claim(trial(0))
    refused(journal, lambda: journal.finish(trial(0), Outcome.failed("failed"), b"m"))


def test_nothing_is_committed_after_the_release(journal):
    finished(journal, 1.0, 2.0, 3.0)
    journal.release("MODEL", "{}")
    refused(journal, lambda: journal.attempted(trial(0, attempts=2)))


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
    table = secret
    few = select(func.count()).where(table.c.name == journal._name, table.c.number != 0)
    assert (
        journal._store.commit(lambda connection: connection.scalar(few)) == 3 + 1
    )  # three seeds; change 0 has the key
    assert journal.model() == b"model 2"


def test_a_model_is_kept_in_pieces(store, journal, monkeypatch):
    """Neither database stores a gigabyte in one value."""
    monkeypatch.setattr("dphypo.journal.store.PIECE", 1000)
    mine = (secret.c.name == journal._name, func.length(secret.c.content) > 100)

    def pieces() -> int:
        return journal._store.commit(lambda connection: connection.scalar(select(func.count()).where(*mine)))

    for number, size in enumerate((12_345, 3_000, 999)):
        model = bytes(range(256)) * (size // 256 + 1)
        journal.claim(trial(number))
        journal.finish(trial(number), Outcome(None, float(number)), model[:size])
        assert pieces() == -(-size // 1000), "the pieces of a beaten model are erased"
        assert Journal(store, journal._name).model() == model[:size]


def test_a_model_with_a_missing_piece_is_refused(store, journal, monkeypatch):
    monkeypatch.setattr("dphypo.journal.store.PIECE", 1000)
    journal.claim(trial(0))
    journal.finish(trial(0), Outcome(None, 1.0), bytes(5000))
    for piece in (4, 1):
        gone = delete(secret).where(secret.c.name == journal._name, secret.c.piece == piece)
        store.commit(lambda connection, gone=gone: connection.execute(gone))
        with pytest.raises(JournalError, match="the model that it keeps is not the one that was committed"):
            journal.model()


@pytest.mark.slow
def test_a_model_that_is_larger_than_a_value_may_be_takes_twice_its_size_in_memory(tmp_path):
    code = """
import resource, sys
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.mechanisms import Outcome
from support.journal_world import trial
journal = Journal(open_store(sys.argv[1]), "study")
journal.begin({}, lambda: 1)
journal.claim(trial(0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = bytes(1_100_000_000)
journal.finish(trial(0), Outcome(None, 1.0), model)
journal.rest()
assert Journal(open_store(sys.argv[1]), "study").model() == model
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(model))
"""
    done = scripts.run(code, str(tmp_path / "study.db"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2.1


def test_a_journal_has_a_key_of_its_own_from_its_first_row_on(store, journal):
    key = journal.record.records_key
    assert len(key) == 32
    other, again = Journal(store, next(NAMES)), Journal(store, journal._name)
    other.begin({}, lambda: 1)
    again.begin({}, lambda: 1)
    assert again.record.records_key == key != other.record.records_key
    assert key.hex() not in repr(journal.record)


def test_one_fingerprint_of_the_records_is_kept(store, journal):
    assert journal.fingerprint() is None
    journal.commit_fingerprint(bytes(range(256)) * 40)
    refused(journal, lambda: journal.commit_fingerprint(b"other records"))
    finished(journal, 1.0, 2.0, None)
    again = Journal(store, journal._name)
    assert again.fingerprint() == bytes(range(256)) * 40
    journal = again
    journal.release("MODEL", "{}")
    journal.shred()
    assert journal.fingerprint() is None
    assert journal.record.records_key is None


def test_records_have_no_fingerprint_after_the_first_run_is_drawn(journal):
    journal.claim(trial(0))
    refused(journal, lambda: journal.commit_fingerprint(b"late"))


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
