"""A training loop of one's own as a mechanism that can be cut short."""

from __future__ import annotations

import pytest
from scipy.stats import loguniform

from dphypo.mechanisms import DpSgd, OwnTraining
from dphypo.space import Space
from dphypo.testing import check_mechanism

RUN = DpSgd.of(records=1000, batch_size=50, epochs=10, noise_multiplier=2.0)


def train(params, *, seed, run):
    return {"seed": seed, "steps": run.steps, "noise": run.noise_multiplier, **params}, 0.5


def test_a_short_run_has_fewer_steps_and_matched_noise():
    full = OwnTraining(train, RUN)
    short = full.at(fraction=0.25, match=True)
    model, _ = short({"lr": 0.1}, seed=3)
    assert model == {"seed": 3, "steps": 50, "noise": 4.0, "lr": 0.1}
    assert short.event == RUN.at(fraction=0.25, match=True).event
    assert full.at(noise_multiplier=3.0).run.noise_multiplier == 3.0
    assert full.transfer is None
    assert short.transfer["fraction"] == 0.25
    check_mechanism(full, Space({"lr": loguniform(0.1, 1)}))


def test_a_transfer_rule_maps_the_hyperparameters_of_short_runs_alone():
    def rule(params, fraction):
        return {**params, "learning_rate": params["learning_rate"] * fraction**-0.5}

    full = OwnTraining(train, RUN, transfer_rule=rule)
    assert full({"learning_rate": 0.01}, seed=1)[0]["learning_rate"] == 0.01
    short = full.at(fraction=0.25, match=True)
    assert short({"learning_rate": 0.01}, seed=1)[0]["learning_rate"] == pytest.approx(0.02)


@pytest.mark.parametrize("arguments", [("train", RUN), (train, "run")])
def test_what_is_no_training_is_refused(arguments):
    with pytest.raises(ValueError, match=r"train|run"):
        OwnTraining(*arguments)
