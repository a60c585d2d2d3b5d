"""Training in JAX that is not what its event says."""

from __future__ import annotations

from mutants.mutant import Mutant

_ATTACKS = "integrations/test_jax_attacks.py"
_PLAN = "integrations/test_jax_plan.py"
_MOVES = f"{_ATTACKS}::test_one_record_moves_the_sum_by_at_most_the_clipping_norm"
_NOISE = f"{_ATTACKS}::test_the_noise_has_its_law_and_is_fresh_in_every_step_and_run"

MUTANTS = (
    Mutant(
        "JAX: the norm is rounded down",
        "norms are upper bounds in floating point",
        "jax/step.py",
        " * margin  # upper bounds",
        " * (2 - margin)",
        (f"{_ATTACKS}::test_norms_are_upper_bounds_in_exact_arithmetic",),
    ),
    Mutant(
        "JAX: zero times NaN is NaN",
        "a record that is not finite adds zero",
        "jax/step.py",
        "jnp.where(fine[:, None], one, 0.0)",
        "one",
        (f"{_MOVES}[not_a_number-False]", f"{_MOVES}[infinite-True]"),
    ),
    Mutant(
        "JAX: norms in single precision",
        "norms are upper bounds in floating point",
        "jax/step.py",
        "one.astype(jnp.float64)",
        "one.astype(jnp.float32)",
        (f"{_ATTACKS}::test_no_single_gradient_is_longer_than_the_clipping_norm_in_exact_arithmetic",),
    ),
    Mutant(
        "JAX: the norm of an outer product is that of one factor",
        "norms are upper bounds in floating point",
        "jax/step.py",
        "functools.reduce(jnp.multiply, [jnp.sum(one * one, 1) + TINY for one in part])",
        "jnp.sum(part[0] * part[0], 1)",
        (f"{_MOVES.replace('sum_by', 'sum_of_outer_products_by')}[ordinary-False]",),
    ),
    Mutant(
        "JAX: the dither is added after rounding",
        "rounding adds little to what one record moves",
        "jax/step.py",
        "jnp.floor((jnp.round(jnp.concatenate(sums, 1)) + drawn) * shrink)",
        "(jnp.round(jnp.concatenate(sums, 1) * shrink) + jnp.floor(drawn * shrink))",
        (f"{_ATTACKS}::test_the_dither_keeps_many_small_moves_together",),
    ),
    Mutant(
        "JAX: runs of a group share a key",
        "runs of a group are independent",
        "jax/dpsgd.py",
        "[noise.Words.of_seed(run.seed) for run in runs]",
        "[noise.Words.of_seed(runs[0].seed) for run in runs]",
        (_NOISE,),
    ),
    Mutant(
        "JAX: steps have the same noise",
        "every step has fresh noise",
        "jax/dpsgd.py",
        "draws.draw(), shrink",
        "Draws(words, program.size, grids[0].deviation, grids[0].bits).draw(), shrink",
        (_NOISE,),
    ),
    Mutant(
        "JAX: plans share a noise key",
        "every run has noise of its own",
        "jax/execution_plan.py",
        'key = key_of(noise.Words.of_seed(seed).stream("noise"))',
        "key = jax.random.key(0)",
        (f"{_PLAN}::test_the_noise_of_a_plan_is_the_declared_one_and_each_runs_own",),
    ),
    Mutant(
        "JAX: a banded plan may split into equal groups",
        "adding a record moves no other to another group",
        "jax/execution_plan.py",
        "    if bands > 1 and sampling.partition_type is not PartitionType.INDEPENDENT:\n",
        "    if bands > 9:\n",
        (f"{_PLAN}::test_what_is_not_accounted_is_refused_by_name",),
    ),
    Mutant(
        "JAX: a plan's noise has 23 bits",
        "no value of the noise is impossible",
        "jax/execution_plan.py",
        "deviation * normal(own, leaf.shape)",
        "deviation * jax.random.normal(own, leaf.shape)",
        ("noise/test_noise_reach.py::test_the_noise_of_a_plan_reaches_8_sigma",),
    ),
    Mutant(
        "JAX: padding counts",
        "a batch holds the records that were drawn, and no others",
        "jax/execution_plan.py",
        "is_padding = np.arange(size) >= count",
        "is_padding = np.arange(size) < 0",
        (f"{_PLAN}::test_batches_are_padded_to_few_sizes_and_padding_counts_for_nothing",),
    ),
    Mutant(
        "JAX: operators of others are mapped over a batch",
        "no batching rule of somebody else's sees several records",
        "jax/program.py",
        "return program, not foreign(code)",
        "return program, True",
        ("integrations/test_jax_tracing.py::test_a_large_record_changes_no_gradient_of_another",),
    ),
    Mutant(
        "JAX: programs inside operators are not looked at",
        "no batching rule of somebody else's sees several records",
        "jax/program.py",
        "        for inner in _programs(list(operator.params.values())):\n",
        "        for inner in _programs([]):\n",
        ("integrations/test_jax_tracing.py::test_operators_of_others_are_found_wherever_they_are",),
    ),
    Mutant(
        "JAX: runs of a group share a batching rule",
        "runs of a group are independent",
        "jax/program.py",
        "            if mapped and sum(",
        "            if sum(",
        ("integrations/test_jax_tracing.py::test_a_large_record_changes_no_gradient_of_another[2]",),
    ),
    Mutant(
        "JAX: a program may call Python",
        "no record reaches a log",
        "jax/program.py",
        "    if code.effects or any(",
        "    if any(",
        ("integrations/test_jax.py::test_a_function_that_calls_back_when_it_is_traced_again_is_refused",),
    ),
    Mutant(
        "JAX: a decomposition may not end for one record",
        "no record fails a run or reaches a log",
        "jax/program.py",
        '_UNSTEADY = frozenset({"svd", ',
        "_UNSTEADY = frozenset({",
        ("integrations/test_jax.py::test_what_is_wrong_is_named_before_anything_runs",),
    ),
)
