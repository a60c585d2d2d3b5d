"""Models of a survey that are kept in a folder: each is there if and only if its run is committed."""

from __future__ import annotations

import dataclasses
import signal

import pytest
from support import survey_models_world as world
from support.crash_server import serve
from support.journal_world import contents

from dphypo.errors import OutcomeTwice
from dphypo.search import Survey
from dphypo.search.kept_models import KeptModels

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def server():
    with serve("survey_models_world") as server:
        yield server


def named(journal):
    """The models that have their names, and their bytes."""
    return {path.name: path.read_bytes() for path in world.folder(journal).glob("run-*")}


def committed(journal):
    """The names of the models of committed runs, read from the file of the journal."""
    ended = [change for change in contents(journal, "study, stage 1") if change[0] == "finish"]
    return {f"run-{number + 1:03d}.npz" for _, number, _, failure, *_ in ended if failure is None}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_at_any_commit_leaves_no_model_of_a_run_that_was_not_committed(server, tmp_path, moment):
    whole = str(tmp_path / "whole.db")
    assert server.run(whole, log=str(tmp_path / "count")) == 0
    models = named(whole)
    assert set(models) == committed(whole) == {f"run-{number + 1:03d}.npz" for number in range(world.RUNS)}
    for commit in range(1, int((tmp_path / "count").read_text()) + 1):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, at={moment: commit}) == KILLED
        assert named(journal).keys() <= committed(journal)
        with world.make(journal) as search:
            search.run(progress=False)
        assert named(journal) == models
        assert {path.name for path in world.folder(journal).iterdir()} == set(models), "nothing else is left"


def test_a_run_that_died_and_counts_as_failed_has_no_model(server, tmp_path):
    """Its model was written and its outcome was not committed: nobody may keep what was published as failed."""
    found = set()
    for commit in range(4, 10):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, mechanism="once", at={"before": commit}) == KILLED
        found |= {path.name[:1] for path in world.folder(journal).glob("*")}
        with world.make(journal, world.once) as search:
            rows = search.run(progress=False).survey.rows
        done = {f"run-{number + 1:03d}.npz" for number, row in enumerate(rows) if row.score is not None}
        assert {path.name for path in world.folder(journal).iterdir()} == done
    assert "." in found, "at least one process died between the model and the commit"


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
        assert not world.folder(journal).exists() or not list(world.folder(journal).iterdir())
        search.tell(trial, outcome)
        with pytest.raises(OutcomeTwice):
            search.tell(trial, outcome)
    assert [path.name for path in world.folder(journal).iterdir()] == ["run-001.npz"]


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".uncommitted-run-x.npz").write_text("not a run")
    kept = KeptModels(tmp_path, "npz")
    kept.settle(committed=())
    assert (tmp_path / "notes.txt").exists()
    assert Survey(world.train, 1, models=tmp_path).models == tmp_path
