"""What a run does to its process means the same on every executor, and ends within the time that is stated.

An interrupt that the run raises is its failure; one that a signal causes is no outcome. A child that the run forks ends
where the run would return. A run that ends its process is lost or has failed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.executor_world import misbehaves, sleeps
from support.study_world import RELATION, SPACE

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.errors import JournalError
from dphypo.executors import Dask, Ray, Submitit, Withdrawn
from dphypo.executors.executor import Execution
from dphypo.executors.futures import claim
from dphypo.journal.journal import Journal, Trial
from dphypo.laws import Pmf
from dphypo.mechanisms import Outcome
from dphypo.search.runner import orderly

WITHIN_S = {"submitit": 90.0}  # of which submitit waits 15 for the result of a job that died
LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("dask", "ray", "submitit")]


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[Any]:
    """What ``run(executor=...)`` takes."""
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "threads":
            yield stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        elif name == "pool":
            context = multiprocessing.get_context("fork")
            yield stack.enter_context(concurrent.futures.ProcessPoolExecutor(1, context))
        elif name == "dask":
            import dask
            import distributed

            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
            cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
            yield Dask(stack.enter_context(distributed.Client(stack.enter_context(cluster))))
        elif name == "ray":
            import ray

            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
            stack.callback(ray.shutdown)
            yield Ray()
        elif name == "submitit":
            import submitit

            yield Submitit(submitit.LocalExecutor(folder / "jobs"))
        else:
            yield name


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    """A worker that is started afresh finds what this process finds."""
    tests = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))


def ended(name: str, do: str, folder: Path) -> Outcome | Withdrawn | None:
    """How one run ended; it was made once, in time, and a good run can be made after it."""
    trial, began = Trial({"do": do, "folder": str(folder)}, 7, 0, b"key"), time.monotonic()
    with started(name, folder) as executor:
        with Execution(1, "fork", executor).open(misbehaves) as made:
            made.start(trial)
            outcome = made.wait()[1]
        assert time.monotonic() - began < WITHIN_S.get(name, 40.0)
        assert len(list(folder.glob(f"{do} *"))) == 1
        if outcome is not None or name != "pool":  # a pool that lost a process is broken
            with Execution(1, "fork", executor).open(misbehaves) as made:
                made.start(Trial({"do": "well"}, 8, 1, b"key"))
                assert made.wait()[1].score == 1.0
    return outcome


@pytest.mark.parametrize("name", ["in_process", "processes", "threads", "pool", *LONG])
@pytest.mark.parametrize("do", ["interrupt", "interrupt again"])
def test_an_interrupt_that_a_run_raises_is_its_failure(name, do, tmp_path):
    try:
        outcome = ended(name, do, tmp_path)
    except KeyboardInterrupt:
        pytest.fail("it stopped the search")
    assert isinstance(outcome, Outcome)
    assert "KeyboardInterrupt" in outcome.failure


@pytest.mark.parametrize("name", ["in_process", "processes", "threads", "pool", *LONG])
@pytest.mark.parametrize("do", ["fork and raise", "fork and return"])
def test_a_child_that_a_run_forks_does_not_outlive_the_run(name, do, tmp_path):
    outcome = ended(name, do, tmp_path)
    assert isinstance(outcome, Outcome)
    assert outcome.score == 1.0


@pytest.mark.parametrize("name", ["processes", "threads", "pool", *LONG])
def test_a_run_that_exits_has_failed(name, tmp_path):
    assert "SystemExit: 3" in ended(name, "exit", tmp_path).failure


@pytest.mark.parametrize("name", ["processes", "pool", *LONG])
def test_a_run_that_ends_its_process_is_lost(name, tmp_path):
    assert ended(name, "end", tmp_path) is None


def test_a_worker_that_a_signal_interrupts_has_withdrawn_its_run(tmp_path):
    said = tmp_path / "pid"
    context = multiprocessing.get_context("fork")
    with (
        concurrent.futures.ProcessPoolExecutor(1, context) as pool,
        Execution(1, executor=pool).open(sleeps) as made,
    ):
        made.start(Trial({"file": str(said), "seconds": 60}, 7, 0, b"key"))
        while not said.exists() or not said.read_text():
            time.sleep(0.02)
        os.kill(int(said.read_text()), signal.SIGINT)
        assert isinstance(made.wait()[1], Withdrawn)


def test_an_interrupt_while_runs_are_made_in_this_process_is_no_outcome():
    calls = []

    @dphypo.mechanism(event=PureDp(0.1), relation=RELATION, seeded=True)
    def interrupted(params, *, seed):
        calls.append(seed)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return {"lr": params["lr"]}, 1.0

    study = dphypo.Study(SPACE, interrupted, Pmf({3: 1.0}), Band(1, 1), delta=1e-6, journal=None)
    with pytest.raises(KeyboardInterrupt):
        study.run(progress=False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    study.run(progress=False)
    assert calls[1] == calls[2], "the run was made again as it was"
    assert [trial["failure"] for trial in study.curator().trials()] == [None] * 3


class Preempting(concurrent.futures.ThreadPoolExecutor):
    """Takes every worker back after its run has begun."""

    starts = 0

    def submit(self, make, task, mechanism):
        self.starts += 1
        assert self.starts < 1000, "a run is made again without end"
        return super().submit(lambda: Withdrawn() if claim(task) else None)


def test_a_run_that_is_withdrawn_again_and_again_is_lost_in_the_end():
    study = dphypo.Study(SPACE, misbehaves, Pmf({2: 1.0}), Band(1, 1), delta=1e-6, journal=None)
    with Preempting(1) as pool:
        release = study.run(progress=False, executor=pool)
    assert release.model is None
    reasons = {trial["failure"] for trial in study.curator().trials()}
    assert reasons == {"the process that executed this run died three times without progress"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, JournalError("the disk is full")], ids=["interrupt", "full disk"])
def test_a_run_that_could_not_be_taken_back_at_once_counts_no_attempt(error, tmp_path, monkeypatch):
    """The commit that takes it back fails; what closes the search takes it back again."""
    attempted, told = Journal.attempted, []

    def once(journal, trial):
        told.append(trial)
        if len(told) == 1:
            raise error
        attempted(journal, trial)

    study = dphypo.Study(SPACE, misbehaves, Pmf({1: 1.0}), Band(1, 1), delta=1e-6, journal=tmp_path / "study.db")
    monkeypatch.setattr(Journal, "attempted", once)
    with Preempting(1) as pool, pytest.raises((KeyboardInterrupt, JournalError)):
        study.run(progress=False, executor=pool)
    assert [trial["attempts"] for trial in study.curator().trials()] == [0]


def test_what_a_handler_of_signals_raises_shows_nothing_of_the_run():
    def handler(number, frame):
        raise LookupError("stop")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(LookupError) as caught, orderly():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.__suppress_context__


@pytest.mark.slow
def test_a_run_that_preempts_itself_ends(tmp_path):
    """On submitit it would be made again without end."""
    import submitit

    from dphypo.executors import futures

    begun = tmp_path / "begun"
    begun.mkdir()
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=60)
    most = futures._MOST_WITHDRAWALS
    futures._MOST_WITHDRAWALS = 1
    try:
        with Execution(1, executor=Submitit(executor)).open(misbehaves) as jobs:
            outcomes = []
            for _ in range(2):
                jobs.start(Trial({"do": "preempt", "folder": str(begun)}, 7, 0, b"key"))
                outcomes.append(jobs.wait()[1])
    finally:
        futures._MOST_WITHDRAWALS = most
    assert isinstance(outcomes[0], Withdrawn)
    assert outcomes[1] is None
    assert len(list(begun.iterdir())) == 2
