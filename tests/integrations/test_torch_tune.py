"""tune on real DP-SGD: batch size and epochs with noise of their own, private scores on their own side, one model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import loguniform
from torch import nn

import dphypo
from dphypo.accounting import Composition, Split, Term, verify
from dphypo.accounting.composition import Role, account_published
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PrivateAccuracy

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(300, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(np.int64)
SPACE = dphypo.Space({"learning_rate": loguniform(0.05, 5), "batch_size": [20, 50], "epochs": [10, 20]})
BUDGET = {"epsilon": 6.0, "delta": 1e-4}


def network() -> nn.Module:
    return nn.Linear(4, 2)


APART = Split("records that score, by a hash of each").sides


def mechanism() -> DPSGD:
    return DPSGD(
        model=network,
        data=(INPUTS[:200], LABELS[:200]),
        score=PrivateAccuracy((INPUTS[200:], LABELS[200:]), noise_multiplier="calibrate", split=APART),
        noise_multiplier="calibrate",
        epochs=10,
        batch_size=50,
        device="cpu",
    )


@pytest.fixture(scope="module")
def tuning():
    return plan_tuning(SPACE, mechanism(), **BUDGET, survey=dphypo.SurveyPlan(runs=5, fraction=0.5))


@pytest.mark.slow
def test_a_model_is_tuned_over_settings_with_noise_of_their_own(tuning, tmp_path):
    release = Stages.of(tuning.declare(SPACE, 1e-4), journal=tmp_path / "tune.db").run(progress=False)
    assert 5.99 < release.certificate.epsilon <= 6.0
    assert verify(release.certificate)
    assert isinstance(release.model, nn.Linear)
    assert len(release.survey) == 5
    transfer = release.certificate.document["public"]["releases"][0]["transfer"]
    assert transfer["fraction"] == 0.5
    saved = dphypo.load_release(release.save(tmp_path / "release"), mechanism().saver)
    assert torch.equal(saved.model.weight, release.model.weight)
    assert saved.survey.rows == release.survey.rows


@pytest.mark.slow
def test_every_pair_of_settings_keeps_to_the_budget(tuning):
    found = tuning
    costs = found.guarantee.costs(1e-4)
    assert all(5.9 < costs[part] <= 6.0 for part in Role)
    settings = [{"batch_size": 20, "epochs": 20}, {"batch_size": 50, "epochs": 10}]
    for one in settings:
        for other in settings:
            survey = Term(account_published(found.short.event(one), 5))
            last = Term(account_published(found.full.event(other), 1))
            assert Composition((survey, last)).epsilon(1e-4) <= 6.0
    assert found.largest == 2.0  # twenty epochs, in runs of ten


@pytest.mark.slow
def test_a_setting_that_would_exceed_the_compute_is_left_out():
    found = plan_tuning(SPACE, mechanism(), **BUDGET, survey=dphypo.SurveyPlan(runs=5, fraction=0.5), compute=4.0)
    assert found.compute == 3.5
    within = found.parts[0].within
    assert within is not None
    assert not within({"learning_rate": 1.0, "batch_size": 50, "epochs": 20})
