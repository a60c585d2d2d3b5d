"""A study whose process is killed, at every commit and at random times, goes on to the release it would have made."""

from __future__ import annotations

import itertools
import random
import signal

import pytest
from support.crash_server import KILLS_AFTER, serve
from support.slow import mostly_slow
from support.study_world import deadly, facts, make, slow

from dphypo.journal.store import open_store

KILLED = -signal.SIGKILL
NAMES = (f"crash {number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server():
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def uninterrupted():
    study = make()
    study.run(progress=False)
    return facts(study)


@pytest.fixture(params=mostly_slow(["sqlite", "postgres"]))
def where(request, tmp_path):
    if request.param == "postgres":
        return lambda: (request.getfixturevalue("postgres"), next(NAMES))
    files = (str(tmp_path / f"{number}.db") for number in itertools.count())
    return lambda: (next(files), "study")


def resumed(journal, name, mechanism=None, **run):
    with make(journal, name=name, **({} if mechanism is None else {"mechanism": mechanism})) as study:
        study.run(progress=False, **run)
        return facts(study)


def commits(server, where, tmp_path) -> int:
    for _ in range(2):  # the first makes the tables of a server
        journal, name = where()
        assert server.run(journal, name=name, log=str(tmp_path / "count")) == 0
    return int((tmp_path / "count").read_text())


@pytest.mark.parametrize(("moment", "step"), mostly_slow(KILLS_AFTER))
def test_a_process_killed_at_any_commit_changes_nothing(server, uninterrupted, where, tmp_path, moment, step):
    count = commits(server, where, tmp_path)
    assert count >= 2 + 2 * uninterrupted[0], "T, every λ, every outcome and the release are commits of their own"
    for commit in range(1, count + 1, step):
        journal, name = where()
        assert server.run(journal, name=name, at={moment: commit}) == KILLED
        assert resumed(journal, name) == uninterrupted, f"killed {moment} commit {commit} of {count}"


@pytest.mark.slow
def test_a_process_killed_again_and_again_changes_nothing(server, uninterrupted, where):
    """Every process dies after a few commits of its own, until one is left nothing to do."""
    for step in (9, 11):  # enough for one outcome: a run that is lost three times is a failure
        journal, name = where()
        statuses = [server.run(journal, name=name, at={"after": step}) for _ in range(10)]
        assert statuses[0] == KILLED
        assert statuses[-1] == 0
        assert resumed(journal, name) == uninterrupted


@pytest.mark.slow
def test_a_process_killed_at_a_random_time_changes_nothing(server, uninterrupted, where):
    rng = random.Random(0)
    _killed_at_random(server, uninterrupted, where, [rng.uniform(0.0, 0.5) for _ in range(6)])


@pytest.mark.slow
def test_a_process_killed_at_many_random_times_changes_nothing(server, uninterrupted, where):
    rng = random.Random(1)
    _killed_at_random(server, uninterrupted, where, [rng.uniform(0.0, 0.5) for _ in range(150)])


def _killed_at_random(server, uninterrupted, where, times):
    for seconds in times:
        journal, name = where()
        server.run(journal, name=name, mechanism="slow", kill_after_s=seconds)
        assert resumed(journal, name, slow) == uninterrupted


def test_a_parallel_study_that_is_killed_keeps_t_and_all_that_was_committed(server, uninterrupted, where):
    rng = random.Random(2)
    for _ in range(3):
        journal, name = where()
        server.run(journal, name=name, mechanism="slow", workers=3, kill_after_s=rng.uniform(0.1, 0.4))
        with make(journal, slow, name=name) as study:
            total, before = study.curator().total(), study.curator().trials()
            study.run(progress=False, workers=3, start_method="fork")
            after = study.curator().trials()
        assert total == uninterrupted[0] == len(after)
        for old, new in zip(before, after, strict=False):
            assert (old["params"], old["seed"]) == (new["params"], new["seed"])
            assert not old["done"] or old["score"] == new["score"]


def test_a_run_that_kills_its_process_three_times_is_a_failure(server, tmp_path):
    journal = str(tmp_path / "study.db")
    deaths = 0
    while server.run(journal, mechanism="deadly") == KILLED:
        deaths += 1
    with make(journal, deadly) as study:
        trials = study.curator().trials()
        release = study.released()
    lost = [trial for trial in trials if trial["params"]["depth"] == 2]
    assert lost
    assert deaths == 3 * len(lost)
    assert all("died three times" in trial["failure"] and trial["attempts"] == 3 for trial in lost)
    assert all(trial["attempts"] == 1 and trial["score"] is not None for trial in trials if trial not in lost)
    assert release.params["depth"] != 2


def test_shredding_that_was_interrupted_is_done_again(server, tmp_path):
    """The rows are gone after the commit; the bytes after shred() has returned, the second time if need be."""
    path = tmp_path / "study.db"
    store = open_store(path)
    with make(store) as study:
        study.run(progress=False)
        store.forget = lambda **_: None  # as if killed between the two
        study.shred()
    store.close()
    with make(path) as study:
        study.shred()
    assert open_store(path)
    assert b'["weights"' not in path.read_bytes(), "the model is gone"
