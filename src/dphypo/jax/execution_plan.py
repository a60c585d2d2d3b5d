"""Training with an execution plan of jax_privacy as a mechanism."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from jax.scipy.special import ndtri

from dphypo import _validate, noise
from dphypo.accounting.composition import Sides
from dphypo.jax.program import Trees
from dphypo.jax.step import key_of
from dphypo.mechanisms import OwnTraining, SampledGaussian, sampled_gaussian

_CONFIGS = {  # where jax_privacy keeps the configuration, since 2.2 and before
    "jax_privacy.execution_plan": "BandMFConfig",
    "jax_privacy.experimental.execution_plan": "BandMFExecutionPlanConfig",
}


def from_execution_plan(
    config: Any,
    train: Callable[..., Any],
    *,
    performance_flags: Any = None,
    scores: str | None = None,
    score_event: Any = None,
    split: Sides | None = None,
    transfer_rule: sampled_gaussian.Transfer | None = None,
) -> OwnTraining:
    """Turn a script that trains with a ``DPExecutionPlan`` of jax_privacy into a mechanism.

    **Guarantee.** One run costs the event of the plan, under adding or removing one record, if ``train`` uses the plan
    as jax_privacy says and reads the private records in no other way. Floating-point numbers are treated as real
    numbers; noise reaches 9 σ. The event is read from the plan and compared with what is accounted: q, σ and the number
    of rounds. With b bands, n steps are ⌈n/b⌉ rounds, because a record is in one group and takes part in every b-th
    step.

    ``plan.clipped_grad`` pads batches to a few sizes, which count for nothing, and compiles one program for each size.
    Inside your own ``jax.jit``, every batch size is compiled.

    Args:
        config: the ``BandMFConfig`` of the plan (``BandMFExecutionPlanConfig`` before jax_privacy 2.2). Every run gets
            its own plan with a noise key from its seed, because one plan adds the same noise in every run.
        train: ``train(params, *, seed, plan) -> (model, score)``. Seed the batches too:
            ``plan.batch_selection_strategy.batch_iterator(records, rng=seed)``.
        performance_flags: for ``config.make``, since jax_privacy 2.2.
        scores, score_event, split, transfer_rule: as of :class:`dphypo.mechanisms.OwnTraining`.
    """
    from jax_privacy.batch_selection import CyclicPoissonSampling, PartitionType

    if (type(config).__module__, type(config).__name__) not in _CONFIGS.items():
        raise TypeError(
            f"config is a {type(config).__name__}: give the {' or '.join(_CONFIGS.values())} that the plan is built "
            "from. A DPExecutionPlan holds one noise key, and every run of a search would add the same noise"
        )
    plan = _plan(config, performance_flags)
    sampling = plan.batch_selection_strategy
    if not isinstance(sampling, CyclicPoissonSampling):
        raise TypeError(f"the plan samples by {type(sampling).__name__}: give a plan with CyclicPoissonSampling")
    bands = sampling.cycle_length
    if sampling.truncated_batch_size is not None:
        remedy = "whether a record takes part would depend on how many others do, which is not accounted: leave it out"
        raise _validate.fail("truncated_batch_size", sampling.truncated_batch_size, remedy)
    if bands > 1 and sampling.partition_type is not PartitionType.INDEPENDENT:
        remedy = f"with {bands} bands, adding a record moves others to another group: use PartitionType.INDEPENDENT"
        raise _validate.fail("partition_type", sampling.partition_type.name, remedy)
    if config.column_normalize:
        raise _validate.fail("column_normalize", True, "the event of jax_privacy does not describe it: leave it out")
    full = _read(plan.dp_event)
    expected = (sampling.sampling_prob, -(-sampling.iterations // bands))
    if (full.rate, full.steps) != expected:
        raise ValueError(
            f"the plan's event states (q, rounds) = {(full.rate, full.steps)}, but its sampling {expected}"
        )

    def made(params: Mapping[str, Any], *, seed: int, run: SampledGaussian) -> Any:
        steps = min(config.iterations, run.steps * bands)
        noisy = _noise(config, plan, run.noise_multiplier, seed)
        batches = dataclasses.replace(sampling, iterations=steps, sampling_prob=run.rate)
        own = {"batch_selection_strategy": batches, "noise_addition_transform": noisy}
        event = SelfComposedDpEvent(PoissonSampledDpEvent(run.rate, GaussianDpEvent(run.noise_multiplier)), run.steps)
        clipped = _padded(plan.clipped_grad)
        return train(params, seed=seed, plan=dataclasses.replace(plan, **own, clipped_grad=clipped, dp_event=event))

    return OwnTraining(
        made, full, scores=scores, score_event=score_event, split=split, transfer_rule=transfer_rule, saver=Trees()
    )


def _plan(config: Any, performance_flags: Any) -> Any:
    if hasattr(config, "make"):
        return config.make(performance_flags)
    if performance_flags is not None:
        remedy = "this version of jax_privacy has no performance flags: leave them out"
        raise _validate.fail("performance_flags", performance_flags, remedy)
    return config.plan


def _read(event: DpEvent) -> SampledGaussian:
    """The run that a plan's event states."""
    match event:
        case SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps):
            return SampledGaussian(rate=float(rate), steps=steps, noise_multiplier=float(sigma))
    raise ValueError(f"the plan's event is a {type(event).__name__}, which is not accounted: give a plan of DP-SGD")


def _noise(config: Any, plan: Any, sigma: float, seed: int) -> optax.GradientTransformation:
    """The plan's noise with our normals, and with a key of 64 bits from the run's seed; jax_privacy's has 31."""
    from jax_privacy.matrix_factorization import toeplitz

    relation = config.accountant.neighboring_relation if hasattr(config, "accountant") else plan.neighboring_relation
    sensitivity = float(plan.clipped_grad(lambda: None).sensitivity(relation))
    deviation = sigma * sensitivity * float(np.linalg.norm(np.asarray(config.strategy)))
    matrix = toeplitz.inverse_as_streaming_matrix(jnp.asarray(config.strategy), None)
    key = key_of(noise.Words.of_seed(seed).stream("noise"))

    def init(model: Any) -> Any:
        return jnp.copy(key), matrix.init_multiply(model)

    def update(sums: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(sums)
        following, *keys = jax.random.split(state[0], len(leaves) + 1)
        drawn = [deviation * normal(own, leaf.shape) for own, leaf in zip(keys, leaves, strict=True)]
        made, inner = matrix.multiply_next(jax.tree.unflatten(tree, drawn), state[1])
        noisy = jax.tree.map(lambda one, more: (one + more).astype(one.dtype), sums, made)
        return noisy, (following, inner)

    return optax.GradientTransformation(init, update)


def normal(key: Any, shape: tuple[int, ...]) -> jax.Array:
    """Normals in single precision that reach 9.2 σ: Φ⁻¹ of a tail probability of 64 bits, with a sign.

    ``jax.random.normal`` makes them from uniforms of 23 bits, which end at 5.4 σ. A tail probability near 0 keeps all
    digits of a float, one near 1 does not: hence the sign.
    """
    high, low, sign = jax.random.bits(key, (3, *shape), jnp.uint32)
    tail = (high.astype(jnp.float32) + (low.astype(jnp.float32) + 0.5) * 2.0**-32) * 2.0**-33
    return jnp.where(sign >> 31 == 1, 1.0, -1.0) * ndtri(tail)


def _padded(clipped_grad: Callable[..., Any]) -> Callable[..., Any]:
    """``plan.clipped_grad`` whose functions pad a batch with zeros to one of a few sizes.

    A Poisson batch has another size in every step, and JAX compiles a program for each size that it sees.
    """

    def transform(fun: Callable[..., Any], *more: Any, **options: Any) -> Any:
        inner = clipped_grad(fun, *more, **options)
        batched = options.get("batch_argnums", 1)
        numbers = (batched,) if isinstance(batched, int) else tuple(batched)
        compiled = jax.jit(inner)
        step = options.get("microbatch_size") or 1  # which must divide the size

        def padded(*args: Any, is_padding_example: Any = None, **named: Any) -> Any:
            leaves = jax.tree.leaves((args, named))
            arrays = all(isinstance(one, jax.Array | np.ndarray) for one in leaves)
            if not arrays or any(isinstance(one, jax.core.Tracer) for one in leaves):
                given = {} if is_padding_example is None else {"is_padding_example": is_padding_example}
                return inner(*args, **given, **named)
            count = len(jax.tree.leaves(args[numbers[0]])[0])
            size = -(-_size(count) // step) * step
            filled = [_filled(one, size) if place in numbers else one for place, one in enumerate(args)]
            is_padding = np.arange(size) >= count
            if is_padding_example is not None:
                is_padding[:count] |= np.asarray(is_padding_example)
            found = compiled(*filled, is_padding_example=is_padding, **named)
            if not inner.has_aux:
                return found
            value, aux = found  # aux has a row for each record
            return value, jax.tree.map(lambda one: one[:count], aux)

        field = dataclasses.fields(inner)[0].name  # its name differs between versions of jax_privacy
        return dataclasses.replace(inner, **{field: padded})

    return transform


def _size(count: int) -> int:
    """The least of 8, 10, 12, 14, 16, 20, 24, 28, 32, ... that is at least ``count``."""
    step: int = 2 ** max(1, max(count - 1, 1).bit_length() - 3)
    return max(8, -(-count // step) * step)


def _filled(tree: Any, size: int) -> Any:
    """Arrays with zeros for the rows that are missing; those of numpy stay on the host."""

    def fill(one: Any) -> Any:
        library: Any = np if isinstance(one, np.ndarray) else jnp
        return library.concatenate([one, library.zeros((size - len(one), *one.shape[1:]), one.dtype)])

    return jax.tree.map(fill, tree)
