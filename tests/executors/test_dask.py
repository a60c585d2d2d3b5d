"""Runs on a real Dask cluster: two worker processes on this machine, started and stopped here."""

from __future__ import annotations

import time
import warnings

import pytest
from support.executor_world import sleeps
from support.study_world import facts, make, train

from dphypo.band import Band
from dphypo.executors import Dask, hire
from dphypo.journal import Trial
from dphypo.testing import check_executor

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
ALLOWED = "distributed.scheduler.allowed-failures"


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings(), dask.config.set({ALLOWED: 0}):
        warnings.simplefilter("ignore")
        options = {"threads_per_worker": 1, "dashboard_address": None, "resources": {"GPU": 1}}
        with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
            yield client


def test_dask_conforms(client):
    check_executor(lambda: Dask(client), megabytes=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_of_200_megabytes_comes_back(client):
    check_executor(lambda: Dask(client), megabytes=200)


def test_a_study_on_dask_is_the_study_in_this_process(client):
    uniform = {"sampler": None, "band": Band(1.0, 1.0)}
    here, there = make(**uniform), make(**uniform)
    here.run(progress=False)
    there.run(progress=False, executor=Dask(client, resources={"GPU": 1}), workers=2)
    assert facts(there) == facts(here)


def trial(number: int, **params) -> Trial:
    return Trial(params, 10**17 + number, number, b"key%d" % number)


def test_the_scheduler_is_told_nothing_of_the_study(client):
    """Keys are random; the state that the scheduler keeps holds neither seeds nor numbers nor λ."""

    def state(dask_scheduler):
        log = [str(one) for one in dask_scheduler.transition_log]
        return [str(key) for key in dask_scheduler.tasks], log, repr(list(dask_scheduler.tasks.values()))

    with hire(sleeps, 2, executor=Dask(client)) as executor:
        for number in range(2):
            executor.start(trial(number, seconds=1.0, lr=0.123454321))
        ours: set[str] = set()
        while len(ours) < 2:
            keys, log, tasks = client.run_on_scheduler(state)
            ours = {key for key in keys if key.startswith("dphypo-")}
        executor.wait()
        executor.wait()
    said = " ".join([*keys, *log, tasks])
    assert "10000000000000000" not in said
    assert "0.12345" not in said


def test_a_run_whose_worker_is_retired_is_not_made_again_by_dask(client, tmp_path):
    """Dask moves the task to another worker without counting a failure; the claim refuses it there."""
    with hire(sleeps, 1, executor=Dask(client)) as executor:
        executor.start(trial(0, seconds=20.0, file=str(tmp_path / "begun")))
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        busy = [worker for worker, keys in client.processing().items() if keys]
        client.cluster.scale(3)
        client.wait_for_workers(3)
        client.run_on_scheduler(_remove, worker=busy[0])
        _, outcome = executor.wait()
        assert outcome is None
    client.cluster.scale(2)


async def _remove(dask_scheduler, worker):
    """As when a worker is retired: it goes, and its tasks with it to another."""
    await dask_scheduler.remove_worker(worker, stimulus_id="test", expected=True)


def test_a_scheduler_that_starts_runs_again_is_refused():
    with warnings.catch_warnings(), dask.config.set({ALLOWED: 3}):
        warnings.simplefilter("ignore")
        options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as other:
            with pytest.raises(
                ValueError, match=r"allowed-failures: 3.*DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0"
            ):
                make().run(progress=False, executor=Dask(other))
            with pytest.raises(ValueError, match="not independent"):
                make(lost="failed").run(progress=False, executor=Dask(other), workers=2)
            with pytest.raises(ValueError, match=r"Dask\(client\)"):
                make().run(progress=False, executor=other.get_executor())
    with pytest.raises(ValueError, match=r"distributed\.Client"):
        Dask("tcp://somewhere:8786")
    with pytest.raises(ValueError, match="closed"), hire(train, 1, executor=Dask(other)):
        pass
