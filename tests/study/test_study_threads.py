"""Threads: one T, one outcome a run, and one thread that makes the runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import stages_world
from support.study_world import LAW, facts, make, mechanism, score, train

from dphypo import errors
from dphypo.entropy import SYSTEM
from dphypo.journal.store import open_store
from dphypo.laws import Pmf

THREADS = 4


def at_once(*acts):
    """What each act returns or raises, all begun at the same moment."""
    gate = threading.Barrier(len(acts))

    def act(one):
        gate.wait()
        try:
            return one()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


class CountedLaw(Pmf):
    """The shared law, which counts how often T is drawn; equal ones share what was accounted for."""

    def __init__(self):
        super().__init__(dict(LAW.probabilities))
        object.__setattr__(self, "drawn", [])

    def sample(self, entropy):
        self.drawn.append(1)
        return super().sample(entropy)


def test_t_is_drawn_once_however_many_threads_begin(tmp_path):
    for journal in (None, tmp_path / "study.db"):
        for _ in range(10):
            law = CountedLaw()
            study = make(journal, runs=law, entropy=SYSTEM, name=f"study {_}")
            totals = at_once(*[study.curator().total] * THREADS)
            assert len(set(totals)) == 1
            assert len(law.drawn) == 1
            study.close()


def test_threads_ask_and_tell_one_study():
    for _ in range(5):
        store = open_store(None)
        study = make(store, entropy=SYSTEM)

        def work(study=study):
            made = 0
            while (trial := study.ask()) is not None:
                study.tell(trial, train(trial.params, seed=trial.seed))
                made += 1
            return made

        made = at_once(*[work] * THREADS)
        assert sum(made) == study.curator().total()
        release = study.release()
        rows = study.curator().trials()
        assert all(row["score"] == score(row["params"], row["seed"]) for row in rows)
        assert release.score == max(row["score"] for row in rows)


@pytest.mark.parametrize("world", ["study", "stages"])
def test_one_thread_runs_and_the_others_are_told_so(world):
    inside, go_on = threading.Event(), threading.Event()

    def waits(params, *, seed):
        inside.set()
        go_on.wait(30)
        return train(params, seed=seed)

    slow = mechanism(waits)
    search = make(mechanism=slow) if world == "study" else stages_world.make(None, slow)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(search.run, progress=False)
        assert inside.wait(30)
        acts = [search.ask, lambda: search.run(progress=False), search.release, search.close, search.shred]
        for act in acts:
            with pytest.raises(errors.Refusal, match=r"Another thread.*run\(\) once"):
                act()
        go_on.set()
        release = running.result()
    assert release.params is not None
    assert search.run(progress=False).params == release.params


def test_many_threads_that_run_one_study_make_it_once():
    whole = make()
    whole.run(progress=False)
    study = make()
    results = at_once(*[lambda: study.run(progress=False)] * THREADS)
    refused = [one for one in results if isinstance(one, Exception)]
    assert all(isinstance(one, errors.Refusal) and "Another thread" in str(one) for one in refused)
    assert len(refused) < THREADS
    assert facts(study) == facts(whole)
