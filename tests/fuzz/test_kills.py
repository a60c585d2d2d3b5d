"""Coordinators and workers killed at random times: the journal keeps every invariant, and one release is made."""

from __future__ import annotations

import itertools
import random

import pytest
from support import stages_world, study_world
from support.crash_server import serve
from support.slow import mostly_slow
from support.study_world import score

NAMES = (f"kills {number}" for number in itertools.count())
WORLDS = {"study": ("study_world", study_world), "stages": ("stages_world", stages_world)}


@pytest.fixture(params=mostly_slow(["sqlite", "postgres"]))
def where(request, tmp_path):
    if request.param == "postgres":
        return lambda: (request.getfixturevalue("postgres"), next(NAMES))
    files = (str(tmp_path / f"{number}.db") for number in itertools.count())
    return lambda: (next(files), "study")


def rows(search, kind: str) -> list[list[dict]]:
    """The runs of every part that has begun."""
    if kind == "study":
        return [search.curator().trials()]
    found = []
    for stage in (1, 2):
        try:
            found.append(search.curator(stage).trials())
        except ValueError:  # it has not begun
            break
    return found


def check(kind: str, journal: str, name: str) -> None:
    """What was committed before is there after, every run has one outcome, and the release is the best of them."""
    make, slow = WORLDS[kind][1].make, study_world.slow
    with make(journal, slow, name=name) as search:
        before = rows(search, kind)
    with make(journal, slow, name=name) as search:
        release = search.run(progress=False)
        again = search.run(progress=False)
        after = rows(search, kind)
    assert (again.params, again.score) == (release.params, release.score)
    for old, new in zip(before, after, strict=False):
        for one, other in zip(old, new, strict=False):
            assert (one["params"], one["seed"]) == (other["params"], other["seed"])
            assert not one["done"] or (one["score"], one["failure"]) == (other["score"], other["failure"])
    last = after[-1]
    assert all(run["done"] for part in after for run in part)
    scored = [run for run in last if run["failure"] is None]
    assert all(run["score"] == score(run["params"], run["seed"]) for run in scored)
    if scored:
        assert release.score == max(run["score"] for run in scored)
    else:
        assert release.model is None


def killed(kind: str, where, count: int, seed: int, workers: bool) -> None:
    rng = random.Random(seed)
    with serve(WORLDS[kind][0]) as server:
        for _ in range(count):
            journal, name = where()
            if workers:
                times = [rng.uniform(0.02, 0.2) for _ in range(2)]
                status = server.run(journal, name=name, mechanism="slow", workers=2, kill_workers_after_s=times)
                assert status in (0, 1), "a worker that dies ends no study but by an error"
            else:
                server.run(journal, name=name, mechanism="slow", kill_after_s=rng.uniform(0.0, 0.6))
            check(kind, journal, name)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [False, True])
def test_some_kills_lose_nothing(where, workers):
    killed("study", where, 2, 1, workers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("workers", [False, True])
def test_many_kills_lose_nothing(kind, where, workers):
    """Thirty a case, eight cases; with workers, two are killed in each: 360 kills in all."""
    killed(kind, where, 30, 2, workers)
