"""Models that a survey publishes: the journal keeps them with their runs, and the release holds them."""

from __future__ import annotations

import dataclasses
import signal

import pytest
from support import survey_models_world as world
from support.crash_server import KILLS, serve
from support.slow import mostly_slow

import dphypo
from dphypo.search import load_release
from dphypo.search.release import SurveyTable

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def server():
    with serve("survey_models_world") as server:
        yield server


@pytest.mark.parametrize(("moment", "step"), mostly_slow(KILLS))
def test_a_process_killed_at_any_commit_leaves_no_model_of_a_run_that_was_not_committed(server, tmp_path, moment, step):
    whole = str(tmp_path / "whole.db")
    assert server.run(whole, log=str(tmp_path / "count")) == 0
    with world.make(whole) as search:
        models = search.run(progress=False).survey.models
    assert len(models) == world.RUNS
    assert None not in models
    for commit in range(1, int((tmp_path / "count").read_text()) + 1, step):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, at={moment: commit}) == KILLED
        with world.make(journal) as search:
            assert search.run(progress=False).survey.models == models


def test_a_run_that_died_and_counts_as_failed_has_no_model(server, tmp_path):
    failed = 0
    for commit in range(6, 13):
        journal = str(tmp_path / f"{commit}.db")
        assert server.run(journal, mechanism="once", at={"before": commit}) == KILLED
        with world.make(journal, world.once) as search:
            table = search.run(progress=False).survey
        assert [one is None for one in table.models] == [row.score is None for row in table.rows]
        failed += sum(one is None for one in table.models)
    assert failed, "at least one process died in a run"


def test_models_are_saved_loaded_and_verified_with_the_release(tmp_path):
    journal = tmp_path / "study.db"
    release = world.make(str(journal)).run(progress=False)
    survey = release.survey
    assert [survey.model(run)["lr"] for run in range(world.RUNS)] == [row.params["lr"] for row in survey.rows]
    folder = release.save(tmp_path / "release")
    names = sorted(path.name for path in folder.glob("survey-*"))
    assert names == [f"survey-1-run-{run + 1:03d}.npz" for run in range(world.RUNS)]
    assert load_release(folder).survey.models == survey.models
    assert dphypo.verify(folder).problems == ()
    with dphypo.open_journal(journal) as opened:
        assert opened.release().survey.models == survey.models
    (folder / names[0]).write_bytes((folder / names[1]).read_bytes())
    assert "survey-1-run-001" in " ".join(dphypo.verify(folder).problems)
    with pytest.raises(dphypo.errors.FileError, match="the certificate names another model"):
        load_release(folder)
    (folder / names[0]).unlink()
    assert "survey-1-run-001" in " ".join(dphypo.verify(folder).problems)


def test_a_survey_that_publishes_no_models_keeps_only_the_best(tmp_path):
    search = world.make(str(tmp_path / "study.db"))
    survey, last = search.declaration.parts
    plain = dphypo.Stages(world.SPACE, [dataclasses.replace(survey, models=False), last], delta=1e-6, journal=None)
    table = plain.run(progress=False).survey
    assert table.models == ()
    with pytest.raises(ValueError, match=r"Survey\(models=True\)"):
        table.model(0)
    assert SurveyTable(table.rows) == table
