"""Training with an execution plan of jax_privacy as a mechanism."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from dphypo import _validate, noise
from dphypo.accounting.sides import Sides
from dphypo.integrations.jax.records import Trees
from dphypo.integrations.jax.step import key_of
from dphypo.mechanisms import OwnTraining, SampledGaussian, transfer

if TYPE_CHECKING:
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig


def from_execution_plan(
    config: BandMFExecutionPlanConfig,
    train: Callable[..., Any],
    *,
    score_event: Any = None,
    split: Sides | None = None,
    transfer_rule: transfer.Transfer | None = None,
) -> OwnTraining:
    """A script that trains with a ``DPExecutionPlan`` of jax_privacy, as a mechanism.

    Formal guarantee: one run costs the event of the plan, under adding or removing one record, if ``train`` uses the
    plan as jax_privacy says, and looks at the private records in no other way. Floating-point numbers are taken as real
    ones. The event is read from the plan and compared with what we account: q, σ and the number of rounds. With b
    bands, n steps are ⌈n/b⌉ rounds: a record is in one group, and takes part in every b-th step.

    Args:
        config: what the plan is made of. Every run gets a plan of its own, with a noise key from its seed: one plan
            holds one key, and would add the same noise in every run.
        train: ``train(params, *, seed, plan) -> (model, score)``. Give the batches a generator of their own:
            ``plan.batch_selection_strategy.batch_iterator(records, rng=seed)``.
        score_event, split, transfer_rule: as of :class:`dphypo.mechanisms.OwnTraining`.
    """
    from jax_privacy.batch_selection import PartitionType
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

    given: object = config
    if not isinstance(given, BandMFExecutionPlanConfig):
        raise TypeError(
            f"config is a {type(given).__name__}: give the BandMFExecutionPlanConfig that the plan is made of. A "
            "DPExecutionPlan holds one noise key, and every run of a search would add the same noise"
        )
    bands = len(np.asarray(config.strategy))
    if config.truncated_batch_size is not None:
        remedy = "whether a record takes part would depend on how many others do, which is not accounted: leave it out"
        raise _validate.fail("truncated_batch_size", config.truncated_batch_size, remedy)
    if bands > 1 and config.partition_type is not PartitionType.INDEPENDENT:
        remedy = f"with {bands} bands, adding a record moves others to another group: use PartitionType.INDEPENDENT"
        raise _validate.fail("partition_type", config.partition_type.name, remedy)
    if config.column_normalize:
        raise _validate.fail("column_normalize", True, "the event of jax_privacy does not know of it: leave it out")
    full = config.plan
    run = _read(full.dp_event)
    expected = (config.sampling_prob, -(-config.iterations // bands))
    if (run.rate, run.steps) != expected:
        raise ValueError(f"the plan's event says (q, rounds) = {(run.rate, run.steps)}, and its config {expected}")

    def made(params: Mapping[str, Any], *, seed: int, run: SampledGaussian) -> Any:
        changes = {"epsilon": None, "delta": None, "noise_multiplier": run.noise_multiplier}
        steps = min(config.iterations, run.steps * bands)
        own = dataclasses.replace(config, **changes, iterations=steps)
        return train(params, seed=seed, plan=_keyed(own, seed))

    return OwnTraining(made, run, score_event=score_event, split=split, transfer_rule=transfer_rule, saver=Trees())


def _read(event: DpEvent) -> SampledGaussian:
    """The run that a plan's event states."""
    match event:
        case SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps):
            return SampledGaussian(rate=float(rate), steps=steps, noise_multiplier=float(sigma))
    raise ValueError(f"the plan's event is a {type(event).__name__}, which is not accounted: give a plan of DP-SGD")


def _keyed(config: BandMFExecutionPlanConfig, seed: int) -> Any:
    """The plan with noise from the run's seed: all 64 bits of a key, where jax_privacy's own takes 32 of a number."""
    from jax_privacy import noise_addition
    from jax_privacy.matrix_factorization import toeplitz

    plan = config.plan
    sensitivity = plan.clipped_grad(lambda: None).sensitivity(config.accountant.neighboring_relation)
    norm = float(np.linalg.norm(np.asarray(config.strategy)))
    transform = noise_addition.matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(config.strategy, None),
        stddev=float(config.noise_multiplier or 0.0) * float(sensitivity) * norm,
        prng_key=key_of(noise.Words.of_seed(seed).stream("noise")),
        dtype=config.dtype,
    )
    return dataclasses.replace(plan, noise_addition_transform=transform)
