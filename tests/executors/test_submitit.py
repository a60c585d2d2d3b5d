"""Runs as jobs of submitit, by its executor for this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
from support.executor_conformance import check_executor
from support.executor_world import sees_gpus, sleeps, waits_for_file
from support.study_world import facts, make

from dphypo.band import Band
from dphypo.executors import Submitit, Withdrawn
from dphypo.executors.executor import Execution
from dphypo.journal.journal import Trial
from dphypo.laws import Pmf

submitit = pytest.importorskip("submitit")
TESTS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    """A job finds what this process finds."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]))


@pytest.mark.slow
def test_submitit_conforms(tmp_path):
    check_executor(lambda: Submitit(submitit.LocalExecutor(tmp_path)), megabytes=2)


@pytest.mark.slow
def test_a_model_of_200_megabytes_comes_back(tmp_path):
    check_executor(lambda: Submitit(submitit.LocalExecutor(tmp_path)), megabytes=200, deaths=False)


@pytest.mark.slow
def test_a_batch_system_that_answers_slowly_holds_up_no_study(tmp_path):
    """While one job is asked about, another may have ended and been told: the watch must go on."""

    class Slow(submitit.LocalExecutor):
        def submit(self, *arguments, **named):
            job = super().submit(*arguments, **named)
            answer = job.done

            def done(*force):
                time.sleep(0.7)
                return answer(*force)

            job.done = done
            return job

    options = {"sampler": None, "band": Band(1.0, 1.0), "runs": Pmf({6: 1.0})}
    here, there = make(**options), make(**options)
    here.run(progress=False)
    there.run(progress=False, workers=3, executor=Submitit(Slow(tmp_path / "jobs")))
    assert facts(there) == facts(here)


@pytest.mark.slow
def test_a_study_of_jobs_is_the_study_in_this_process_and_leaves_no_file(tmp_path):
    options = {"sampler": None, "band": Band(1.0, 1.0), "runs": Pmf({2: 1.0})}
    here, there = make(**options), make(**options)
    here.run(progress=False)
    folder = tmp_path / "jobs"
    folder.mkdir(mode=0o755)
    there.run(progress=False, executor=Submitit(submitit.AutoExecutor(folder, cluster="local")), workers=2)
    assert facts(there) == facts(here)
    assert list(folder.iterdir()) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_job_that_is_preempted_is_withdrawn_and_not_requeued(tmp_path):
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=60)
    said = tmp_path / "pid"
    with Execution(1, executor=Submitit(executor)).open(sleeps) as jobs:
        jobs.start(Trial({"file": str(said), "seconds": 60}, 7, 0, b"key"))
        while not said.exists() or not said.read_text():
            time.sleep(0.05)
        os.kill(int(said.read_text()), signal.SIGUSR2)  # as Slurm does, and as submitit's own tests do
        _, outcome = jobs.wait()
    assert isinstance(outcome, Withdrawn)
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.slow
def test_a_job_that_was_killed_holds_up_no_other(tmp_path):
    """Submitit waits 15 seconds for a result that a job may have written to a slow disk."""
    die, end, pids = tmp_path / "die", tmp_path / "end", [tmp_path / "first", tmp_path / "second"]
    with Execution(2, executor=Submitit(submitit.LocalExecutor(tmp_path / "jobs"))).open(waits_for_file) as jobs:
        jobs.start(Trial({"pid": str(pids[0]), "file": str(die), "dies": True}, 7, 0, b"key"))
        jobs.start(Trial({"pid": str(pids[1]), "file": str(end)}, 8, 1, b"other key"))
        while not all(file.exists() and file.read_text() for file in pids):
            time.sleep(0.05)
        die.touch()
        while Path("/proc", pids[0].read_text()).exists():
            time.sleep(0.05)
        time.sleep(1)  # until submitit has seen it too
        end.touch()
        ended, outcome = jobs.wait()
    assert (ended.number, outcome.score) == (1, 1.0)
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("name", ["dphypo job", "dphypo cancelled job"])
def test_without_threads_jobs_are_cancelled_and_their_files_erased(name, tmp_path, monkeypatch):
    def start(thread, start=threading.Thread.start):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    execution = Execution(2, executor=Submitit(submitit.LocalExecutor(tmp_path / "jobs")))
    with contextlib.suppress(RuntimeError), execution.open(sleeps) as jobs:
        for seed in range(2):
            jobs.start(Trial({"file": str(tmp_path / str(seed)), "seconds": 60}, seed, seed, b"key"))
    assert not list((tmp_path / "jobs").glob("*_submitted.pkl"))


def test_slurm_is_told_not_to_requeue(tmp_path, monkeypatch):
    """No Slurm here: the file that submitit would hand to sbatch."""
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for executor in (
        submitit.AutoExecutor(tmp_path / "jobs", cluster="slurm"),
        submitit.SlurmExecutor(tmp_path / "jobs"),
    ):
        inner = getattr(executor, "_executor", executor)
        executor.update_parameters(gpus_per_node=1)
        with Execution(1, executor=Submitit(executor, host="127.0.0.1")).open(sleeps):
            pass
        lines = inner._make_submission_file_text("command", "uid").splitlines()
        assert "#SBATCH --no-requeue" in lines
        assert "#SBATCH --gpus-per-node=1" in lines
    executor.update_parameters(additional_parameters={"requeue": True})
    with (
        pytest.raises(ValueError, match="requeue"),
        Execution(1, executor=Submitit(executor, host="127.0.0.1")).open(sleeps),
    ):
        pass


def test_a_job_sees_the_gpus_that_were_asked_for(tmp_path):
    executor = submitit.AutoExecutor(tmp_path / "jobs", cluster="local")
    executor.update_parameters(gpus_per_node=2)
    with Execution(1, executor=Submitit(executor)).open(sees_gpus) as workers:
        workers.start(Trial({}, 1, 0, b"key"))
        outcome = workers.wait()[1]
    assert outcome.score == 2


def test_what_is_no_executor_of_submitit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="AutoExecutor"):
        Submitit("slurm")
    with pytest.raises(ValueError, match=r"Submitit\(executor\)"):
        make().run(progress=False, executor="submitit")
    two = submitit.LocalExecutor(tmp_path)
    two.update_parameters(tasks_per_node=2)
    with pytest.raises(ValueError, match="tasks_per_node"):
        Submitit(two)
