"""The one event of DP-SGD, its short versions, transfer rules from full to short runs, and training of one's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dp_accounting as dp
import pytest
from scipy.stats import loguniform

import dphypo
from dphypo.accounting import account
from dphypo.errors import UnsupportedModelError
from dphypo.laws import Pmf
from dphypo.mechanisms import OwnTraining, SampledGaussian, SmallerBatches
from dphypo.mechanisms.mechanism import rehearse
from dphypo.mechanisms.sampled_gaussian import apply_transfer, describe_transfer
from dphypo.space import Space
from dphypo.testing import check_mechanism

ONCE = Pmf({1: 1.0})
RUN = SampledGaussian.of(records=1000, batch_size=50, epochs=10, noise_multiplier=2.0)


def test_the_event_is_built_from_public_numbers() -> None:
    run = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.71)
    expected = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(0.71)), 2344)
    assert run.event == expected
    assert SampledGaussian.of(records=60_000, batch_size=256, steps=2344, noise_multiplier=0.71).event == expected


@pytest.mark.parametrize(("fraction", "steps"), [(1.0, 2344), (0.1, 235), (0.03, 71), (1e-6, 1)])
def test_a_short_run_has_matched_noise(fraction: float, steps: int) -> None:
    full = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    short = full.at(fraction=fraction, match=True)
    assert short.steps == steps
    assert short.noise_multiplier == pytest.approx(0.63 / math.sqrt(fraction))
    assert full.at(fraction=fraction).noise_multiplier == 0.63


def test_a_short_run_with_matched_noise_costs_little() -> None:
    full = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    costs = [account(run.event, ONCE).epsilon(1e-5) for run in (full, full.at(fraction=0.1, match=True))]
    assert costs[1] < 0.1 * costs[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 201}, "declared 200 records"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": None}, "give either epochs or steps"),
        ({"steps": 3}, "give either epochs or steps"),
        ({"epochs": None, "steps": 0}, "steps"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"fraction": 0}, "fraction"),
        ({"fraction": 1.5}, "fraction"),
        ({"records": 0}, "records"),
    ],
)
def test_wrong_runs_are_named(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"records": 200, "batch_size": 20, "epochs": 2, "noise_multiplier": 1.0}
    with pytest.raises(ValueError, match=message):
        SampledGaussian.of(**arguments | changes)


def test_a_rule_cannot_change_what_a_run_costs() -> None:
    full = {"learning_rate": 0.1, "batch_size": 64}
    assert apply_transfer(lambda params, fraction: {**params, "learning_rate": 1.0}, full, 0.1)["learning_rate"] == 1.0
    for changed in ({"batch_size": 32}, {"epochs": 1}, {"noise_multiplier": 0.1}):
        with pytest.raises(ValueError, match="may not change it"):
            apply_transfer(lambda params, fraction, changed=changed: {**params, **changed}, full, 0.1)
    with pytest.raises(ValueError, match="may not change it"):
        apply_transfer(lambda params, fraction: {"learning_rate": 1.0}, full, 0.1)
    assert describe_transfer(SmallerBatches(0.5), 0.1)["batch_exponent"] == 0.5
    assert describe_transfer(halved, 0.1)["rule"] == f"{__name__}.halved"


def halved(params: Any, fraction: float) -> Any:
    return {**params, "learning_rate": params["learning_rate"] / 2}


def train(params, *, seed, run):
    return {"seed": seed, "steps": run.steps, "noise": run.noise_multiplier, **params}, 0.5


def test_a_short_run_has_fewer_steps_and_matched_noise():
    full = OwnTraining(train, RUN, scores="public")
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

    full = OwnTraining(train, RUN, scores="public", transfer_rule=rule)
    assert full({"learning_rate": 0.01}, seed=1)[0]["learning_rate"] == 0.01
    short = full.at(fraction=0.25, match=True)
    assert short({"learning_rate": 0.01}, seed=1)[0]["learning_rate"] == pytest.approx(0.02)


@pytest.mark.parametrize("arguments", [("train", RUN), (train, "run"), (train, RUN, [])])
def test_what_is_no_training_is_refused(arguments):
    with pytest.raises(ValueError, match=r"train|run|score_event"):
        OwnTraining(*arguments)


def test_a_loop_of_ones_own_is_rehearsed_on_made_up_records_before_anything_is_spent(tmp_path):
    seen = []

    def made_up(params, *, seed, run):
        seen.append(run.steps)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    space = Space({"lr": loguniform(0.1, 1)})
    training = OwnTraining(train, RUN, scores="public", rehearsal=made_up)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        dphypo.tune(space, training, epsilon=4, delta=1e-4, survey=3, journal=tmp_path / "tune.db", progress=False)
    assert seen == [2]
    with pytest.raises(ValueError, match="the journal holds nothing yet"):
        dphypo.open_journal(tmp_path / "tune.db")
    with pytest.raises(TypeError, match="unexpected keyword argument 'run'"):
        OwnTraining(train, RUN, scores="public", rehearsal=lambda params, *, seed: None)


def test_a_rehearsal_that_returns_no_pair_is_refused():
    wrong = OwnTraining(train, RUN, scores="public", rehearsal=lambda params, *, seed, run: ("a model", "no number"))
    with pytest.raises(UnsupportedModelError, match="failed at"):
        rehearse(wrong, Space({"lr": loguniform(0.1, 1)}))
    rehearse(OwnTraining(train, RUN, scores="public"), Space({"lr": loguniform(0.1, 1)}))


def test_a_loop_that_never_reads_the_declared_noise_is_refused_before_anything_is_drawn(tmp_path):
    """Before, a loop without noise, or with the noise of its own PrivacyEngine, was certified."""

    def without_noise(params, *, seed, run):
        return {"lr": params["lr"]}, 0.5

    def in_a_function(params, *, seed, run):
        return (lambda: run.noise_multiplier)(), 0.5

    space = Space({"lr": loguniform(0.1, 1)})
    training = OwnTraining(without_noise, RUN, scores="public")
    with pytest.raises(UnsupportedModelError, match="train does not use its argument run"):
        dphypo.tune(space, training, epsilon=4, delta=1e-4, survey=3, journal=tmp_path / "tune.db", progress=False)
    with pytest.raises(ValueError, match="the journal holds nothing yet"):
        dphypo.open_journal(tmp_path / "tune.db")
    rehearse(OwnTraining(in_a_function, RUN, scores="public"), space)
    rehearse(OwnTraining(lambda params, **more: train(params, **more), RUN, scores="public"), space)


def test_when_the_last_run_fails_the_curator_learns_why():
    def breaks(params, *, seed, run):
        if run.steps == RUN.steps:
            raise RuntimeError("shapes do not fit")
        return train(params, seed=seed, run=run)

    space, training = Space({"lr": loguniform(0.1, 1)}), OwnTraining(breaks, RUN, scores="public")
    release = dphypo.tune(space, training, epsilon=4, delta=1e-4, survey=6, journal=None, progress=False)
    assert release.ending == "no model: every run failed"
    assert "shapes do not fit" not in repr(release)
    assert "shapes do not fit" in release.curator().trials()[0]["failure"]
    with pytest.raises(ValueError, match="does not know its journal"):
        replace(release, curator_view=None).curator()


def test_own_training_says_on_which_records_it_scores():
    """Before, a score without noise on private records was taken without a word."""
    with pytest.raises(ValueError, match=r'scores = None is not valid.*scores="public".*score_event='):
        OwnTraining(train, RUN)
    with pytest.raises(ValueError, match="not both"):
        OwnTraining(train, RUN, scores="public", score_event=dp.GaussianDpEvent(3.0))
    with pytest.raises(ValueError, match="scores = 'private' is not valid"):
        OwnTraining(train, RUN, scores="private")
    public = OwnTraining(train, RUN, scores="public")
    parts = [dphypo.Survey(public, 2), dphypo.LastRun(public)]
    search = dphypo.Stages(Space({"lr": loguniform(0.1, 1)}), parts, delta=1e-5, journal=None)
    said = search.certificate.statement()
    assert "scores of a survey were taken on public records alone, as whoever declared the training states" in said
