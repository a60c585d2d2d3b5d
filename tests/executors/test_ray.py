"""Runs on a real Ray, started and stopped here."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from support.executor_conformance import check_executor
from support.study_world import facts, make

from dphypo.band import Band
from dphypo.executors import Ray

ray = pytest.importorskip("ray")
TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def started():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            resources={"slot": 2},
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        yield
        ray.shutdown()


pytestmark = pytest.mark.filterwarnings("ignore")  # Ray opens files and sockets that it leaves to the collector


@pytest.mark.slow
def test_ray_conforms(started):
    check_executor(lambda: Ray(), megabytes=2)


@pytest.mark.slow
def test_a_model_of_200_megabytes_comes_back(started):
    check_executor(lambda: Ray(), megabytes=200)


@pytest.mark.slow
def test_a_study_on_ray_is_the_study_in_this_process(started):
    uniform = {"sampler": None, "band": Band(1.0, 1.0)}
    here, there = make(**uniform), make(**uniform)
    here.run(progress=False)
    there.run(progress=False, executor=Ray(num_cpus=1, resources={"slot": 1}), workers=2)
    assert facts(there) == facts(here)


def test_options_that_make_a_run_twice_are_refused():
    with pytest.raises(ValueError, match="max_retries"):
        Ray(max_retries=3)
    with pytest.raises(ValueError, match="retry_exceptions"):
        Ray(retry_exceptions=True)


@pytest.mark.slow
def test_ray_must_be_started_by_its_owner():
    if not ray.is_initialized():
        with pytest.raises(ValueError, match=r"ray\.init"):
            make().run(progress=False, executor=Ray())
