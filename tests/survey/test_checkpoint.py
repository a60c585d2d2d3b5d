"""A last run that is killed at any step goes on there, ends in the same bits, and leaves nothing behind."""

from __future__ import annotations

import datetime
import signal
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation
from scipy.stats import loguniform
from support.checkpoint_world import STEPS, make
from support.crash_server import serve

import dphypo
from dphypo.search.progress import _MARK, CheckpointFile, erase
from dphypo.search.runner import deaths_of

KILLED = -signal.SIGKILL
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    with serve("checkpoint_world") as server:
        yield server


def bits(release):
    return torch.cat([value.flatten() for value in release.model.state_dict().values()])


@pytest.fixture(scope="module")
def undisturbed():
    release = make().run(progress=False)
    return release.params, bits(release), release.certificate.to_dict()


class Counted:
    """Which steps are made in this process, from the states that are offered."""

    def __init__(self, monkeypatch):
        self.made = []
        monkeypatch.setattr(CheckpointFile, "due", lambda file, made: self.made.append(made) or False)


def resumed(journal, undisturbed, monkeypatch):
    counted = Counted(monkeypatch)
    release = make(journal).run(progress=False, checkpoint_every=1)
    assert release.params == undisturbed[0]
    assert torch.equal(bits(release), undisturbed[1])
    assert release.certificate.to_dict() == undisturbed[2]
    beside = {path.name for path in Path(journal).parent.iterdir()}
    assert beside <= {Path(journal).name, f"{Path(journal).name}-lock"}, "nothing of the run is left"
    return counted.made


@pytest.mark.parametrize(
    ("moment", "number", "first"),
    [
        *[("within", 2, 2), ("after", 7, 8)],
        *[pytest.param(*rest, marks=SLOW) for rest in (("before", 1, 1), ("after", 1, 2), ("before", STEPS, STEPS))],
    ],
)
def test_a_run_killed_at_any_step_goes_on_there(server, undisturbed, tmp_path, monkeypatch, moment, number, first):
    journal = str(tmp_path / "tune.db")
    assert server.run(journal, at_checkpoint={moment: number}, run={"checkpoint_every": 1}) == KILLED
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert resumed(journal, undisturbed, monkeypatch) == list(range(first, STEPS + 1))


def test_a_run_that_got_further_each_time_may_be_killed_any_number_of_times(server, undisturbed, tmp_path, monkeypatch):
    journal = str(tmp_path / "tune.db")
    for _ in range(5):
        assert server.run(journal, at_checkpoint={"after": 2}, run={"checkpoint_every": 1}) == KILLED
    assert resumed(journal, undisturbed, monkeypatch) == [11, 12]


def test_three_deaths_without_progress_are_a_failure(server, tmp_path):
    journal, order = str(tmp_path / "tune.db"), {"run": {"checkpoint_every": 1}}
    assert server.run(journal, at_checkpoint={"after": 3}, **order) == KILLED
    said = []
    for _ in range(3):
        assert server.run(journal, at_checkpoint={"before": 1}, **order) == KILLED
        with make(journal) as search:
            said.append(search._runner.part(1).record().trials[0])
            search._runner.part(1).handed.clear()
    assert [(trial.attempts, trial.steps) for trial in said] == [(1, 3), (2, 3), (3, 3)]
    release = make(journal).run(checkpoint_every=1)
    assert release.model is None
    with dphypo.open_journal(journal, name="study, stage 2") as found:
        assert "died three times without progress" in found.curator().trials()[0]["failure"]


def test_a_resumed_run_says_which_attempt_it_is(server, tmp_path, capsys):
    journal, order = str(tmp_path / "tune.db"), {"run": {"checkpoint_every": 1}}
    assert server.run(journal, at_checkpoint={"after": 3}, **order) == KILLED
    assert server.run(journal, at_checkpoint={"before": 1}, **order) == KILLED
    make(journal).run(checkpoint_every=1)
    assert capsys.readouterr().err.count("last run: attempt 2 of 3 without progress\n") == 1


def test_a_run_killed_when_it_has_ended_leaves_nothing(server, undisturbed, tmp_path, monkeypatch):
    journal = str(tmp_path / "tune.db")
    assert server.run(journal, at_checkpoint={"after": STEPS}, run={"checkpoint_every": 1}) == KILLED
    assert resumed(journal, undisturbed, monkeypatch) == []


@pytest.mark.parametrize("damage", [b"", *[pytest.param(one, marks=SLOW) for one in (_MARK, b"x" * 5000)]])
def test_a_damaged_checkpoint_is_ignored_and_the_run_made_again_with_its_seed(
    server, undisturbed, tmp_path, monkeypatch, damage
):
    journal = str(tmp_path / "tune.db")
    assert server.run(journal, at_checkpoint={"after": 5}, run={"checkpoint_every": 1}) == KILLED
    (kept,) = tmp_path.glob("*-checkpoint-*")
    kept.write_bytes(damage or kept.read_bytes()[:-1])
    assert resumed(journal, undisturbed, monkeypatch) == list(range(1, STEPS + 1))


def test_a_run_in_a_worker_goes_on_too(server, undisturbed, tmp_path):
    journal = str(tmp_path / "tune.db")
    order = {"workers": 2, "run": {"checkpoint_every": 1}}
    assert server.run(journal, at_checkpoint={"after": 5}, **order) == 0, "the worker died, and another one went on"
    release = make(journal).run(progress=False)
    assert torch.equal(bits(release), undisturbed[1])


def test_a_journal_in_memory_and_one_without_checkpoints_keep_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(CheckpointFile, "write", lambda *_: pytest.fail("it was written"))
    make().run(progress=False, checkpoint_every=1)
    make(tmp_path / "tune.db").run(progress=False, checkpoint_every=None)


def test_a_disk_that_is_full_does_not_fail_the_run(undisturbed, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointFile, "write", full)
    release = make(tmp_path / "tune.db").run(checkpoint_every=1)
    assert torch.equal(bits(release), undisturbed[1])
    assert "writing a checkpoint of the run failed (OSError)" in capsys.readouterr().err


@pytest.mark.parametrize("every", [0, -1, 2.5, "5 minutes", True, datetime.timedelta(0)])
def test_a_wrong_interval_is_refused_by_name(every):
    with pytest.raises(ValueError, match="checkpoint_every = "):
        make().run(progress=False, checkpoint_every=every)


def test_the_interval_is_in_time_or_in_steps(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dphypo.search.progress.time.monotonic", lambda: now[0])
    steps = CheckpointFile(Path(), 3)
    assert [made for made in range(1, 10) if steps.due(made)] == [3, 6, 9]
    clock, due = CheckpointFile(Path(), datetime.timedelta(minutes=5)), []
    for now[0] in range(0, 1000, 100):
        due += [now[0]] if clock.due(1) else []
    assert due == [300, 600, 900]


def test_two_searches_in_one_journal_have_files_of_their_own(tmp_path):
    names = {make(tmp_path / "tune.db", name=name)._runner.part(0).checkpoint for name in ("a", "b")}
    assert len(names) == 2
    assert all(path.parent == tmp_path for path in names)


def test_the_checkpoint_of_an_earlier_search_counts_for_nothing(tmp_path):
    """Otherwise the first death of a run would count as progress, and the run would be repeated."""
    journal = tmp_path / "tune.db"

    @dphypo.mechanism(event=GaussianDpEvent(2.0), relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    def train(params, *, seed):
        return seed, 0.0

    def make() -> dphypo.Stages:
        space = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
        return dphypo.Stages(space, [dphypo.LastRun(train)], delta=1e-6, journal=journal)

    with make() as search:
        path = search._runner.part(0).checkpoint
        assert path is not None
        CheckpointFile(path).write(500, lambda file: file.write(b"weights"))
        assert CheckpointFile(path).steps == 500
        trial = search.ask()
        assert not path.exists()
        assert deaths_of(replace(trial, attempts=1), CheckpointFile(path).steps) == 1
        CheckpointFile(path).write(7, lambda file: file.write(b"weights"))  # of this search
    with make() as search:
        assert search.ask().steps == 7


@pytest.mark.parametrize("journal", ["tune.db", "a[1].db"])
def test_erasing_takes_what_a_killed_write_has_left(tmp_path, journal):
    for name in (journal, f".{journal}-checkpoint-1.abc", f"{journal}-checkpoint-1"):
        (tmp_path / name).write_bytes(b"")
    erase(tmp_path / f"{journal}-checkpoint-1")
    assert [path.name for path in tmp_path.iterdir()] == [journal]
