"""A plan with a survey whose process is killed at any commit goes on to what it would have published."""

from __future__ import annotations

import itertools
import signal

import pytest
from support.crash_server import KILLS, serve
from support.slow import mostly_slow
from support.survey_plan_world import RUNS, facts, make

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def server():
    with serve("survey_plan_world") as server:
        yield server


@pytest.fixture(scope="module")
def uninterrupted():
    return facts(make())


def resumed(journal, name="study"):
    with make(journal, name=name) as search:
        return facts(search)


@pytest.mark.parametrize(("moment", "step"), mostly_slow(KILLS))
def test_a_process_killed_at_any_commit_changes_nothing(server, uninterrupted, tmp_path, moment, step):
    assert server.run(str(tmp_path / "whole.db"), log=str(tmp_path / "count")) == 0
    count = int((tmp_path / "count").read_text())
    assert count >= 2 + 2 * (RUNS + 1) + 2, "every λ, every outcome and both publications are commits of their own"
    for commit in range(1, count + 1, step):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, at={moment: commit}) == KILLED
        assert resumed(journal) == uninterrupted, f"killed {moment} commit {commit} of {count}"


def test_a_process_with_workers_killed_changes_no_count(server, tmp_path):
    for commit in (4, 8, 11):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, workers=2, at={"after": commit}) == KILLED
        _, model, rows, _, _ = resumed(journal)
        assert len(rows) == RUNS
        assert model["steps"] == 20


@pytest.mark.slow
def test_a_process_killed_in_postgres_changes_nothing(server, uninterrupted, postgres):
    names = (f"survey {number}" for number in itertools.count())
    for commit in range(3, 18, 4):
        name = next(names)
        assert server.run(postgres, name=name, at={"after": commit}) == KILLED
        assert resumed(postgres, name) == uninterrupted
