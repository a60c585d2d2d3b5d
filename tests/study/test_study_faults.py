"""Faults that are not crashes: interrupts, full and torn disks, workers that die, connections that are lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.crash_server import serve
from support.study_world import EVENT, RELATION, deadly, facts, make, score, slow, train

import dphypo
from dphypo.entropy import SYSTEM
from dphypo.errors import JournalError, Refusal
from dphypo.search.release import Ending


@pytest.fixture(scope="module")
def uninterrupted():
    study = make()
    study.run(progress=False)
    return facts(study)


def interrupting(after: int):
    """The shared mechanism, interrupted from the keyboard in some run."""
    calls = []

    @dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
    def train_until_interrupted(params, *, seed):
        calls.append(seed)
        if len(calls) == after:
            os.kill(os.getpid(), signal.SIGINT)
        return train(params, seed=seed)

    return train_until_interrupted


def test_an_interrupt_leaves_a_resumable_study_and_releases_nothing(tmp_path, uninterrupted):
    path, never = tmp_path / "study.db", 0  # a study is resumed with the same training
    for after in (1, 1, 1, 1, 2, 3):  # more often than a process may die: an interrupt is not a death
        with pytest.raises(KeyboardInterrupt):
            make(path, interrupting(after)).run(progress=False)
        with make(path, interrupting(never)) as study:
            assert study.released() is None
            assert all(trial["attempts"] <= 1 for trial in study.curator().trials())
            with pytest.raises(Refusal, match="nothing to release"):
                study.release()
    with make(path, interrupting(never)) as study:
        study.run(progress=False)
        assert facts(study) == uninterrupted
    assert all(trial["attempts"] == 1 for trial in make(path, interrupting(never)).curator().trials())


# Disks


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path):
    """A real file system of 400 KiB, full for a while."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a file system can be mounted only by root")
    try:
        _check_full_disk(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _check_full_disk(disk: Path) -> None:
    path, ballast = disk / "study.db", disk / "ballast"
    with make(path) as study:
        trial = study.ask()
        study.tell(trial, train(trial.params, seed=trial.seed))
        ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - 4096))
        errors: list[Exception] = []
        while not errors:
            trial = None
            try:
                trial = study.ask()
                assert trial is not None, "the study ended before the disk was full"
                study.tell(trial, train(trial.params, seed=trial.seed))
            except JournalError as error:
                errors.append(error)
        assert "disk" in str(errors[0])
        assert "Everything committed before is safe" in str(errors[0])
        done = [trial for trial in study.curator().trials() if trial["done"]]
        assert done
    ballast.unlink()
    with make(path) as study:
        assert [trial for trial in study.curator().trials() if trial["done"]] == done
        study.run(progress=False)
        assert [trial["params"] for trial in study.curator().trials()][: len(done)] == [t["params"] for t in done]


def test_a_file_that_may_not_grow_is_a_clear_error_and_loses_nothing(tmp_path, uninterrupted):
    failed = 0
    with serve() as server:
        for limit in range(40, 120, 16):
            path, errors = tmp_path / f"{limit}.db", tmp_path / "errors"
            status = server.run(str(path), file_limit=limit * 1024, errors=str(errors))
            if status == 0:
                continue
            failed += 1
            assert status == 1
            assert "JournalError: the journal could not be used: the disk" in errors.read_text()
            assert "sqlite3" not in errors.read_text(), "what the driver says may quote rows"
            with make(path) as study:
                before = [trial for trial in study.curator().trials() if trial["done"]]
                study.run(progress=False)
                assert facts(study) == uninterrupted
                after = study.curator().trials()[: len(before)]
                assert [(t["params"], t["score"]) for t in after] == [(t["params"], t["score"]) for t in before]
    assert failed >= 2


@pytest.mark.slow
def test_a_torn_log_loses_only_what_was_not_committed(tmp_path, uninterrupted):
    """A copy taken in the middle, its log cut off anywhere, is an earlier state of the study, never a wrong one."""
    path = tmp_path / "study.db"
    study = make(path)
    trial = study.ask()
    study.tell(trial, train(trial.params, seed=trial.seed))
    study.ask()
    log = Path(f"{path}-wal").read_bytes()
    assert len(log) > 20_000
    for cut in [*range(0, len(log), 7919), len(log) - 1, len(log)]:
        torn = tmp_path / f"torn-{cut}.db"
        shutil.copy(path, torn)
        Path(f"{torn}-wal").write_bytes(log[:cut] + os.urandom(100))
        with make(torn) as again:
            again.run(progress=False)
            assert facts(again) == uninterrupted
    study.close()


def test_a_damaged_file_is_a_clear_error(tmp_path):
    path = tmp_path / "study.db"
    make(path).run(progress=False)
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(JournalError, match="could not be used"):
        make(path).run(progress=False)


def test_a_lost_connection_is_a_clear_error_and_the_study_goes_on(postgres, uninterrupted):
    from sqlalchemy import text

    from dphypo.journal.store import open_store

    store = open_store(postgres)
    with make(store, name="lost connection") as study:
        trial = study.ask()
        other = open_store(postgres)
        own = store.commit(lambda connection: connection.scalar(text("SELECT pg_backend_pid()")))
        other.commit(lambda connection: connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": own}))
        other.close()
        with pytest.raises(JournalError, match="connection"):
            study.tell(trial, train(trial.params, seed=trial.seed))
        study.tell(trial, train(trial.params, seed=trial.seed))
        study.run(progress=False)
        assert facts(study) == uninterrupted
    store.close()


# Workers


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_make_the_same_number_of_runs(workers, tmp_path, uninterrupted):
    with make(tmp_path / "study.db", slow) as study:
        release = study.run(workers=workers, progress=False, start_method="fork")
        trials = study.curator().trials()
    assert len(trials) == uninterrupted[0]
    assert all(trial["score"] == score(trial["params"], trial["seed"]) for trial in trials)
    assert release.score == max(trial["score"] for trial in trials)


@pytest.mark.slow
def test_workers_may_be_spawned():
    release = make(mechanism=train).run(workers=2, progress=False)
    assert release.ending is Ending.MODEL


def test_a_worker_that_dies_costs_its_run_three_attempts_and_no_other():
    study = make(mechanism=deadly, entropy=SYSTEM, runs=dphypo.laws.Pmf({30: 1.0}))
    study.run(workers=3, progress=False, start_method="fork")
    trials = study.curator().trials()
    assert len(trials) == 30
    for trial in trials:
        dead = trial["params"]["depth"] == 2
        assert trial["attempts"] == (3 if dead else 1)
        assert (trial["failure"] is not None) == dead


def test_failures_and_exits_in_a_worker_are_outcomes():
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def fails(params, *, seed):
        if params["depth"] == 1:
            raise MemoryError
        if params["depth"] == 2:
            raise SystemExit(3)
        return 1, float("nan")

    study = make(mechanism=fails)
    assert study.run(workers=2, progress=False, start_method="fork").ending is Ending.ALL_FAILED
    trials = study.curator().trials()
    assert all(trial["done"] and trial["attempts"] == 0 for trial in trials), "no process has died"


def test_an_interrupt_ends_the_workers(tmp_path):
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def interrupts(params, *, seed):
        (tmp_path / str(seed)).touch()
        if len(list(tmp_path.iterdir())) == 2:  # both workers are at it
            os.kill(os.getppid(), signal.SIGINT)
        signal.pause()

    study = make(mechanism=interrupts)
    with pytest.raises(KeyboardInterrupt):
        study.run(workers=2, progress=False, start_method="fork")
    assert all(trial["attempts"] == 0 and not trial["done"] for trial in study.curator().trials())


def test_a_model_that_cannot_be_saved_stops_the_study_from_a_worker_too():
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def strange(params, *, seed):
        return object(), 1.0

    with pytest.raises(TypeError, match="saver"):
        make(mechanism=strange).run(workers=2, progress=False, start_method="fork")


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_an_error_and_not_an_outcome(tmp_path):
    """A script without the guard: each worker would run it again."""
    script = tmp_path / "script.py"
    tests = str(Path(__file__).parents[1])
    lines = ["import sys", f"sys.path.insert(0, {tests!r})", "from support.study_world import make"]
    script.write_text("\n".join([*lines, "make('study.db').run(workers=2)", ""]))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ExecutorError: several worker processes" in done.stderr
    with make(tmp_path / "study.db") as study:
        assert all(trial["attempts"] == 0 and not trial["done"] for trial in study.curator().trials())


def test_what_a_database_cannot_store_does_not_stop_an_outcome(tmp_path, postgres):
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def fails(params, *, seed):
        raise ValueError("a\x00b \ud800 " + "x" * 100_000)

    for journal in (tmp_path / "study.db", postgres):
        with make(journal, fails, name="strange text") as study:
            assert study.run(progress=False).ending is Ending.ALL_FAILED


def test_a_function_that_cannot_travel_is_a_clear_error():
    @dphypo.mechanism(event=EVENT, relation=RELATION)
    def inner(params, *, seed):
        return 1, 1.0

    with pytest.raises(TypeError, match="top of a module"):
        make(mechanism=inner).run(workers=2, progress=False)
