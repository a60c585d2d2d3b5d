"""The learning rate of a short run by rehearsal: closed forms, what it leaves alone, and what it cannot do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from dphypo.mechanisms import NoiseRehearsal, SampledGaussian, sampled_gaussian
from dphypo.mechanisms.sampled_gaussian import describe_transfer

RUN = SampledGaussian(rate=0.1, steps=200, noise_multiplier=1.5)


@dataclass(frozen=True)
class Descent:
    """SGD with momentum, each step normalised if ``sign``, with weights that decay."""

    sign: bool = False
    decay: float = 0.0
    schedule: bool = False

    def __call__(self, params, gradients, steps):
        weights, velocity = 0.0, 0.0
        for number, gradient in enumerate(gradients):
            step = np.sign(gradient) if self.sign else gradient
            velocity = params["momentum"] * velocity + step
            rate = params["learning_rate"] * (1 - number / steps if self.schedule else 1)
            weights = weights * (1 - rate * self.decay) - rate * velocity
        return weights


def short(walk, fraction, *, momentum=0.0, rate=0.1, run=RUN):
    return NoiseRehearsal(walk, run)({"learning_rate": rate, "momentum": momentum}, fraction)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5])
def test_plain_sgd_keeps_its_learning_rate(fraction):
    assert short(Descent(), fraction)["learning_rate"] == 0.1


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5])
def test_a_schedule_shrinks_with_the_run(fraction):
    assert short(Descent(schedule=True), fraction)["learning_rate"] == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5])
def test_a_step_that_ignores_the_size_of_the_gradient_grows_with_the_root(fraction):
    found = short(Descent(sign=True), fraction)["learning_rate"]
    assert found == pytest.approx(0.1 / math.sqrt(fraction), rel=0.05)


def drift(momentum, steps):
    """How far momentum takes noise of deviation one, in closed form."""
    counts = np.arange(1, steps + 1)
    return math.sqrt((((1 - momentum**counts) / (1 - momentum)) ** 2).sum())


@pytest.mark.parametrize(("momentum", "fraction"), [(0.9, 0.1), (0.9, 0.5), (0.98, 0.1)])
def test_momentum_stays_and_the_weights_go_as_far(momentum, fraction):
    found = short(Descent(), fraction, momentum=momentum)
    assert found["momentum"] == momentum
    steps = math.ceil(RUN.steps * fraction)
    exact = 0.1 * drift(momentum, RUN.steps) / drift(momentum, steps) * math.sqrt(fraction)
    assert found["learning_rate"] == pytest.approx(exact, rel=0.04)


def test_steps_that_are_not_proportional_to_the_learning_rate_are_solved_for():
    rule = NoiseRehearsal(Descent(decay=0.4), RUN)
    full = {"learning_rate": 0.3, "momentum": 0.0}
    found = rule(full, 0.1)
    assert rule._drift(found, RUN.at(fraction=0.1, match=True)) == pytest.approx(rule._drift(full, RUN), rel=2e-3)
    assert abs(found["learning_rate"] / 0.3 - 1) > 0.1  # the weights of the full run have decayed


def test_it_says_so_where_no_learning_rate_will_do():
    class Stuck(Descent):
        def __call__(self, params, gradients, steps):
            return np.full(4, sum(1.0 for _ in gradients))  # whatever the learning rate

    with pytest.raises(ValueError, match=r"learning_rate = .* in 20 steps as in 200"):
        short(Stuck(), 0.1)

    class Lost(Descent):
        def __call__(self, params, gradients, steps):
            return np.nan * sum(gradients)

    with pytest.raises(ValueError, match="transfer_rule"):
        short(Lost(), 0.1)


def test_it_is_the_same_each_time_and_says_what_it_is():
    assert short(Descent(), 0.1, momentum=0.9) == short(Descent(), 0.1, momentum=0.9)
    assert describe_transfer(NoiseRehearsal, 0.1)["rule"].startswith("noise alone")
    assert "momentum" not in sampled_gaussian.COSTS
