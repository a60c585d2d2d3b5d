"""Runs on a real Dask cluster: two worker processes on this machine, started and stopped here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from support.executor_conformance import check_executor
from support.executor_world import sleeps, waits_for_file
from support.study_world import facts, make, train

from dphypo.band import Band
from dphypo.executors import Dask
from dphypo.executors.executor import Execution
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Outcome

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


@pytest.mark.slow
def test_dask_conforms(client):
    check_executor(lambda: Dask(client), megabytes=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_of_200_megabytes_comes_back(client):
    check_executor(lambda: Dask(client), megabytes=200)


@pytest.mark.slow
def test_a_study_on_dask_is_the_study_in_this_process(client):
    uniform = {"sampler": None, "band": Band(1.0, 1.0)}
    here, there = make(**uniform), make(**uniform)
    here.run(progress=False)
    there.run(progress=False, executor=Dask(client, resources={"GPU": 1}), workers=2)
    assert facts(there) == facts(here)


def trial(number: int, **params) -> Trial:
    return Trial(params, 10**17 + number, number, b"key%d" % number)


@pytest.mark.slow
def test_the_scheduler_is_told_nothing_of_the_study(client):
    """Keys are random; the state that the scheduler keeps holds neither seeds nor numbers nor λ."""

    def state(dask_scheduler):
        log = [str(one) for one in dask_scheduler.transition_log]
        return [str(key) for key in dask_scheduler.tasks], log, repr(list(dask_scheduler.tasks.values()))

    with Execution(2, executor=Dask(client)).open(sleeps) as executor:
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


@pytest.mark.slow
def test_a_run_whose_worker_is_retired_is_not_made_again_by_dask(client, tmp_path):
    """Dask moves the task to another worker without counting a failure; the claim refuses it there."""
    with Execution(1, executor=Dask(client)).open(sleeps) as executor:
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


def _hold_back(file):
    """This worker does not send its next result, and says in a file that it was asked for one."""

    def send(outcome):
        if Path(file).exists():
            raise NotImplementedError  # as it is usually sent
        Path(file).write_text(str(os.getpid()))
        time.sleep(60)

    distributed.protocol.dask_serialize.register(Outcome)(send)


def _take_tasks(dask_worker, whether):
    dask_worker.status = distributed.Status.running if whether else distributed.Status.paused


@contextlib.contextmanager
def workers_without_replacement(scheduler, count):
    command = ["dask", "worker", scheduler, "--no-nanny", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, "PYTHONPATH": path}}
    workers = [subprocess.Popen([sys.executable, "-m", *command], **quiet) for _ in range(count)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.slow
def test_a_result_that_cannot_be_fetched_is_lost_and_holds_up_no_other_run(tmp_path, monkeypatch):
    """A worker dies while its result is fetched. Dask would make the run again, as soon as there is a place for it."""
    monkeypatch.chdir(tmp_path)  # for the folders of the workers
    asked, end = tmp_path / "asked", tmp_path / "end"
    with warnings.catch_warnings(), dask.config.set({ALLOWED: 0}):
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
            workers_without_replacement(cluster.scheduler_address, 2),
            Execution(2, executor=Dask(client)).open(waits_for_file) as executor,
        ):
            client.wait_for_workers(2, timeout=60)
            client.run(_hold_back, str(asked))
            executor.start(trial(0, lr=0.1))
            executor.start(trial(1, file=str(end)))
            while not asked.exists() or not asked.read_text():
                time.sleep(0.05)
            os.kill(int(asked.read_text()), signal.SIGKILL)
            while len(left := list(client.scheduler_info(n_workers=-1)["workers"])) > 1:
                time.sleep(0.05)
            client.run(_take_tasks, whether=False, workers=left)
            end.touch()
            ended, outcome = executor.wait()
            assert ended.number == 1
            assert outcome.score == 1.0
            client.run(_take_tasks, whether=True, workers=left)
            ended, outcome = executor.wait()
            assert (ended.number, outcome) == (0, None)


@pytest.mark.slow
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
    with pytest.raises(ValueError, match="closed"), Execution(1, executor=Dask(other)).open(train):
        pass
