"""Runs that are lost: what is an outcome, what is made again, and what the certificate says of it."""

from __future__ import annotations

import os
import signal
import textwrap
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from support import scripts
from support.crash_server import serve
from support.slow import mostly_slow
from support.study_world import EVENT, RELATION, deadly, facts, fragile, make, slow_and_fragile, train

import dphypo
from dphypo import errors
from dphypo.entropy import SYSTEM
from dphypo.executors import Withdrawn
from dphypo.executors.executor import Lost
from dphypo.laws import Pmf
from dphypo.mechanisms import Declared
from dphypo.mechanisms.mechanism import attempt

TESTS = str(Path(__file__).parents[1])
KILLED = -signal.SIGKILL


def test_by_default_the_mechanism_decides():
    assert make(mechanism=deadly).declaration.parts[0].lost_runs is Lost.AGAIN
    assert make(mechanism=fragile).declaration.parts[0].lost_runs is Lost.FAILED
    assert make(mechanism=fragile, lost="again").declaration.parts[0].lost_runs is Lost.AGAIN
    assert make(mechanism=deadly, lost=Lost.FAILED).declaration.parts[0].lost_runs is Lost.FAILED
    for wrong in ("never", True, 1, Lost):
        with pytest.raises(ValueError, match=r"lost = .* give one of 'again', 'failed'"):
            make(lost=wrong)
    with pytest.raises(ValueError, match="seeded"):
        Declared(train.train, EVENT, RELATION, seeded="yes")


def test_the_certificate_states_the_condition_and_the_journal_keeps_it(tmp_path):
    again, failed = make(lost="again").certificate, make(lost="failed").certificate
    assert "all randomness of a run comes from its seed" in again.statement()
    assert "a run whose process died counts as failed" in failed.statement()
    assert again.epsilon == failed.epsilon
    with make(tmp_path / "study.db", lost="failed") as study:
        study.ask()
    with pytest.raises(errors.ChangedStudy, match="lost runs"):
        make(tmp_path / "study.db", lost="again").run(progress=False)


@pytest.mark.parametrize(("lost", "attempts"), [("again", 3), ("failed", 0)])
def test_a_worker_that_dies_ends_its_run_or_loses_it_three_times(lost, attempts):
    study = make(mechanism=fragile, entropy=SYSTEM, runs=Pmf({12: 1.0}), lost=lost)
    study.run(workers=3, progress=False, start_method="fork")
    trials = study.curator().trials()
    assert len(trials) == 12
    for trial in trials:
        dead = trial["params"]["depth"] == 2
        assert (trial["failure"] is not None) == dead
        if dead:
            assert trial["attempts"] == attempts
            assert "died" in trial["failure"]


def test_a_run_that_kills_the_process_of_the_study_is_its_outcome(tmp_path):
    journal, deaths = str(tmp_path / "study.db"), 0
    with serve() as server:
        while server.run(journal, mechanism="fragile") == KILLED:
            deaths += 1
    with make(journal, fragile) as study:
        trials = study.curator().trials()
    lost = [trial for trial in trials if trial["params"]["depth"] == 2]
    assert lost
    assert deaths == len(lost), "one death each"
    assert all(trial["failure"] == "the process that executed this run died" for trial in lost)
    assert all(trial["score"] is not None for trial in trials if trial not in lost)


def test_a_study_that_is_killed_does_not_end_the_runs_of_its_workers(tmp_path):
    """Their processes did not die: they were ended with the study."""
    journal = str(tmp_path / "study.db")
    with serve() as server:
        for _ in range(4):
            server.run(journal, mechanism="slow_and_fragile", workers=3, kill_after_s=0.1)
    with make(journal, slow_and_fragile) as study:
        study.run(progress=False, workers=3, start_method="fork")
        assert all(trial["failure"] is None for trial in study.curator().trials())


def test_a_machine_that_goes_away_is_no_outcome(tmp_path, monkeypatch):
    """The journal says on which machine each run was begun. Opening it on another machine changes nothing."""
    path = tmp_path / "study.db"

    def on(machine, act):
        monkeypatch.setattr("dphypo.search.runner.machine", lambda: machine)
        with make(path, fragile, runs=Pmf({4: 1.0})) as study:
            found = act(study)
            study._runner.part(0).handed.clear()  # the machine goes down: nothing is taken back
            return found, [(row["attempts"], row["failure"]) for row in study.curator().trials()]

    assert on("A", lambda study: [study.ask().number for _ in range(3)])[0] == [0, 1, 2]
    with dphypo.open_journal(path) as journal:
        assert len(journal.curator().trials()) == 3
    asked, rows = on("B", lambda study: study.ask().number)
    assert (asked, rows) == (0, [(1, None), (1, None), (1, None)]), "it is made again, and so will be the others"
    asked, rows = on("B", lambda study: study.ask().number)
    assert asked == 1, "the process that made run 0 has died on this machine"
    assert [failure is None for _, failure in rows] == [False, True, True]


@pytest.mark.parametrize("lost", ["again", "failed"])
def test_machines_may_go_away_any_number_of_times(tmp_path, monkeypatch, lost):
    path = tmp_path / "study.db"
    for number in range(8):
        monkeypatch.setattr("dphypo.search.runner.machine", lambda number=number: f"machine {number}")
        with make(path, fragile, runs=Pmf({4: 1.0}), lost=lost) as study:
            assert study.ask().number == 0
            study._runner.part(0).handed.clear()  # the machine goes down: nothing is taken back
            assert study.curator().trials()[0]["attempts"] == 1


def test_an_orderly_close_is_no_death(tmp_path):
    path = tmp_path / "study.db"
    for _ in range(5):
        with make(path, fragile) as study:
            first = study.ask()
            assert first.number == 0
    with make(path, fragile) as study:
        assert not study.curator().trials()[0]["done"]


ENDS = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from support.study_world import EVENT, RELATION, make, train
    import dphypo
    made = []
    def ended(params, *, seed):
        made.append(seed)
        if len(made) == 2:
            os.kill(os.getpid(), {number})
            signal.pause()
        return train(params, seed=seed)
    {handler}
    study = make("study.db", dphypo.mechanism(event=EVENT, relation=RELATION)(ended))
    {how}
"""
RUN = "study.run(progress=False)"
LEAVES = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"


@pytest.mark.parametrize(
    ("number", "handler", "how", "status"),
    mostly_slow(
        [
            (signal.SIGTERM, "", RUN, -signal.SIGTERM),
            (signal.SIGTERM, LEAVES, RUN, 7),
            (signal.SIGHUP, "", RUN, -signal.SIGHUP),
            (signal.SIGINT, "", RUN, -signal.SIGINT),
        ]
    ),
)
def test_a_signal_that_ends_the_process_is_no_outcome(tmp_path, number, handler, how, status):
    code = textwrap.dedent(ENDS).format(tests=TESTS, number=int(number), handler=handler, how=how)
    done = scripts.run(code, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    with make(tmp_path / "study.db", fragile) as study:
        first, second = study.curator().trials()
        assert first["done"]
        assert (second["done"], second["attempts"]) == (False, 0)


def test_a_script_that_asks_and_is_interrupted_has_not_died(tmp_path):
    how = "study.ask(); raise KeyboardInterrupt"
    code = textwrap.dedent(ENDS).format(tests=TESTS, number=int(signal.SIGINT), handler="", how=how)
    scripts.run(code, cwd=tmp_path)
    with make(tmp_path / "study.db", fragile) as study:
        assert [(row["done"], row["attempts"]) for row in study.curator().trials()] == [(False, 0)]


def test_a_handler_that_goes_on_lets_the_study_go_on():
    asked = []

    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def told_to_end(params, *, seed):
        signal.raise_signal(signal.SIGTERM)
        return train(params, seed=seed)

    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        study = make(mechanism=told_to_end)
        study.run(progress=False)
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(asked) == study.curator().total()


def test_sigterm_to_all_processes_of_a_job_is_no_outcome(tmp_path):
    """A scheduler that ends a job tells the workers too."""

    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def told_to_end(params, *, seed):
        (tmp_path / str(seed)).touch()
        os.kill(os.getpid(), signal.SIGTERM)
        return train(params, seed=seed)

    study = make(mechanism=told_to_end)
    study.run(workers=2, progress=False, start_method="fork")
    assert all(trial["failure"] is None for trial in study.curator().trials())


class Fickle:
    """An executor whose cluster takes back every worker once."""

    def __init__(self, mechanism, *, workers):
        self._mechanism, self._trial, self._seen = mechanism, None, set()

    @property
    def idle(self):
        return self._trial is None

    @property
    def busy(self):
        return self._trial is not None

    def start(self, trial):
        self._trial = trial

    def wait(self):
        trial, self._trial = self._trial, None
        if trial.number not in self._seen:
            self._seen.add(trial.number)
            return trial, Withdrawn()
        return trial, attempt(self._mechanism, trial.params, trial.seed)

    def close(self):
        pass


@pytest.mark.parametrize("lost", ["again", "failed"])
def test_an_engine_that_takes_workers_back_changes_nothing(lost):
    whole, fickle = make(lost=lost), make(lost=lost)
    whole.run(progress=False)
    fickle.run(progress=False, executor=Fickle)
    assert facts(fickle) == facts(whole)
    assert all(trial["attempts"] <= 1 for trial in fickle.curator().trials())


def test_pools_whose_runs_die_together_are_refused_where_a_death_is_an_outcome():
    """One death that takes other runs with it makes their failures dependent, which changes the law of T."""
    with ProcessPoolExecutor(2) as pool:
        with pytest.raises(ValueError, match=r"executor = .*not independent.*seeded=True"):
            make(mechanism=fragile).run(workers=2, progress=False, executor=pool)
        assert make(lost="again").run(workers=2, progress=False, executor=pool).params is not None
        assert make(lost="failed").run(workers=1, progress=False, executor=pool).params is not None
    with ThreadPoolExecutor(2) as pool:
        assert make(lost="failed").run(workers=2, progress=False, executor=pool).params is not None
