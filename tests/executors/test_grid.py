"""The same study and survey with one, two and four workers, on every executor.

Exactly T (or k) runs are executed and counted, and what is released has the law that it has in this process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from scipy.stats import chisquare
from support.study_world import EVENT, RELATION, noise
from support.survey_world import SPACE as WORLD
from support.survey_world import Descent

import dphypo
from benchmarks.load_faults import started
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Pmf
from dphypo.space import Space

SPACE = Space({"depth": [1, 2, 3]})
LAW = {1: 0.5, 3: 0.5}
STUDIES = {"threads": 300, "processes": 60, "dask": 60, "ray": 60, "loky": 60}
FALSE_ALARM = 1e-6  # of each of the tests of the law

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Counted:
    """A run that leaves a file behind. The best depth wins."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.__name__ = self.__qualname__ = "counted"

    def __call__(self, params, *, seed):
        Path(self.folder, f"{seed} {os.getpid()} {noise(seed)}").touch()
        return params["depth"], params["depth"] + 0.5 * noise(seed)


@contextlib.contextmanager
def executor_of(name: str):
    if name == "threads":
        import concurrent.futures

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            yield lambda: pool
    elif name == "loky":
        import loky

        pool = loky.ProcessPoolExecutor(4)
        yield lambda: pool
        pool.shutdown(kill_workers=True)
    else:
        with started(name) as make:
            yield make


def counted(folder: Path) -> dphypo.mechanisms.Mechanism:
    folder.mkdir()
    return dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)(Counted(str(folder)))


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    """Workers find what this process finds."""
    path = [str(Path(__file__).parents[1]), str(Path(__file__).parent), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_tune_on_an_engine_is_tune_with_threads(name):
    options = {"epsilon": 3.0, "delta": 1e-6, "survey": 4, "workers": 2, "progress": False, "journal": None}
    with executor_of("threads") as make:
        here = dphypo.tune(WORLD, Descent(steps=300), executor=make(), entropy=Seeded(1), **options)
    with executor_of(name) as make:
        there = dphypo.tune(WORLD, Descent(steps=300), executor=make(), entropy=Seeded(1), **options)
    assert len(there.survey.rows) == 4
    assert there.survey.rows == here.survey.rows
    assert there.model == here.model


@pytest.mark.parametrize("name", [*STUDIES, "submitit"])
def test_t_runs_are_executed_and_the_release_has_its_law(name, tmp_path):
    with executor_of(name) as make:
        for workers in (1, 2, 4):
            folder = tmp_path / f"study {workers}"
            study = dphypo.Study(
                SPACE, counted(folder), Pmf({7: 1.0}), Band(1, 1), delta=1e-6, journal=None, entropy=SYSTEM
            )
            study.run(workers=workers, executor=make(), progress=False, start_method="fork")
            assert len(list(folder.iterdir())) == 7
            assert all(row["done"] and row["attempts"] == 1 for row in study.curator().trials())
            folder = tmp_path / f"survey {workers}"
            plan = dphypo.Stages(SPACE, [dphypo.Survey(counted(folder), 5)], delta=1e-6, journal=None)
            released = plan.run(workers=workers, executor=make(), progress=False, start_method="fork")
            assert len(released.survey.rows) == len(list(folder.iterdir())) == 5
        if name == "submitit":
            return
        mechanism = counted(tmp_path / "law")
        seen = {1: 0, 2: 0, 3: 0}
        for _ in range(STUDIES[name]):
            study = dphypo.Study(SPACE, mechanism, Pmf(LAW), Band(1, 1), delta=1e-6, journal=None, entropy=SYSTEM)
            best = study.run(workers=2, executor=make(), progress=False, start_method="fork").params
            seen[best["depth"]] += 1
    expected = [sum(p * ((d / 3) ** t - ((d - 1) / 3) ** t) for t, p in LAW.items()) for d in (1, 2, 3)]
    total = sum(seen.values())
    assert chisquare(list(seen.values()), [total * share for share in expected]).pvalue > FALSE_ALARM
