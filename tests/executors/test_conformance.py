"""Every executor passes the suite that is shipped for third parties, and the suite tells those that do not."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import re
import socket
import subprocess
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support.executor_conformance import check_executor
from support.study_world import facts, make

from dphypo.band import Band
from dphypo.errors import ExecutorError
from dphypo.executors import Dask, Pool, Ray, Submitit
from dphypo.executors.executor import Execution, InProcess
from dphypo.executors.futures import Claims, claim
from dphypo.mechanisms import Outcome
from dphypo.mechanisms.mechanism import attempt


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Runs of the suite that take less time; processes that are spawned take the usual time."""
    monkeypatch.setattr("support.executor_conformance._SECONDS", {"sleep": 0.05, "slow": 0.4, "stop": 0.3})


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_conform(start_method):
    check_executor(lambda: "processes", start_method=start_method)


def test_this_process_conforms():
    check_executor(lambda: "in_process", workers=1, deaths=False)


def test_threads_conform():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        check_executor(lambda: pool, deaths=False)


@pytest.mark.slow
def test_a_pool_of_processes_conforms():
    pools = []
    context = multiprocessing.get_context("fork")

    def pool() -> concurrent.futures.Executor:
        if pools:
            pools[-1].shutdown()  # a fork would copy its locks
        pools.append(concurrent.futures.ProcessPoolExecutor(2, context))
        return pools[-1]

    check_executor(pool)
    pools[-1].shutdown()


@pytest.mark.slow
def test_a_study_on_loky_is_the_study_in_this_process():
    import loky

    uniform = {"sampler": None, "band": Band(1.0, 1.0)}
    here, there = make(**uniform), make(**uniform)
    here.run(progress=False)
    pool = loky.ProcessPoolExecutor(2)
    there.run(progress=False, executor=pool, workers=2)
    pool.shutdown(kill_workers=True)
    assert facts(there) == facts(here)


@pytest.mark.slow
def test_loky_conforms():
    import loky

    pools = []

    def pool() -> concurrent.futures.Executor:
        if pools:
            pools[-1].shutdown(kill_workers=True)
        pools.append(loky.ProcessPoolExecutor(2))
        return pools[-1]

    check_executor(pool, megabytes=2)
    pools[-1].shutdown(kill_workers=True)


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_model_of_200_megabytes_comes_back(start_method):
    check_executor(lambda: "processes", start_method=start_method, megabytes=200)


class Careless(InProcess):
    """Makes the run again when it fails, as clusters like to."""

    def wait(self):
        trial = self._trial
        super().wait()
        self._trial = trial
        return super().wait()


def test_an_executor_that_repeats_runs_is_told():
    with pytest.raises(AssertionError, match="were made"):
        check_executor(lambda: Careless, workers=1, deaths=False)


def test_an_executor_that_is_none_is_refused():
    for wrong in ("my_clutser", 3):
        with pytest.raises(ValueError, match="executor"), Execution(executor=wrong).open(None):
            pass


def test_a_run_that_an_engine_starts_twice_is_made_once():
    """The executor here runs every task twice and returns what the second gave."""

    class Twice(concurrent.futures.ThreadPoolExecutor):
        def submit(self, task, *arguments):
            super().submit(task, *arguments).result()
            return super().submit(task, *arguments)

    with Twice(2) as pool, pytest.raises(AssertionError, match="a run was lost or withdrawn"):
        check_executor(lambda: pool, deaths=False)


def test_a_claim_needs_the_key_and_the_study():
    claims = Claims()
    ticket, other = claims.issue({}, 0), claims.issue({}, 0)
    stranger = replace(ticket, key=b"wrong")
    with pytest.raises(Exception, match="digest"):
        claim(stranger)
    assert claim(ticket)
    assert not claim(ticket)
    assert claims.withdraw(ticket) == (True, False), "the run was begun, and has not ended"
    assert claims.withdraw(other) == (False, False), "it was never asked for"
    assert not claim(other)
    late = claims.issue({}, 0)
    claims.close()
    assert not claim(late)


def test_a_broken_pool_says_what_to_do():
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    with pytest.raises(ExecutorError, match="again with a new executor"):
        check_executor(lambda: pool, megabytes=1)
    pool.shutdown()


class Deaf(concurrent.futures.ThreadPoolExecutor):
    """Its workers cannot reach the study."""

    def submit(self, task, *arguments):
        return super().submit(lambda: None)


def test_workers_that_cannot_reach_the_study_are_an_error_and_cost_no_run():
    study = make()
    with Deaf(2) as pool, pytest.raises(ExecutorError, match=r"127\.0\.0\.1:\d+: give an address"):
        study.run(progress=False, executor=Pool(pool, host="127.0.0.1"))
    assert all(trial["attempts"] == 0 for trial in study.curator().trials())


def test_a_stranger_who_says_nothing_holds_up_nobody():
    claims = Claims()
    ticket = claims.issue({}, 0)
    with socket.create_connection(ticket.address):
        assert claim(ticket)
    claims.close()


def test_an_engine_that_is_not_installed_says_how_to_install_it(monkeypatch):
    for name, use in {
        "dask": lambda: Dask(None),
        "ray": lambda: Ray()(None, workers=1),
        "submitit": lambda: Submitit(None),
    }.items():
        module = "distributed" if name == "dask" else name
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)  # as if there were none
            said = re.escape(f"this executor needs the package {module}: pip install 'dphypo[{name}]'")
            with pytest.raises(ModuleNotFoundError, match=said):
                use()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "ray", "slurm"])
def test_the_recipes_run(name, tmp_path):
    script = Path(__file__).parents[2] / "examples" / f"cluster_{name}.py"
    options = ["--mean", "2", "--journal", str(tmp_path / "study.db")]  # a job imports everything: few of them
    if name == "slurm":
        options += ["--folder", str(tmp_path / "jobs"), "--cluster", "local"]
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The release is differentially private with epsilon = " in done.stdout


class Hostile(concurrent.futures.Executor):
    """An executor of ``concurrent.futures`` that does something to its tasks."""

    def __init__(self, do):
        self.threads, self.do, self.last = concurrent.futures.ThreadPoolExecutor(2), do, None

    def submit(self, make, task, mechanism):
        return self.do(self, make, task, mechanism)

    def shutdown(self, *_, **__):
        self.threads.shutdown(wait=False)


def mixes_up(self, make, task, mechanism):
    def swapped():
        mine, other = make(task, mechanism), self.last
        self.last = mine
        return other or mine

    return self.threads.submit(swapped)


def changes_the_task(self, make, task, mechanism):
    return self.threads.submit(make, replace(task, params={**task.params, "lr": 999.0}), mechanism)


def makes_up_an_outcome(self, make, task, mechanism):
    return self.threads.submit(lambda: Outcome(b"", 1e9))


def makes_up_an_outcome_of_the_run(self, make, task, mechanism):
    return self.threads.submit(lambda: Outcome(b"", 1e9, started_with=(task.params, task.seed)))


def returns_garbage(self, make, task, mechanism):
    return self.threads.submit(lambda: (make(task, mechanism), "garbage")[1])


def returns_no_future(self, make, task, mechanism):
    return 7


def raises_in_submit(self, make, task, mechanism):
    raise OSError(f"no route for {task.params}, {task.seed}")


def raises(kind):
    def do(self, make, task, mechanism):
        def then():
            make(task, mechanism)
            raise kind(f"{task.params}, {task.seed}")

        return self.threads.submit(then)

    return do


HOSTILE = {
    "mixes-up": mixes_up,
    "changes": changes_the_task,
    "makes-up": makes_up_an_outcome,
    "makes-up-well": makes_up_an_outcome_of_the_run,
    "garbage": returns_garbage,
    "no-future": returns_no_future,
    "submit-raises": raises_in_submit,
    "raises": raises(RuntimeError),
    "exits": raises(SystemExit),
}


@pytest.mark.parametrize("do", HOSTILE)
def test_an_executor_that_does_not_return_what_it_was_given_is_an_error_and_loses_nothing(do, tmp_path):
    expected = make(tmp_path / "plain.db", band=Band(1, 1), lost="again").run(progress=False)
    study = make(tmp_path / "study.db", band=Band(1, 1), lost="again")
    with pytest.raises(ExecutorError) as caught:
        study.run(progress=False, executor=Hostile(HOSTILE[do]), workers=2)
    said = "".join(traceback.format_exception(caught.value))
    for trial in study.curator().trials():
        assert str(trial["seed"]) not in said
        assert str(trial["params"]["lr"]) not in said
    release = study.run(progress=False)
    assert (release.params, release.score) == (expected.params, expected.score)
    assert all(trial["failure"] is None for trial in study.curator().trials())


def test_a_run_whose_future_is_cancelled_after_it_ended_is_executed_three_times_at_most(tmp_path):
    seeds = Counter()

    def cancels(self, make, task, mechanism):
        def then():
            seeds[task.seed] += isinstance(make(task, mechanism), Outcome)
            future.cancel()
            future.set_running_or_notify_cancel()

        future = concurrent.futures.Future()
        self.threads.submit(then)
        return future

    study = make(tmp_path / "study.db", band=Band(1, 1), lost="again")
    study.run(progress=False, executor=Hostile(cancels))
    assert set(seeds.values()) == {3}
    failures = {trial["failure"] for trial in study.curator().trials()}
    assert failures == {"the process that executed this run died three times without progress"}


class Swaps:
    """An executor of one's own that returns outcomes with the wrong runs."""

    def __init__(self, mechanism, *, workers):
        self.mechanism, self.waiting = mechanism, []

    idle = property(lambda self: len(self.waiting) < 2)
    busy = property(lambda self: bool(self.waiting))

    def start(self, trial):
        self.waiting.append(trial)

    def wait(self):
        first, second = self.waiting[0], self.waiting[-1]
        self.waiting.remove(first)
        return first, attempt(self.mechanism, second.params, second.seed)

    def close(self):
        pass


def test_an_executor_of_ones_own_that_mixes_up_two_results_is_an_error(tmp_path):
    study = make(tmp_path / "study.db", band=Band(1, 1), lost="again")
    with pytest.raises(ExecutorError, match="outcome of another run"):
        study.run(progress=False, executor=Swaps, workers=2)
    assert not any(trial["done"] for trial in study.curator().trials())
