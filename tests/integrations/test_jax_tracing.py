"""Only programs of JAX's own operators are mapped over a batch: no rule of somebody else's sees several records."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap, sequential_vmap

from dphypo.jax import DPSGD
from dphypo.jax.program import foreign, traced

RNG = np.random.default_rng(0)
DATA = (RNG.normal(size=(64, 6)).astype(np.float32), RNG.integers(0, 3, 64))


@custom_vmap
def guard(x):
    return x


@guard.def_vmap
def _(axis_size, in_batched, x):
    """A batched kernel that guards against overflow: one large record turns the sign of all."""
    return jnp.where(jnp.any(jnp.abs(x) > 1e6), -x, x), True


@jax.custom_jvp
def guarded(x):
    return guard(x)


@guarded.defjvp
def _(primals, tangents):
    return guarded(primals[0]), tangents[0]


@jax.custom_vjp
def backwards(x):
    return x


backwards.defvjp(lambda x: (x, None), lambda _, given: (guard(given),))


@jax.custom_jvp
def in_the_tangent(x):
    return x


@in_the_tangent.defjvp
def _(primals, tangents):
    return primals[0] * (1 + 0 * guard(jax.lax.stop_gradient(primals[0]))), tangents[0]


def in_a_scan(x):
    return jax.lax.scan(lambda carry, _: (guarded(carry), None), x, length=2)[0]


def in_a_while(x):
    """A while loop has no reverse mode: the loop is in what is not differentiated."""
    found = jax.lax.while_loop(
        lambda at: at[0] < 2, lambda at: (at[0] + 1, guard(at[1])), (0, jax.lax.stop_gradient(x))
    )
    return x + 0 * found[1]


def foreign_call(x):
    call = jax.ffi.ffi_call("somebody_elses", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")
    return x + call(jax.lax.stop_gradient(x))


def another_generator(x):
    return x + jax.random.normal(jax.random.key(0, impl="rbg"), x.shape)


HIDDEN = {
    "plain": guarded,
    "jit": jax.jit(guarded),
    "jit in jit": jax.jit(lambda x: jax.jit(guarded)(x)),
    "checkpoint": jax.checkpoint(guarded),
    "scan": in_a_scan,
    "map": lambda x: jax.lax.map(guarded, x[None])[0],
    "cond": lambda x: jax.lax.cond(x[0] > 0, guarded, lambda one: one, x),
    "switch": lambda x: jax.lax.switch(1, [lambda one: one, guarded], x),
    "while": in_a_while,
    "backward pass": backwards,
    "tangent": in_the_tangent,
    "sequential_vmap": lambda x: x + 0 * sequential_vmap(jnp.sin)(jax.lax.stop_gradient(x)),
    "foreign call": foreign_call,
    "another generator": another_generator,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_operators_of_others_are_found_wherever_they_are(name):
    def loss(weights, x):
        return jnp.sum(HIDDEN[name](x * weights) ** 2)

    single = jax.value_and_grad(loss)
    assert foreign(jax.make_jaxpr(single)(jnp.ones(6), jnp.ones(6)))
    _, mapped = traced(single, jnp.ones(6), jnp.ones(6))
    assert not mapped


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.LSTMCell(4))(x.reshape(1, 8, -1))[0]
        x = nn.LayerNorm()(nn.MultiHeadDotProductAttention(2)(x, x))
        x = nn.avg_pool(nn.max_pool(nn.GroupNorm(2)(nn.Conv(4, (3,))(x)), (2,)), (2,))
        return nn.Dense(3)(nn.gelu(x).reshape(-1))


def with_dropout(params, x, key):
    kept = jax.random.bernoulli(key, 0.5, x.shape)
    noise = jax.random.normal(key, x.shape) + jax.random.permutation(key, x)
    return jnp.sum(jnp.where(kept, x @ params, noise) ** 2)


def test_ordinary_models_are_mapped():
    model, x = Model(), jnp.ones((8, 4))
    weights = model.init(jax.random.key(0), x)
    assert not foreign(jax.make_jaxpr(jax.grad(lambda params: model.apply(params, x).sum()))(weights))
    assert not foreign(jax.make_jaxpr(jax.grad(with_dropout))(jnp.eye(4), jnp.ones(4), jax.random.key(0)))


def clipped_sum(first, count):
    """The gradients of a piece of records, the first of which is given, and is not counted."""
    inputs = DATA[0].copy()
    inputs[0] = first
    made = DPSGD(
        init=lambda key: {"w": jax.random.normal(key, (6, 3))},
        predict=lambda params, x: guarded(x) @ params["w"],
        data=(inputs, DATA[1]),
        score=lambda params: 0.0,
        noise_multiplier=1.0,
        batch_size=32,
    )
    program = made.program(made.values({}))
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(count, 18)).astype(np.float32))
    numbers = np.tile(np.arange(32, dtype=np.int32), (count, 1))
    numbers[1:] += 1  # only the first run has the first record
    keys = jnp.stack([jax.random.key(0)] * count)
    found, _ = program.gradients(rows, numbers, keys, 0, np.zeros(count, np.int64))
    return [np.asarray(one) for one in jax.tree.leaves(found)]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_large_record_changes_no_gradient_of_another(runs):
    """One moved a sum by 15.8 clipping norms. With several runs, not those of another run, either."""
    for ordinary, large in zip(clipped_sum(0.0, runs), clipped_sum(1e7, runs), strict=True):
        assert np.array_equal(ordinary[0, 1:], large[0, 1:])
        assert np.array_equal(ordinary[1:], large[1:])


def test_the_program_that_was_looked_at_is_the_one_that_runs():
    calls = []

    def changes_its_mind(x):
        calls.append(x)
        return x if len(calls) == 1 else guard(x)

    program, mapped = traced(changes_its_mind, jnp.ones(2))
    assert mapped
    assert np.array_equal(jax.vmap(program)(jnp.array([[1.0, 2.0], [1e7, 1e7]]))[0], [1.0, 2.0])
    assert len(calls) == 1


@pytest.mark.slow
def test_large_values_beside_a_record_are_tried():
    """Without the list, the trial finds a rule that only large values set off."""
    made = DPSGD(
        init=lambda key: {"w": jax.random.normal(key, (6, 3))},
        predict=lambda params, x: guarded(x) @ params["w"],
        data=DATA,
        score=lambda params: 0.0,
        noise_multiplier=1.0,
        batch_size=32,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dphypo.jax.program.traced", lambda function, *_: (partial(function), True))
        program = made.program(made.values({}))
        keys = jnp.stack([jax.random.key(0)])
        program.gradients(jnp.ones((1, 18)), np.arange(32, dtype=np.int32)[None], keys, 0, np.zeros(1, np.int64))
        assert program._alone == {(1, 32): True}
