"""A search in stages whose process is killed at any commit, on either side of the boundary, goes on to the release it
would have made."""

from __future__ import annotations

import itertools
import signal

import pytest
from support.crash_server import KILLS, serve
from support.slow import mostly_slow
from support.stages_world import facts, make

KILLED = -signal.SIGKILL
NAMES = (f"crash in stages {number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server():
    with serve("stages_world") as server:
        yield server


@pytest.fixture(scope="module")
def asking():
    with serve("stages_ask_world") as server:
        yield server


@pytest.fixture(scope="module")
def uninterrupted():
    return facts(make())


def resumed(journal, name):
    with make(journal, name=name) as search:
        return facts(search)


def places(tmp_path):
    return ((str(tmp_path / f"{number}.db"), "study") for number in itertools.count())


@pytest.mark.parametrize(("moment", "step"), mostly_slow(KILLS))
def test_a_process_killed_at_any_commit_changes_nothing(server, uninterrupted, tmp_path, moment, step):
    where = places(tmp_path)
    journal, name = next(where)
    assert server.run(journal, name=name, log=str(tmp_path / "count")) == 0
    count = int((tmp_path / "count").read_text())
    runs = sum(total for total, _ in uninterrupted[0])
    assert count >= 2 * 2 + 2 * runs, "T, every λ, every outcome and the releases are commits of their own"
    for commit in range(1, count + 1, step):
        journal, name = next(where)
        assert server.run(journal, name=name, at={moment: commit}) == KILLED
        assert resumed(journal, name) == uninterrupted, f"killed {moment} commit {commit} of {count}"


@pytest.mark.slow
def test_a_process_that_asks_and_tells_and_is_killed_changes_nothing(asking, uninterrupted, tmp_path):
    where = places(tmp_path)
    journal, name = next(where)
    assert asking.run(journal, name=name, log=str(tmp_path / "count")) == 0
    assert resumed(journal, name) == uninterrupted
    for commit in range(1, int((tmp_path / "count").read_text()) + 1):
        journal, name = next(where)
        assert asking.run(journal, name=name, at={"after": commit}) == KILLED
        asked = make(journal, name=name)
        if commit % 2:  # another process goes on by asking, or by running the rest
            with asked:
                released = asked._runner.finished()  # killed after the release
                while not released and (trial := asked.ask()) is not None:
                    asked.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        assert resumed(journal, name) == uninterrupted, f"killed after commit {commit}"


def test_a_process_killed_again_and_again_changes_nothing(server, uninterrupted, tmp_path):
    journal, name = next(places(tmp_path))
    statuses = [server.run(journal, name=name, at={"after": 13}) for _ in range(12)]
    assert statuses[0] == KILLED
    assert statuses[-1] == 0
    assert resumed(journal, name) == uninterrupted


def test_a_process_killed_about_the_boundary_in_postgres_changes_nothing(server, uninterrupted, postgres):
    for commit in range(6, 16, 3):
        name = next(NAMES)
        assert server.run(postgres, name=name, at={"after": commit}) == KILLED
        assert resumed(postgres, name) == uninterrupted
