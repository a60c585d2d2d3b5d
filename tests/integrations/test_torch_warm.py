"""A last run that starts from the best published model of the survey: post-processing of what is paid for."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from support.survey_world import Descent
from torch import nn

import dphypo
from dphypo import LastRun, Space, Stages, Survey, SurveyPlan
from dphypo.integrations.torch import DPSGD, Safetensors

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(200, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(np.int64)
STILL = 1e-9  # a learning rate with which a run stays where it starts
SPACE = Space({"learning_rate": [STILL, 0.5, 1.0]})


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def agreement(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(torch.tensor(INPUTS)).argmax(dim=1).numpy() == LABELS).mean())


def mechanism(**changes: object) -> DPSGD:
    given = {"data": (INPUTS, LABELS), "epochs": 2, "batch_size": 50, "device": "cpu", **changes}
    return DPSGD(model=network, score=agreement, noise_multiplier=1.0, **given)  # type: ignore[arg-type]


def still(space, rows, *, maximize):
    return {"learning_rate": STILL}


def stages(tmp_path, **changes: object) -> Stages:
    last = LastRun(mechanism(), still, warm_start=tmp_path / "models")
    parts = [Survey(mechanism(), 3, models=tmp_path / "models"), last]
    return Stages(SPACE, parts, delta=1e-4, journal=tmp_path / "stages.db", **changes)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_the_last_run_starts_from_the_best_published_model(tmp_path):
    release = stages(tmp_path).run(progress=False)
    scores = [row.score for row in release.survey.rows]
    kept = [
        Safetensors(network).load((tmp_path / "models" / f"run-{number:03d}.safetensors").read_bytes())
        for number in (1, 2, 3)
    ]
    best = kept[int(np.argmax(scores))]
    assert torch.allclose(weights(release.model), weights(best), atol=1e-5)
    cold = mechanism()({"learning_rate": STILL}, seed=1).model
    assert not torch.allclose(weights(cold), weights(best), atol=1e-2)
    stated = release.certificate.document["public"]["releases"][1]
    assert stated["starts from"] == "the best published model of the survey, if there is one that fits"
    assert "may have started from a published model, which is paid for" in release.certificate.statement()
    assert dphypo.verify(release.certificate)
    shutil.rmtree(tmp_path / "models")
    again = stages(tmp_path).run(progress=False)  # a release that was made needs no model to start from
    assert torch.equal(weights(again.model), weights(release.model))


def test_a_run_that_is_asked_for_starts_where_the_certificate_says(tmp_path):
    with stages(tmp_path) as search:
        while (trial := search.ask()) is not None:
            search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        release = search.release()
    best = int(np.argmax([row.score for row in release.survey.rows])) + 1
    kept = Safetensors(network).load((tmp_path / "models" / f"run-{best:03d}.safetensors").read_bytes())
    assert torch.allclose(weights(release.model), weights(kept), atol=1e-5)
    assert release.certificate.document["public"]["releases"][1]["starts from"]


def test_a_run_that_cannot_start_warm_is_not_drawn(tmp_path):
    with stages(tmp_path) as search:
        for _ in range(3):
            trial = search.ask()
            search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        shutil.move(tmp_path / "models", tmp_path / "elsewhere")
        with pytest.raises(ValueError, match="does not hold"):
            search.ask()
        shutil.move(tmp_path / "elsewhere", tmp_path / "models")
        trial = search.ask()
        assert trial.stage == 2
        assert trial.trial.number == 0


def test_a_model_that_does_not_fit_is_not_started_from():
    warm = mechanism(start=network(8))
    cold = mechanism()
    params = {"learning_rate": 0.5}
    assert torch.equal(weights(warm(params, seed=3).model), weights(cold(params, seed=3).model))


def test_what_cannot_start_warm_is_refused(tmp_path):
    with pytest.raises(ValueError, match="models="):
        SurveyPlan(warm_start=True)
    with pytest.raises(ValueError, match="no start="):
        LastRun(Descent(), warm_start=tmp_path)
    parts = [Survey(mechanism(), 2), LastRun(mechanism(), warm_start=tmp_path / "none")]
    search = Stages(SPACE, parts, delta=1e-4, journal=None)
    with pytest.raises(ValueError, match=r"does not hold run-00[12]\.safetensors"):
        search.run(progress=False)


def test_tune_passes_it_on(tmp_path):
    plan = SurveyPlan(runs=3, fraction=0.5, models=tmp_path / "models", warm_start=True, pick=still)
    release = dphypo.tune(
        SPACE, mechanism(), epsilon=8.0, delta=1e-4, survey=plan, journal=tmp_path / "tune.db", progress=False
    )
    assert release.certificate.document["public"]["releases"][1]["starts from"]
    assert release.certificate.epsilon <= 8.0
