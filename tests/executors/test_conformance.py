"""Every executor passes the suite that is shipped for third parties, and the suite tells those that do not."""

from __future__ import annotations

import concurrent.futures
import multiprocessing

import pytest
from support.study_world import make

from dphypo.errors import ExecutorError
from dphypo.executors import InProcess, executors, hire
from dphypo.executors.futures import Claims, claim
from dphypo.testing import check_executor


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_conform(start_method):
    check_executor(lambda: "processes", start_method=start_method)


def test_this_process_conforms():
    check_executor(lambda: "in_process", workers=1, deaths=False)


def test_threads_conform():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        check_executor(lambda: pool, deaths=False)


def test_a_pool_of_processes_conforms():
    pools = []
    context = multiprocessing.get_context("fork")

    def pool() -> concurrent.futures.Executor:
        pools.append(concurrent.futures.ProcessPoolExecutor(2, context))
        return pools[-1]

    check_executor(pool)
    for one in pools:
        one.shutdown()


class Careless(InProcess):
    """Makes the run again when it fails, as engines like to."""

    def wait(self):
        trial = self._trial
        super().wait()
        self._trial = trial
        return super().wait()


def test_an_executor_that_repeats_runs_is_told():
    with pytest.raises(AssertionError, match="were made"):
        check_executor(lambda: Careless, workers=1, deaths=False)


def test_an_executor_of_ones_own_is_found_by_name():
    @executors.register("my_cluster")
    class Mine(InProcess):
        pass

    with hire(make().declaration.mechanism, executor="my_cluster") as opened:
        assert isinstance(opened, Mine)
    check_executor(lambda: "my_cluster", workers=1, deaths=False)


def test_an_executor_that_is_none_is_refused():
    for wrong in ("my_clutser", 3):
        with pytest.raises(ValueError, match="executor"), hire(None, executor=wrong):
            pass


def test_a_run_that_an_engine_starts_twice_is_made_once():
    """The engine here runs every task twice and returns what the second gave."""

    class Twice(concurrent.futures.ThreadPoolExecutor):
        def submit(self, task, *arguments):
            super().submit(task, *arguments).result()
            return super().submit(task, *arguments)

    with Twice(2) as pool, pytest.raises(AssertionError, match="changed or not at all"):
        check_executor(lambda: pool, deaths=False)


def test_a_claim_needs_the_key_and_the_study():
    claims = Claims()
    ticket, other = claims.issue(), claims.issue()
    stranger = type(ticket)(ticket.address, b"wrong", ticket.start)
    with pytest.raises(Exception, match="digest"):
        claim(stranger)
    assert claim(ticket)
    assert not claim(ticket)
    claims.withdraw(other)
    assert not claim(other)
    late = claims.issue()
    claims.close()
    assert not claim(late)


def test_a_broken_pool_says_what_to_do():
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    with pytest.raises(ExecutorError, match="again with a new one"):
        check_executor(lambda: pool, megabytes=1)
    pool.shutdown()
