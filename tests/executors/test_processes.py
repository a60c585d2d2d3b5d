"""Processes of our own: they may have children, die at any moment, and leave nothing behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support import executor_world as world
from support.study_world import EVENT, RELATION, make

import dphypo
from dphypo.entropy import SYSTEM
from dphypo.errors import ExecutorError, Refusal
from dphypo.laws import Pmf
from dphypo.search.release import Ending

TESTS = str(Path(__file__).parents[1])


def alive(pid: int) -> bool:
    """Whether a process runs. Nobody collects the dead in some containers: a zombie is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_run_in_a_worker_may_have_children(start_method):
    study = make(mechanism=world.with_child)
    release = study.run(workers=2, progress=False, start_method=start_method)
    assert release.ending is Ending.MODEL
    assert all(trial["failure"] is None for trial in study.curator().trials())


def test_a_run_in_a_worker_may_load_its_batches_in_processes():
    pytest.importorskip("torch")
    study = make(mechanism=world.with_loader, runs=Pmf({3: 1.0}))
    assert study.run(workers=2, progress=False, start_method="fork").model == {"sum": 28.0}
    assert all(trial["failure"] is None for trial in study.curator().trials())


@pytest.mark.slow
def test_a_worker_killed_while_its_child_lives_is_noticed():
    study = make(mechanism=world.killed_with_child, entropy=SYSTEM, runs=Pmf({12: 1.0}), lost="again")
    study.run(workers=2, progress=False, start_method="fork")
    for trial in study.curator().trials():
        assert trial["attempts"] == (3 if trial["params"]["depth"] == 2 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_worker_killed_before_it_greets_is_replaced(tmp_path, deaths):
    mechanism = dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)(
        world.DiesUnpickled(str(tmp_path), deaths)
    )
    study = make(mechanism=mechanism)
    assert study.run(workers=2, progress=False).ending is Ending.MODEL
    assert all(trial["attempts"] == 1 for trial in study.curator().trials())


@pytest.mark.slow
def test_workers_that_never_greet_are_an_error_and_cost_no_attempt(tmp_path):
    mechanism = dphypo.mechanism(event=EVENT, relation=RELATION)(world.DiesUnpickled(str(tmp_path), 10**6))
    study = make(mechanism=mechanism)
    with pytest.raises(ExecutorError, match="several worker processes"):
        study.run(workers=2, progress=False)
    assert all(trial["attempts"] == 0 for trial in study.curator().trials())


SEARCH = """
    import sys
    sys.path.insert(0, {tests!r})
    from support.executor_world import leaves_children
    from support.study_world import make
    if __name__ == "__main__":
        make({journal!r}, leaves_children).run(workers=2, progress=False, start_method={start!r})
"""


def started(tmp_path, start: str, **options) -> tuple[subprocess.Popen, list[int]]:
    """A search whose two workers have children, and the numbers of all of them."""
    script = tmp_path / "search.py"
    script.write_text(textwrap.dedent(SEARCH).format(tests=TESTS, journal=str(tmp_path / "study.db"), start=start))
    environment = os.environ | {"DPHYPO_TEST_FOLDER": str(tmp_path)}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.PIPE, **options)
    while len(list(tmp_path.glob("*.pids"))) < 2:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.05)
    return process, [int(pid) for file in tmp_path.glob("*.pids") for pid in file.read_text().split()]


@pytest.mark.parametrize(
    ("start", "number"),
    [
        ("fork", signal.SIGKILL),
        *(pytest.param("fork", n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGINT)),
        *(pytest.param("spawn", n, marks=pytest.mark.slow) for n in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_no_orphan_survives_the_study(tmp_path, start, number):
    process, pids = started(tmp_path, start)
    process.send_signal(number)
    assert gone(pids), "a worker, or a child of one, lives on"
    said = process.stderr.read().decode()
    process.wait()
    process.stderr.close()
    if number != signal.SIGINT:
        assert said == ""
    with make(tmp_path / "study.db", world.leaves_children) as study:  # nobody keeps the journal either
        assert study.curator().total() is not None


@pytest.mark.slow
def test_children_of_a_killed_worker_do_not_survive_it(tmp_path):
    process, pids = started(tmp_path, "fork")
    first = [int(pid) for pid in next(iter(tmp_path.glob("*.pids"))).read_text().split()]
    os.kill(first[0], signal.SIGKILL)
    assert gone(first)
    assert process.poll() is None
    process.kill()
    assert gone(pids)
    process.wait()
    process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_an_interrupt_from_the_keyboard_shows_nothing_of_the_workers(tmp_path, start):
    """A terminal interrupts the whole group: the study and whatever else is in it."""
    process, pids = started(tmp_path, start, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    assert gone(pids)
    said = process.stderr.read().decode()
    process.wait()
    process.stderr.close()
    assert said.count("KeyboardInterrupt") <= 1
    assert "Process dphypo" not in said
    assert "_serve" not in said


@pytest.mark.parametrize("begin", [lambda study: study.run(progress=False), lambda study: study.ask()])
def test_a_search_that_begins_while_a_worker_imports_the_script_is_refused(begin, monkeypatch, tmp_path):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    study = make(tmp_path / "study.db")
    with pytest.raises(Refusal, match="if __name__ == '__main__'"):
        begin(study)
    assert not list(tmp_path.iterdir()), "nothing was begun"
