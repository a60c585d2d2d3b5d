"""Short versions of a training: noise, learning rate, schedules, settings, compute, and the noise of scores."""

from __future__ import annotations

import itertools
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dphypo
from dphypo.accounting.events import ideal
from dphypo.mechanisms import NoiseRehearsal, OwnTraining, SampledGaussian, SmallerBatches
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PrivateAccuracy, runs
from dphypo.torch.engine import optimisers
from dphypo.torch.hyperparameters import rehearsal, walk

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 200)
INPUTS = (RNG.normal(size=(200, 5)) + 2 * LABELS[:, None]).astype(np.float32)


def dpsgd(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": lambda: nn.Linear(5, 2),
        "data": (INPUTS, LABELS),
        "score": lambda model: 0.5,
        "noise_multiplier": 0.5,
        "epochs": 8,
        "batch_size": 40,
        "learning_rate": 0.2,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def weights(mechanism: DPSGD, params: Any = None) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in mechanism(params or {}, seed=1).model.parameters()])


def test_a_short_run_is_the_training_with_fewer_steps_more_noise_and_its_own_learning_rate() -> None:
    short = dpsgd(optimizer="adam").at(fraction=0.25, match=True)
    assert ideal(short.event({})) == SampledGaussian(rate=0.2, steps=10, noise_multiplier=1.0).event
    full, params = (
        SampledGaussian(rate=0.2, steps=40, noise_multiplier=0.5),
        {"optimizer": "adam", "learning_rate": 0.2},
    )
    found = rehearsal(params, 0.25, run=full, deviation=0.5 / 40)
    assert found["learning_rate"] == pytest.approx(0.2 * 2, rel=0.2)  # a step ignores the size of the gradient
    by_hand = dpsgd(optimizer="adam", epochs=2, noise_multiplier=1.0, learning_rate=found["learning_rate"])
    assert torch.equal(weights(short), weights(by_hand))
    # λ is the full run's, wherever it comes from.
    assert torch.equal(weights(short, {"learning_rate": 0.2}), weights(by_hand))
    sgd = dpsgd().at(fraction=0.25, match=True)
    assert torch.equal(weights(sgd), weights(dpsgd(epochs=2, noise_multiplier=1.0)))
    plain = dpsgd(optimizer="adam").at(fraction=0.25)
    assert torch.equal(weights(plain), weights(dpsgd(optimizer="adam", epochs=2)))


def test_a_rule_of_ones_own_is_used_and_declared() -> None:
    def rule(params: Any, fraction: float) -> Any:
        return {**params, "learning_rate": params["learning_rate"] / fraction, "max_grad_norm": 3.0}

    short = dpsgd(transfer_rule=rule).at(fraction=0.25, match=True)
    by_hand = dpsgd(epochs=2, noise_multiplier=1.0, learning_rate=0.8, max_grad_norm=3.0)
    assert torch.equal(weights(short), weights(by_hand))
    assert short.transfer is not None
    assert short.transfer["rule"].endswith("rule")
    assert dpsgd().transfer is None
    declared = dpsgd().at(fraction=0.25, match=True).transfer
    assert declared is not None
    assert declared["fraction"] == 0.25
    assert declared["rule"].startswith("noise alone")


def test_a_rule_may_scale_the_batch_of_short_runs() -> None:
    """A quarter of the batch and of the steps is a sixteenth of the examples; what accumulates in the weights stays."""
    mechanism = dpsgd(transfer_rule=SmallerBatches(0.5))
    short = mechanism.at(fraction=1 / 16, match=True)
    assert ideal(short.event({})) == SampledGaussian(rate=0.05, steps=10, noise_multiplier=1.0).event
    by_hand = dpsgd(batch_size=10, epochs=0.5, noise_multiplier=1.0, learning_rate=0.05)
    assert torch.equal(weights(short), weights(by_hand))
    assert short.compute({}) == mechanism.compute({}) / 16
    assert torch.equal(weights(mechanism), weights(dpsgd())), "the full run is what it was"
    assert short.transfer is not None
    assert short.transfer["batch_exponent"] == 0.5
    settings = dphypo.Space({"batch_size": [20, 80]})
    events: list[Any] = [ideal(kind.event(1.0)) for kind in short.kinds(settings)]
    assert sorted(event.event.sampling_probability for event in events) == [0.025, 0.1]
    tabled = mechanism.at(noise_multiplier={(20, 8): 1.0, (80, 8): 2.0, (40, 8): 1.0}).at(fraction=1 / 16, match=True)
    assert ideal(tabled.event({"batch_size": 80})) == SampledGaussian(rate=0.1, steps=5, noise_multiplier=4.0).event
    with pytest.warns(UserWarning, match="measured for plain SGD"):
        dpsgd(optimizer="adam", transfer_rule=SmallerBatches()).at(fraction=0.25, match=True)
    with pytest.raises(ValueError, match="exponent"):
        SmallerBatches(1.0)
    with pytest.raises(ValueError, match="leave the rule out"):
        OwnTraining(
            lambda params, *, seed, run: (1, 0.0),
            SampledGaussian(rate=0.1, steps=9, noise_multiplier=1.0),
            transfer_rule=SmallerBatches(),
        )


@pytest.mark.slow
def test_the_noise_of_a_plan_with_scaled_batches_costs_no_more_than_the_total() -> None:
    space = dphypo.Space({"batch_size": [20, 40], "learning_rate": [0.1, 0.2]})
    mechanism = dpsgd(noise_multiplier="calibrate", transfer_rule=SmallerBatches())
    tuning = plan_tuning(space, mechanism, epsilon=4.0, delta=1e-4, survey=dphypo.SurveyPlan(runs=4, fraction=0.25))
    assert 3.999 <= tuning.guarantee.epsilon(1e-4) <= 4.0
    plain = plan_tuning(
        space,
        dpsgd(noise_multiplier="calibrate"),
        epsilon=4.0,
        delta=1e-4,
        survey=dphypo.SurveyPlan(runs=4, fraction=0.25),
    )
    assert tuning.price <= plain.price + 0.01


def test_averaged_weights_are_rehearsed_as_they_are_released() -> None:
    """An average over a half of any run takes the same share off the drift; one over ten steps does not."""
    full = SampledGaussian(rate=0.2, steps=400, noise_multiplier=0.5)

    def factor(average: Any) -> float:
        params = {"optimizer": "sgd", "learning_rate": 1.0, "average": average}
        return float(NoiseRehearsal(walk, full)(params, 0.1)["learning_rate"])

    assert factor(None) == 1.0
    assert factor("last half") == pytest.approx(1.0, abs=0.05)
    assert factor(0.9) > 1.05


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.05},
        {"optimizer": "adam", "betas": [0.8, 0.9], "eps": 1e-3},
        {"optimizer": "adamw"},
        {"optimizer": "RMSprop", "momentum": 0.5, "average": 0.9},
        {"optimizer": "adagrad", "lr_decay": 0.1},
    ],
    ids=str,
)
def test_one_rehearsal_for_all_learning_rates_finds_what_each_of_its_own_does(options: dict[str, Any]) -> None:
    """Weight decay is not proportional to the learning rate: such optimisers are rehearsed for each."""
    full = SampledGaussian(rate=0.2, steps=60, noise_multiplier=0.5)
    for rate, schedule in itertools.product((0.003, 0.3), (None, lambda share: 1 - 0.5 * share)):
        params = {**options, "learning_rate": rate}
        found = rehearsal(params, 0.25, run=full, deviation=0.01, schedule=schedule)
        own = NoiseRehearsal(partial(walk, schedule=schedule), full, 0.01)(params, 0.25)
        assert found["learning_rate"] == pytest.approx(own["learning_rate"], rel=1e-9)
        assert {**found, "learning_rate": rate} == params


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"optimizer": "adamw"}, {"optimizer": "nadam"}], ids=str)
def test_a_rehearsal_walks_as_pytorch_does(options: dict[str, Any]) -> None:
    params = {"optimizer": "sgd", "learning_rate": 0.1, **options}
    gradients = list(np.random.default_rng(1).standard_normal((30, 5)))
    weights = torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))
    taken = {name: value for name, value in options.items() if name != "optimizer"}
    optimizer = optimisers.known()[params["optimizer"]]([weights], lr=0.1, **taken)
    for gradient in gradients:
        weights.grad = torch.from_numpy(gradient)
        optimizer.step()
    assert walk(params, gradients, 30) == pytest.approx(weights.detach().numpy(), rel=1e-9)


@pytest.mark.parametrize("optimizer", ["adadelta", "asgd", "nadam", "radam", "rmsprop", "rprop"])
def test_any_optimiser_can_be_rehearsed(optimizer: str) -> None:
    """With Nesterov's momentum, too, whose memory may not be zero."""
    given = {"momentum": 0.9, "nesterov": True} if optimizer == "asgd" else {}
    mechanism = dpsgd(optimizer="sgd" if given else optimizer, fixed=given)
    assert mechanism.at(fraction=0.1, match=True)({}, seed=1).model is not None


def test_tables_of_noise_are_matched_too() -> None:
    mechanism = dpsgd(noise_multiplier={(40, 8): 0.5, (20, 8): 0.25})
    short = mechanism.at(fraction=0.25, match=True)
    assert isinstance(short.noise_multiplier, dict)
    assert short.noise_multiplier[20, 8] == 0.5
    again = mechanism.at(noise_multiplier={(40, 8): 1.0})
    assert ideal(again.event({})) == SampledGaussian(rate=0.2, steps=40, noise_multiplier=1.0).event
    assert dpsgd(noise_multiplier="calibrate").at(fraction=0.25, match=True).noise_multiplier == "calibrate"


def test_kinds_are_the_settings_of_the_space_with_the_steps_of_the_run() -> None:
    space = dphypo.Space({"batch_size": [20, 40], "steps": [10, 30], "learning_rate": [0.1, 0.2]})
    found = {kind.key: ideal(kind.event(2.0)) for kind in dpsgd().kinds(space)}
    assert found == {
        (batch, None, steps): SampledGaussian(rate=batch / 200, steps=steps, noise_multiplier=2.0).event
        for batch in (20, 40)
        for steps in (10, 30)
    }
    short = {kind.key: ideal(kind.event(2.0)) for kind in dpsgd().at(fraction=0.5, match=True).kinds(space)}
    assert short[20, None, 30] == SampledGaussian(rate=0.1, steps=15, noise_multiplier=2.0).event
    assert len(dpsgd().kinds(dphypo.Space({"learning_rate": [0.1, 0.2]}))) == 1


def test_steps_can_be_tuned() -> None:
    mechanism = dpsgd()
    assert ideal(mechanism.event({"steps": 7})) == SampledGaussian(rate=0.2, steps=7, noise_multiplier=0.5).event
    assert torch.equal(weights(mechanism, {"steps": 10}), weights(dpsgd(epochs=2)))
    assert mechanism.compute({"steps": 7, "batch_size": 20}) == 140
    assert mechanism.compute({}) == 1600
    assert mechanism.at(fraction=0.25, match=True).compute({}) == 400


def test_schedules_shrink_with_the_steps() -> None:
    """The learning rate falls to its half at the middle of any run."""
    seen: list[float] = []

    def linear(done: float) -> float:
        seen.append(done)
        return 1 - done

    mechanism = dpsgd(schedule=linear)
    seen.clear()  # it was tried when it was given
    full = weights(mechanism)
    assert seen == [number / 40 for number in range(40)]
    assert not torch.equal(full, weights(dpsgd()))
    seen.clear()
    weights(dpsgd(schedule=linear).at(fraction=0.25, match=True))
    assert seen[-10:] == [number / 10 for number in range(10)]


def test_the_noise_of_a_score_can_be_left_to_a_plan() -> None:
    score = PrivateAccuracy((INPUTS, LABELS), noise_multiplier="calibrate", records=200)
    mechanism = dpsgd(score=score)
    assert mechanism.score_noise_multiplier == "calibrate"
    with pytest.raises(ValueError, match=r"dphypo\.tune"):
        dphypo.Study(
            dphypo.Space({"learning_rate": [0.1]}), mechanism, dphypo.Geometric(mean=3), delta=1e-5, journal=None
        )
    found = mechanism.at(score_noise_multiplier=3.0)
    assert found.score_noise_multiplier == 3.0
    assert found.score_event == score.__class__((INPUTS, LABELS), 3.0).event
    assert dpsgd().score_noise_multiplier is None
    with pytest.raises(ValueError, match="public records"):
        dpsgd().at(score_noise_multiplier=3.0)


def test_copies_do_not_try_the_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solving for noise makes many copies."""
    mechanism = dpsgd()
    calls: list[Any] = []
    captured = runs.captured

    def counted(*given: Any, **more: Any) -> Any:
        calls.append(given)
        return captured(*given, **more)

    monkeypatch.setattr(runs, "captured", counted)
    for noise in (1.0, 2.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mechanism.at(noise_multiplier=noise).at(fraction=0.5, match=True)
    assert not calls
    mechanism.at(model=lambda: nn.Linear(5, 3))
    assert len(calls) == 1
