"""The event charged is the event run: steps, sampling rate and noise, seen from outside, for every λ.

False alarms: 1e-6 a test. Each mutant must be caught.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from support.torch_witness import Net, Witness, looks_right, no_gradient, numbered, p_values, watching

from dphypo.accounting.events import ideal
from dphypo.torch import DPSGD
from dphypo.torch.engine import device
from dphypo.torch.own_loop import noise_generator
from dphypo.training.poisson_draws import BatchSampler

COUNT = 120
NOISE = {(12, 20): 0.8, (30, 20): 1.3, (12, 50): 1.9, (30, 50): 2.5}


def mechanism(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": Net,
        "data": numbered(COUNT),
        "score": lambda model: 0.0,
        "noise_multiplier": 1.1,
        "loss": no_gradient,
        "epochs": 50,
        "batch_size": 12,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def charged(event: Any) -> tuple[float, float, int]:
    """Rate, noise and steps of an event of DP-SGD."""
    event = ideal(event)
    assert isinstance(event, dp.SelfComposedDpEvent)
    step = event.event
    assert isinstance(step, dp.PoissonSampledDpEvent)
    assert isinstance(step.event, dp.GaussianDpEvent)
    return step.sampling_probability, step.event.noise_multiplier, event.count


def watched(mechanism: DPSGD, params: dict[str, Any], seed: int) -> Witness:
    with watching() as seen:
        mechanism(params, seed=seed)
    return seen


def observe(mechanism: DPSGD, params: dict[str, Any], seed: int) -> bool:
    """Whether one run looks like the event charged for it."""
    return matches(watched(mechanism, params, seed), mechanism, params, charged(mechanism.event(params)))


def matches(seen: Witness, mechanism: DPSGD, params: dict[str, Any], claim: tuple[float, float, int]) -> bool:
    rate, sigma, steps = claim
    clipping = params.get("max_grad_norm", mechanism.max_grad_norm)
    divisor = params.get("batch_size", mechanism.batch_size) / clipping
    found = p_values(seen, count=COUNT, rate=rate, sigma=sigma, divisor=divisor)
    return seen.steps == steps and looks_right(found)


def test_a_run_is_what_it_charges() -> None:
    assert observe(mechanism(), {"max_grad_norm": 0.3}, seed=1)


@pytest.mark.parametrize("batch_size", [12, 30])
@pytest.mark.parametrize("epochs", [20, 50])
def test_tuned_batch_size_and_epochs_run_what_they_charge(batch_size: int, epochs: int) -> None:
    tuned = mechanism(noise_multiplier=NOISE)
    params = {"batch_size": batch_size, "epochs": epochs, "max_grad_norm": 2.0, "learning_rate": 0.01}
    rate, sigma, steps = charged(tuned.event(params))
    assert (rate, sigma) == (batch_size / COUNT, NOISE[batch_size, epochs])
    assert steps == math.ceil(epochs * COUNT / batch_size)
    assert observe(tuned, params, seed=2)


def test_batches_in_pieces_get_one_noise() -> None:
    assert observe(mechanism(physical_batch_size=32, batch_size=40, epochs=100), {}, seed=3)


def test_rate_steps_and_divisor_come_from_the_declared_size_not_the_real_one() -> None:
    declared = mechanism(records=240, batch_size=24)
    assert charged(declared.event({})) == (0.1, 1.1, 500)
    assert observe(declared, {}, seed=4)


def test_empty_batches_are_steps_with_noise_alone() -> None:
    rare = mechanism(batch_size=1, epochs=3)
    seen = watched(rare, {}, seed=5)
    assert seen.steps == 3 * COUNT
    empty = [gradient for gradient, batch in zip(seen.gradients, seen.batches, strict=True) if not batch]
    assert len(empty) > 50
    assert all(np.abs(gradient).max() > 0 for gradient in empty)
    assert matches(seen, rare, {}, charged(rare.event({})))


def shuffled(size: int, schedule: Any) -> Iterator[NDArray[np.int64]]:
    """The usual batches: a new order every epoch, cut into pieces of equal size."""
    generator = np.random.default_rng(1)
    order: list[int] = []
    for _ in range(schedule.steps):
        if len(order) < round(schedule.rate * size):
            order = list(generator.permutation(size))
        cut = round(schedule.rate * size)
        yield np.array(order[:cut])
        order = order[cut:]


def drawn_once(size: int, schedule: Any) -> Iterator[NDArray[np.int64]]:
    """Poisson batches, but each used for two steps."""
    generator = np.random.default_rng(1)
    for _ in range(0, schedule.steps, 2):
        batch = np.flatnonzero(generator.random(size) < schedule.rate)
        yield batch
        yield batch


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [shuffled, drawn_once])
def test_batches_that_are_not_poisson_are_caught(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = mutant(COUNT, SimpleNamespace(rate=0.1, steps=10**6))

    def drawn(self: BatchSampler, steps: int, shards: int = 1) -> Any:
        found = [next(batches) for _ in range(steps)]
        sizes = [len(batch) for batch in found]
        step, places = np.repeat(np.arange(steps), sizes), np.concatenate([np.arange(n) for n in sizes])
        return step, np.zeros_like(step), places, np.concatenate(found)

    monkeypatch.setattr(BatchSampler, "batches", drawn)
    assert not observe(mechanism(), {}, seed=6)


def test_a_wrong_charge_is_caught() -> None:
    run = mechanism()
    seen = watched(run, {}, seed=7)
    assert matches(seen, run, {}, (0.1, 1.1, 500))
    for wrong in ((0.11, 1.1, 500), (0.09, 1.1, 500), (0.1, 1.06, 500), (0.1, 1.14, 500), (0.1, 1.1, 501)):
        assert not matches(seen, run, {}, wrong)


def test_the_noise_stream_is_independent_of_the_sampling_stream_and_of_the_next_seed() -> None:
    draws = [torch.randn(4000, generator=noise_generator(seed, torch.device("cpu"))) for seed in (8, 9)]
    words = device.words(8, "sampling").draw(4000)
    draws.append(torch.from_numpy(stats.norm.ppf((words >> np.uint64(11)).astype(float) * 2.0**-53)).float())
    correlations = np.corrcoef(torch.stack(draws).numpy())[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(4000)


def steep(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 1e4 * (outputs[:, 0] + outputs[:, 1])


def test_one_record_moves_a_step_by_at_most_the_clipping_norm() -> None:
    """With the same seed, runs on neighbours differ in the first step by exactly the record's clipped gradient."""
    inputs, targets = numbered(COUNT)
    shared = {"records": COUNT, "loss": steep, "max_grad_norm": 0.7, "batch_size": COUNT, "epochs": 1}
    with watching() as with_it:
        mechanism(data=(inputs, targets), **shared)({}, seed=10)
    with watching() as without:
        mechanism(data=(inputs[:-1], targets[:-1]), **shared)({}, seed=10)
    difference = (with_it.gradients[0] - without.gradients[0]) * COUNT
    assert np.linalg.norm(difference) == pytest.approx(0.7, rel=1e-3)
