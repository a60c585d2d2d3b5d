"""A training loop of one's own as a mechanism that can be cut short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.stats import loguniform

import dphypo
from dphypo.errors import RehearsalError
from dphypo.mechanisms import DpSgd, OwnTraining
from dphypo.mechanisms.outcome import rehearse
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


def test_a_loop_of_ones_own_is_rehearsed_on_made_up_records_before_anything_is_spent(tmp_path):
    seen = []

    def made_up(params, *, seed, run):
        seen.append(run.steps)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    space = Space({"lr": loguniform(0.1, 1)})
    training = OwnTraining(train, RUN, rehearsal=made_up)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        dphypo.tune(space, training, epsilon=4, delta=1e-4, survey=3, journal=tmp_path / "tune.db", progress=False)
    assert seen == [2]
    with pytest.raises(ValueError, match="the journal holds nothing yet"):
        dphypo.open_journal(tmp_path / "tune.db")
    with pytest.raises(TypeError, match="it takes no run"):
        OwnTraining(train, RUN, rehearsal=lambda params, *, seed: None)


def test_a_rehearsal_that_returns_no_pair_is_refused():
    wrong = OwnTraining(train, RUN, rehearsal=lambda params, *, seed, run: ("a model", "no number"))
    with pytest.raises(RehearsalError, match="failed at"):
        rehearse(wrong, Space({"lr": loguniform(0.1, 1)}))
    rehearse(OwnTraining(train, RUN), Space({"lr": loguniform(0.1, 1)}))


def test_when_the_last_run_fails_the_curator_learns_why():
    def breaks(params, *, seed, run):
        if run.steps == RUN.steps:
            raise RuntimeError("shapes do not fit")
        return train(params, seed=seed, run=run)

    space, training = Space({"lr": loguniform(0.1, 1)}), OwnTraining(breaks, RUN)
    release = dphypo.tune(space, training, epsilon=4, delta=1e-4, survey=6, journal=None, progress=False)
    assert release.ending == "no model: every run failed"
    assert "shapes do not fit" not in repr(release)
    assert "shapes do not fit" in release.curator().trials()[0]["failure"]
    with pytest.raises(ValueError, match="open the journal"):
        replace(release, door=None).curator()
