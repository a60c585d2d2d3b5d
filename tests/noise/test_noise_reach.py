"""Every noise that the library constructs reaches 8 σ, which a Gaussian exceeds with probability 1e-15.

Noise that ends earlier makes outputs impossible without a record that are possible with it. Each generator is driven
to its end: its random bits are all zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dphypo import noise

REACH = 8.0


def counts() -> float:
    return abs(noise.noisy_count(0, 50.0, noise.Words.of_seed(1))) / 50


def sums() -> float:
    return abs(noise.noisy_sum([0.0], 3.0, 2.0, noise.Words.of_seed(1))) / 6


def rounded() -> float:
    return float(np.abs(noise.rounded_gaussian(2.0**14, noise.Words.of_seed(1), 1000)).max()) / 2**14


def torch_step() -> float:
    torch = pytest.importorskip("torch")
    from support.torch_steps import change, nothing, one_step, wide

    return float(change(one_step(wide, torch.zeros(1, 500), torch.zeros(1), 1, loss=nothing)).abs().max())


def jax_step() -> float:
    jnp = pytest.importorskip("jax.numpy")
    from dphypo.jax import DPSGD

    mechanism = DPSGD(
        init=lambda key: jnp.zeros(1000),
        loss=lambda weights, record: 0.0 * jnp.sum(weights) * record[0],
        data=(np.zeros(4, np.float32),),
        score=lambda model: 0.0,
        noise_multiplier=1.0,
        batch_size=4,
        epochs=1,
        learning_rate=1.0,
        max_grad_norm=1.0,
    )
    return float(np.abs(mechanism({}, seed=1).model).max()) * 4


@pytest.mark.parametrize("noisy", [counts, sums, rounded, torch_step, jax_step])
def test_exact_noise_reaches_8_sigma(noisy: Callable[[], float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise.Words, "draw", lambda self, count: np.zeros(count, dtype=np.uint64))
    assert noisy() > REACH


def zeros_generator() -> Any:
    """A generator of JAX whose bits are all zero."""
    random, jnp = pytest.importorskip("jax.extend.random"), pytest.importorskip("jax.numpy")
    return random.define_prng_impl(
        key_shape=(1,),
        seed=lambda seed: jnp.zeros(1, jnp.uint32),
        split=lambda key, shape: jnp.zeros((*shape, 1), jnp.uint32),
        random_bits=lambda key, width, shape: jnp.zeros(shape, f"uint{width}"),
        fold_in=lambda key, data: key,
        name="zeros",
        tag="zeros",
    )


def largest_of_jax() -> float:
    import jax

    key = jax.random.wrap_key_data(np.zeros(1, np.uint32), impl=zeros_generator())
    return abs(float(jax.random.normal(key)))


def largest_of_a_plan(monkeypatch: pytest.MonkeyPatch, bands: int) -> tuple[float, Any]:
    """The largest noise of a plan's first step, in units of its deviation; and the type of the output."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax_privacy")
    from support.plans import plan_config

    from dphypo.jax import execution_plan

    strategy = 0.5 ** np.arange(bands)
    config = plan_config(iterations=4, strategy=strategy, noise_multiplier=0.5)
    impl = zeros_generator()
    monkeypatch.setattr(
        execution_plan, "key_of", lambda words: jax.random.wrap_key_data(np.zeros(1, np.uint32), impl=impl)
    )

    def first(params: Any, *, seed: int, plan: Any) -> Any:
        model = jax.numpy.zeros(3)
        noisy, _ = plan.noise_addition_transform.update(model, plan.noise_addition_transform.init(model))
        return noisy, 0.0

    drawn = execution_plan.from_execution_plan(config, first, scores="public")({}, seed=1)[0]
    return float(np.abs(np.asarray(drawn)).max()) / (0.5 * float(np.linalg.norm(strategy))), drawn.dtype


@pytest.mark.parametrize("bands", [1, 2])
def test_the_noise_of_a_plan_reaches_8_sigma(bands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest_of_jax() < 5.5
    largest, kind = largest_of_a_plan(monkeypatch, bands)
    assert largest > REACH
    assert kind == np.float32, "the sums keep their type"


def test_noise_for_opacus_is_drawn_from_53_bits() -> None:
    """Such normals reach 8.57 σ; those from 24 bits end at 5.77 σ."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from dphypo.torch import own_loop

    assert own_loop.gaussian(2.0, torch.zeros(3), torch.Generator().manual_seed(1)).dtype == torch.float64
