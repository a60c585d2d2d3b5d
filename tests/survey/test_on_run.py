"""A function of people's own is told of published runs, and a survey that begins with failures ends early."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from scipy.stats import loguniform

import dphypo
from dphypo.entropy import Seeded
from dphypo.errors import AllFailedError, Refusal
from dphypo.report import release_page
from dphypo.search.release import Row, SurveyTable, at_edge

SPACE = dphypo.Space({"lr": loguniform(1e-3, 1)})
declare = dphypo.mechanism(
    event=dp_accounting.GaussianDpEvent(40.0), relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
)


@declare
def train(params, *, seed):
    return {"lr": params["lr"]}, -abs(params["lr"] - 0.1)


def survey(mechanism, runs, **options):
    options = {"journal": None} | options
    parts = [dphypo.Survey(mechanism, runs, durations=options.pop("durations", "secret"))]
    return dphypo.Stages(SPACE, parts, delta=1e-6, **options)


@pytest.mark.parametrize("durations", ["secret", "public"])
def test_every_published_run_is_told_in_order(durations):
    seen, made = [], []

    @declare
    def noted(params, *, seed):
        made.append(len(seen))
        return None, params["lr"]

    release = survey(noted, 4, durations=durations).run(progress=False, on_run=seen.append)
    assert tuple(seen) == release.survey.rows
    assert made[-4:] == ([0, 1, 2, 3] if durations == "public" else [0, 0, 0, 0]), "told before each run was made"


def test_a_search_without_a_survey_has_no_runs_to_tell():
    seen = []
    release = dphypo.Stages(SPACE, [dphypo.LastRun(train)], delta=1e-6, journal=None).run(
        progress=False, on_run=seen.append
    )
    assert release.model is not None
    assert seen == []


@pytest.mark.parametrize("best", [0.0011, 0.1])
def test_a_survey_remarks_that_its_best_run_lies_at_the_edge_and_a_study_does_not(best, capsys):
    @declare
    def near(params, *, seed):
        return None, -abs(math.log(params["lr"] / best))

    release = survey(near, 12, entropy=Seeded(1)).run()
    remark = f"The best run lies at the edge of the space: lr = {release.survey.best.params['lr']:.4g} of 0.001 to 1. "
    assert (remark in capsys.readouterr().err) == (best < 0.1)
    assert best == 0.1 or remark in release_page(release)
    dphypo.Study(SPACE, near, dphypo.Geometric(mean=12), delta=1e-6, journal=None, entropy=Seeded(1)).run()
    assert "edge" not in capsys.readouterr().err


@pytest.mark.parametrize("space", [{}, {"parameters": 3}, {"parameters": [3, {"name": "lr"}, {"name": "x"}]}])
def test_what_a_stranger_says_of_a_space_is_no_edge(space):
    assert at_edge(SurveyTable((Row({"lr": 1.0}, 1.0),)), space) == ""


def test_a_study_refuses_it_with_the_reason():
    study = dphypo.Study(SPACE, train, dphypo.Geometric(mean=3), delta=1e-6, journal=None)
    with pytest.raises(Refusal, match=r"runs are secret.*tune\(on_run=...\)"):
        study.run(progress=False, on_run=print)
    parts = [dphypo.Survey(train, 2), dphypo.Stage(train, dphypo.Geometric(mean=3))]
    with pytest.raises(Refusal, match="has no callbacks"):
        dphypo.Stages(SPACE, parts, delta=1e-6, journal=None).run(progress=False, on_run=print)


@pytest.mark.parametrize("good", [0, 5])
def test_a_survey_that_begins_with_five_failures_ends_and_its_curator_learns_why(good, tmp_path):
    made = []

    @declare
    def broken(params, *, seed):
        made.append(seed)
        if len(made) == good:
            return None, 1.0
        raise ValueError("shapes do not fit")

    search = survey(broken, 8, journal=tmp_path / "survey.db")
    if good:
        assert len(search.run(progress=False).survey.rows) == 8
        return
    for _ in range(2):  # going on makes no other run
        with pytest.raises(AllFailedError, match="the first 5 runs all failed") as caught:
            search.run(progress=False)
        assert "shapes do not fit" not in str(caught.value)
    assert len(made) == 5
    assert "shapes do not fit" in caught.value.curator().trials()[0]["failure"]


def test_tensorboard_gets_every_run(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        release = survey(train, 3).run(
            progress=False, on_run=lambda row: writer.add_hparams(dict(row.params), {"score": row.score or 0.0})
        )
    logged = [EventAccumulator(str(folder)).Reload() for folder in sorted(tmp_path.iterdir()) if folder.is_dir()]
    scores = sorted(one.Scalars("score")[0].value for one in logged)
    assert scores == pytest.approx(sorted(row.score for row in release.survey.rows))


@pytest.mark.slow
def test_mlflow_gets_every_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the plain form of a store, without a database
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # tests call nobody
    import mlflow

    mlflow.set_tracking_uri(tmp_path.as_uri())
    experiment = mlflow.set_experiment("survey").experiment_id

    def log(row):
        with mlflow.start_run(nested=True):
            mlflow.log_params(dict(row.params))
            mlflow.log_metric("score", row.score or 0.0)

    release = survey(train, 3).run(progress=False, on_run=log)
    logged = mlflow.MlflowClient().search_runs([experiment])
    assert sorted(run.data.metrics["score"] for run in logged) == sorted(row.score for row in release.survey.rows)
