"""Models of a survey that are kept in a folder: each is there if and only if its run is committed."""

from __future__ import annotations

import dataclasses
import signal

import pytest
from support import survey_models_world as world
from support.crash_server import KILLS, serve
from support.journal_world import contents
from support.slow import mostly_slow
from support.survey_world import SPACE

from dphypo import mechanism
from dphypo.errors import Refusal
from dphypo.search import Stages, Survey
from dphypo.search.kept_models import MARKER

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def server():
    with serve("survey_models_world") as server:
        yield server


def named(journal):
    """The models that have their names, and their bytes."""
    return {path.name: path.read_bytes() for path in world.folder(journal).glob("run-*")}


def left(journal):
    """All that is in the folder but what tells whose it is, and all beside it that is private."""
    private = world.folder(journal).with_name(f".{world.folder(journal).name}-uncommitted")
    return {path.name for path in world.folder(journal).iterdir()} - {MARKER}, set(private.glob("*"))


def committed(journal):
    """The names of the models of committed runs, read from the file of the journal."""
    ended = [change for change in contents(journal, "study, stage 1") if change[0] == "finish"]
    return {f"run-{number + 1:03d}.npz" for _, number, _, failure, *_ in ended if failure is None}


@pytest.mark.parametrize(("moment", "step"), mostly_slow(KILLS))
def test_a_process_killed_at_any_commit_leaves_no_model_of_a_run_that_was_not_committed(server, tmp_path, moment, step):
    whole = str(tmp_path / "whole.db")
    assert server.run(whole, log=str(tmp_path / "count")) == 0
    models = named(whole)
    assert set(models) == committed(whole) == {f"run-{number + 1:03d}.npz" for number in range(world.RUNS)}
    for commit in range(1, int((tmp_path / "count").read_text()) + 1, step):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, at={moment: commit}) == KILLED
        assert named(journal).keys() <= committed(journal)
        with world.make(journal) as search:
            search.run(progress=False)
        assert named(journal) == models
        assert left(journal) == (set(models), set()), "nothing else is left"


def test_a_run_that_died_and_counts_as_failed_has_no_model(server, tmp_path):
    """Its model was written and its outcome was not committed: nobody may keep what was published as failed."""
    found = set()
    for commit in range(4, 10):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, mechanism="once", at={"before": commit}) == KILLED
        published, private = left(journal)
        assert published <= committed(journal), "what is not committed is not in the published folder"
        found |= private
        with world.make(journal, world.once) as search:
            rows = search.run(progress=False).survey.rows
        done = {f"run-{number + 1:03d}.npz" for number, row in enumerate(rows) if row.score is not None}
        assert left(journal) == (done, set())
    assert found, "at least one process died between the model and the commit"


def test_a_refused_outcome_leaves_no_file(tmp_path):
    journal = str(tmp_path / "told.db")
    with world.make(journal) as search:
        trial = search.ask()
        outcome = trial.mechanism(trial.params, seed=trial.seed)
        stranger = dataclasses.replace(trial, trial=dataclasses.replace(trial.trial, seed=trial.seed + 1))
        with pytest.raises(ValueError, match="not of this study"):
            search.tell(stranger, outcome)
        with pytest.raises(TypeError):
            search.tell(trial, 7)
        assert left(journal) == (set(), set())
        search.tell(trial, outcome)
        with pytest.raises(Refusal, match="already been told"):
            search.tell(trial, outcome)
    assert left(journal) == ({"run-001.npz"}, set())


def test_a_folder_belongs_to_one_search(tmp_path):
    """Two searches that share a folder would write over each other's models."""
    first, second = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    world.make(first).run(progress=False)
    models = named(first)
    world.folder(first).rename(world.folder(second))
    with world.make(second) as other, pytest.raises(ValueError, match="another search"):
        other.run(progress=False)
    assert named(second) == models
    assert not contents(second, "study, stage 1"), "refused before anything was drawn"


@pytest.mark.parametrize("part", [0, 1])
def test_a_folder_that_is_a_file_or_holds_other_files_is_refused_before_the_first_run(tmp_path, part):
    short, made = world.train.at(fraction=0.25, match=True), []
    watched = mechanism(event=short.event, relation=short.relation)(
        lambda params, *, seed: made.append(1) or (None, 0.5)
    )
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    for name, problem in (("file", "it is a file"), ("full", "other files"), ("file/below", "cannot be used")):
        surveys = [Survey(watched, 1, models=tmp_path / name if number == part else None) for number in (0, 1)]
        with pytest.raises(ValueError, match=problem):
            Stages(SPACE, surveys, delta=1e-6, journal=None).run(progress=False)
    assert not made
    assert (tmp_path / "full" / "notes.txt").exists()


def test_a_full_disk_is_said_and_the_search_goes_on_when_there_is_room(tmp_path):
    journal = str(tmp_path / "search.db")
    private = world.folder(journal).with_name(".search.models-uncommitted")
    with world.make(journal) as search:
        trial = search.ask()
        private.mkdir()
        (private / "run-001.npz").symlink_to("/dev/full")
        with pytest.raises(OSError, match=r"cannot be written \(No space left on device\)"):
            search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    assert not committed(journal)
    with world.make(journal) as search:
        search.run(progress=False)
    assert left(journal) == (committed(journal), set())
    assert len(committed(journal)) == world.RUNS
