"""The exact step in JAX under attack: cancelling, huge and tiny gradients, NaN, places, keys, noise, dither."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.slow import mostly_slow

from dphypo import noise
from dphypo.jax import DPSGD, step
from dphypo.jax.program import Program, as_records
from dphypo.torch.engine import SumGrid
from dphypo.training.poisson_draws import Draws
from dphypo.training.sum_on_grid import BETA

FALSE_ALARM = 1e-6
SIZE = 40
RNG = np.random.default_rng(0)
GRID = SumGrid.of(noise_multiplier=1.0, max_grad_norm=0.7, size=SIZE, terms=step.terms(SIZE, 32, 1), largest_batch=32)
MOST = GRID.radius * GRID.scale * (1 - 2.0**-50)


def clipped_sum(gradients, counts=None, grid=GRID, normalise=False):
    """The sum of one run's gradients, [records, size], in units of h·2^−bits."""
    cut = gradients.shape[1] // 3  # two arrays, the second of two dimensions
    return sum_of([(gradients[:, :cut],), (gradients[:, cut:, None],)], counts, grid, normalise)


def sum_of(parts, counts=None, grid=GRID, normalise=False, kind=np.float32):
    """The same of arrays, and of factors of matrices."""
    counts = np.ones(len(parts[0][0]), bool) if counts is None else counts
    most = np.array([grid.radius * grid.scale * (1 - 2.0**-50)])
    with jax.enable_x64(True):
        found = [tuple(one[None].astype(kind) for one in part) for part in parts]
        sums = [np.zeros((1, math.prod(one.shape[2] for one in part))) for part in found]
        given = (sums, found, counts[None], True, most, np.array([grid.scale]))
        return np.concatenate(step.add_clipped(*given, normalise=normalise), 1)[0]


def exact_square(values):
    return sum((Fraction(float(value)) ** 2 for value in values), Fraction(0))


ATTACKS = {
    "ordinary": RNG.normal(size=SIZE),
    "huge": 1e30 * RNG.normal(size=SIZE),
    "past_the_largest_square": np.full(SIZE, 3e38),
    "tiny": 1e-30 * RNG.normal(size=SIZE),
    "subnormal": np.full(SIZE, 1e-44),
    "one_number": np.eye(SIZE)[3] * 1e20,
    "cancels_the_others": -100.0 * np.ones(SIZE),
    "nothing": np.zeros(SIZE),
    "not_a_number": np.where(np.arange(SIZE) == 5, np.nan, 1.0),
    "infinite": np.where(np.arange(SIZE) == 5, np.inf, 1.0),
    "minus_infinite": np.full(SIZE, -np.inf),
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_one_record_moves_the_sum_by_at_most_the_clipping_norm(attack, normalise):
    others = np.concatenate(
        [RNG.normal(size=(15, SIZE)), 100.0 * np.ones((8, SIZE)), 1e25 * RNG.normal(size=(8, SIZE))]
    )
    batch = np.concatenate([others, ATTACKS[attack][None]])
    here, there = (clipped_sum(batch, np.arange(32) < count, normalise=normalise) for count in (32, 31))
    assert np.isfinite(here).all()
    moved = exact_square([Fraction(float(a)) - Fraction(float(b)) for a, b in zip(here, there, strict=True)])
    rounding = 2 * 64 * 32 * (step.terms(SIZE, 32, 1) + 4) * 2.0**-53  # 2ρ/C₀, as the grid takes it
    assert moved <= Fraction(GRID.radius * GRID.scale * (1 + rounding)) ** 2
    if not np.isfinite(ATTACKS[attack]).all():
        np.testing.assert_array_equal(here, there)


VECTORS = {
    "ordinary": (RNG.normal(size=10), RNG.normal(size=4)),
    "huge": (np.full(10, 3e38), np.full(4, -3e38)),  # no product is a number of single precision
    "huge_and_tiny": (np.full(10, 3e38), np.full(4, 1e-38)),
    "tiny": (np.full(10, 1e-38), np.full(4, 1e-38)),
    "long_and_short": (1e20 * np.eye(10)[3], np.full(4, 1e-3)),
    "infinite_times_zero": (np.where(np.arange(10) == 5, np.inf, 1.0), np.zeros(4)),
    "not_a_number": (np.ones(10), np.where(np.arange(4) == 1, np.nan, 1.0)),
}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("attack", VECTORS)
def test_one_record_moves_the_sum_of_outer_products_by_at_most_the_clipping_norm(attack, normalise):
    inputs, outputs = (np.concatenate([RNG.normal(size=(31, len(one))), one[None]]) for one in VECTORS[attack])
    biased = [(inputs, outputs), (outputs,)]
    here, there = (sum_of(biased, np.arange(32) < count, normalise=normalise) for count in (32, 31))
    assert np.isfinite(here).all()
    moved = exact_square([Fraction(float(a)) - Fraction(float(b)) for a, b in zip(here, there, strict=True)])
    rounding = 2 * 64 * 32 * (step.terms(SIZE, 32, 1) + 4) * 2.0**-53
    assert moved <= Fraction(GRID.radius * GRID.scale * (1 + rounding)) ** 2
    alone = sum_of([(inputs[31:], outputs[31:]), (outputs[31:],)], normalise=normalise)
    assert exact_square(alone) <= Fraction(GRID.radius * GRID.scale) ** 2
    if attack in ("infinite_times_zero", "not_a_number"):
        np.testing.assert_array_equal(here, there)


def test_double_precision_is_kept_where_the_process_asks_for_less():
    factors = [(RNG.normal(size=(32, 10)), RNG.normal(size=(32, 4))), (RNG.normal(size=(32, 4)),)]
    whole = sum_of(factors)
    jax.clear_caches()
    with jax.default_matmul_precision("BF16_BF16_F32"):
        np.testing.assert_array_equal(sum_of(factors), whole)
    jax.clear_caches()


def test_a_factor_whose_square_is_no_number_counts():
    grid = SumGrid.of(noise_multiplier=1.0, max_grad_norm=1e-12, size=40, terms=step.terms(40, 1, 1), largest_batch=1)
    alone = sum_of([(np.full((1, 10), 1e-163), np.full((1, 4), 1e153))], grid=grid, kind=np.float64)
    assert exact_square(alone) <= Fraction(grid.radius * grid.scale) ** 2


def test_a_sum_of_outer_products_is_that_of_the_gradients():
    inputs, outputs = RNG.normal(size=(32, 10)).astype(np.float32), RNG.normal(size=(32, 4)).astype(np.float32)
    whole = (inputs.astype(np.float64)[:, :, None] * outputs[:, None, :]).reshape(32, 40)
    np.testing.assert_allclose(sum_of([(inputs, outputs)]), clipped_sum(whole), rtol=1e-6, atol=1e-6 * MOST)


def losses():
    """Losses of a matrix in places where its gradient is a product of two vectors, and where it is not."""
    inner = jax.jit(lambda matrix, vector: jnp.tanh(vector @ matrix))
    return {
        "from the left": (lambda p, x, key: jnp.tanh(x @ p[0]).sum(), 2),
        "from the right": (lambda p, x, key: jnp.tanh(p[0] @ x[:3]).sum(), 2),
        "compiled": (lambda p, x, key: inner(p[0], x).sum(), 2),
        "twice": (lambda p, x, key: (jnp.tanh(x @ p[0]) @ p[0].T).sum() ** 2, 1),
        "compiled twice": (lambda p, x, key: (inner(p[0], x) + inner(p[0], 2 * x)).sum(), 1),
        "turned": (lambda p, x, key: jnp.tanh(x @ jnp.roll(p[0], 1, 0)).sum(), 1),
        "two vectors": (lambda p, x, key: jnp.tanh(jnp.stack([x, 2 * x]) @ p[0]).sum(), 1),
        "in a loop": (lambda p, x, key: jax.lax.fori_loop(0, 2, lambda at, y: y + (x @ p[0]).sum(), 0.0) ** 2, 1),
        "not at all": (lambda p, x, key: x.sum(), 1),
    }


@pytest.mark.parametrize("name", mostly_slow(losses(), 3))
def test_factors_give_the_gradient(name):
    loss, count = losses()[name]
    matrix, vector = (RNG.normal(size=size).astype(np.float32) for size in ((5, 3), 5))
    value, (part,) = step.gradients(loss, [matrix], vector, jax.random.key(0))
    expected, (gradient,) = jax.value_and_grad(loss)([matrix], vector, None)
    assert len(part) == count
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(np.outer(*part) if count == 2 else part[0], gradient, rtol=1e-5, atol=1e-6)


def test_matrices_of_double_precision_have_no_factors():
    """The squares of their numbers can be zero."""
    with jax.enable_x64(True):
        matrix, vector = np.ones((5, 3)), np.ones(5)
        _, (part,) = step.gradients(lambda p, x: jnp.tanh(x @ p[0]).sum(), [matrix], vector)
    assert len(part) == 1


def test_norms_are_upper_bounds_in_exact_arithmetic():
    """Squares below half a unit in the last place of the sum are lost, if they are added one by one."""
    size = 2**16
    grid = SumGrid.of(
        noise_multiplier=1.0, max_grad_norm=0.5, size=size, terms=step.terms(size, 32, 1), largest_batch=32
    )
    gradient = np.full(size, 2.0**-27)
    gradient[0] = 1.0
    alone = clipped_sum(gradient[None], grid=grid)
    assert exact_square(alone) <= Fraction(grid.radius * grid.scale) ** 2
    assert exact_square(alone) >= Fraction(grid.radius * grid.scale * (1 - 1e-10)) ** 2


def test_no_single_gradient_is_longer_than_the_clipping_norm_in_exact_arithmetic():
    for gradient in RNG.normal(size=(20, SIZE)):
        assert exact_square(clipped_sum(gradient[None])) <= Fraction(GRID.radius * GRID.scale) ** 2


def test_records_that_do_not_count_add_nothing_whatever_they_are():
    batch = np.concatenate([RNG.normal(size=(4, SIZE)), np.full((28, SIZE), np.nan)])
    spoilt, clean = clipped_sum(batch), clipped_sum(np.nan_to_num(batch), np.arange(32) < 4)
    np.testing.assert_array_equal(spoilt, clean)


def test_small_gradients_are_summed_in_double_precision():
    batch = np.concatenate([np.full((1, SIZE), 0.01), np.full((31, SIZE), 1e-9)])  # lost in single precision
    expected = (np.float64(np.float32(0.01)) + 31 * np.float64(np.float32(1e-9))) * GRID.scale
    np.testing.assert_allclose(clipped_sum(batch), expected, rtol=1e-12)


def test_the_dither_keeps_many_small_moves_together():
    size = 4000
    each = 0.49
    whole = math.sqrt(each**2 * size + size / 4) + math.sqrt(math.log(1 / BETA))
    draws = [Draws([noise.Words(bytes(16))], size, 2.0**13, 16) for _ in range(2)]
    for _ in range(20):
        with jax.enable_x64(True):
            one, two = (
                np.asarray(
                    step.release(
                        [np.full((1, size), (0.26 + move) * 2.0**16)], some.draw(), 2.0**-16, np.ones((1, 1)), float
                    )
                )
                for some, move in zip(draws, (0.0, each), strict=True)
            )
        assert np.linalg.norm(two - one) <= whole
        np.testing.assert_array_equal(one, np.rint(one))


def noise_alone(size=3000, steps=1, **changes):
    """Training whose gradients are zero: what moves the parameters is noise, one unit of it a step."""
    given = {
        "init": lambda key: jnp.zeros(size),
        "loss": lambda params, record: 0.0 * params.sum(),
        "data": (np.ones((50, 1)), np.zeros(50)),
        "score": lambda params: 0.5,
        "noise_multiplier": 2.0,
        "max_grad_norm": 0.5,
        "batch_size": 10,
        "learning_rate": 10.0,
        "epochs": steps / 5,
    }
    return DPSGD(**{**given, **changes})


def test_the_noise_has_its_law_and_is_fresh_in_every_step_and_run():
    once, twice = (noise_alone(steps=steps) for steps in (1, 2))
    rows = np.array([one.model for one in once.many([{}] * 3, seeds=[1, 2, 2**64 + 1])])
    second = twice({}, seed=1).model - rows[0]
    alone = once({}, seed=1).model
    np.testing.assert_array_equal(alone, rows[0])  # no gradient is involved: to the bit
    for values in (*rows, second):
        square = float((values.astype(np.float64) ** 2).sum())
        assert min(stats.chi2.cdf(square, 3000), stats.chi2.sf(square, 3000)) > FALSE_ALARM
        assert stats.kstest(values, "norm").pvalue > FALSE_ALARM
    for one, other in ((rows[0], rows[1]), (rows[0], rows[2]), (rows[1], rows[2]), (rows[0], second)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(3000)


def test_the_steps_take_poisson_batches_of_the_declared_rate():
    """Each record's gradient is a coordinate of its own: a run without much noise shows who was in which batch."""
    count, steps = 60, 40
    mechanism = DPSGD(
        init=lambda key: jnp.zeros(count),
        loss=lambda params, record: -params[record] * 1.0,
        data=np.arange(count),
        score=lambda params: 0.5,
        noise_multiplier=1e-3,
        batch_size=15,
        epochs=steps / 4,
        learning_rate=15.0,
    )
    taken = np.concatenate([np.rint(mechanism({}, seed=seed).model) for seed in range(3)])
    assert taken.max() > taken.min()
    assert stats.binomtest(int(taken.sum()), 3 * count * steps, 0.25).pvalue > FALSE_ALARM
    cells = np.bincount(taken.astype(int), minlength=steps + 1)
    expected = len(taken) * stats.binom.pmf(np.arange(steps + 1), steps, 0.25)
    edges = [0, 8, 10, 12, steps + 1]
    found, wanted = (np.add.reduceat(part, edges[:-1]) for part in (cells, expected))
    assert stats.chisquare(found, wanted * found.sum() / wanted.sum()).pvalue > FALSE_ALARM


def network(count=64):
    def init(key):
        first, second = jax.random.split(key)
        return [jax.random.normal(first, (20, 16)), jax.random.normal(second, (16, 3))]

    def predict(params, inputs):
        return jnp.tanh(inputs @ params[0]) @ params[1]

    return Program(init, None, predict, {}, as_records((RNG.normal(size=(count, 20)), np.arange(count) % 3)))


def gradients(program, numbers, alone=False):
    rows = jnp.stack([jnp.asarray(program.row(program.built(jax.random.key(seed)))) for seed in range(len(numbers))])
    keys = jnp.stack([jax.random.key(0)] * len(numbers))
    if alone:
        program._alone[numbers.shape] = True
    words = np.zeros(len(numbers), np.int64)
    found = jax.tree.leaves(program.gradients(rows, numbers.astype(np.int32), keys, 0, words)[0])
    return np.concatenate([np.asarray(part).reshape(*numbers.shape, -1) for part in found], 2)


def test_a_gradient_has_the_same_bits_in_other_places_and_beside_other_records():
    program = network()
    numbers = np.stack([RNG.permutation(64)[:32] for _ in range(2)])
    found = gradients(program, numbers)
    for _ in range(5):
        order = RNG.permutation(32)
        np.testing.assert_array_equal(gradients(program, numbers[:, order]), found[:, order])
        kept = RNG.random(32) < 0.3
        mixed = np.where(kept, numbers, RNG.integers(0, 64, (2, 32)))
        np.testing.assert_array_equal(gradients(program, mixed)[:, kept], found[:, kept])


def test_records_of_small_pieces_are_differentiated_one_by_one():
    """A record's address in them depends on its place."""
    program = network()
    for size in (10, 32):
        gradients(program, np.arange(size)[None])
    assert program._alone == {(1, 10): True, (1, 32): False}


@pytest.mark.slow
def test_the_program_of_the_gradients_does_not_depend_on_how_many_records_there_are():
    """Neighbouring data sets have other numbers of records: a program of another shape may round differently."""
    program, shapes = network(61), []
    compiled = program._gradients
    program._gradients = lambda *given: shapes.extend(jax.tree.map(np.shape, given[1:-1])) or compiled(*given)
    gradients(program, np.arange(32)[None])
    assert len(shapes) >= 4
    assert 61 not in jax.tree.leaves(shapes)


@pytest.mark.slow
def test_where_places_matter_records_are_differentiated_one_by_one():
    program, numbers = network(), np.arange(32)[None]
    together = gradients(program, numbers)
    np.testing.assert_allclose(gradients(program, numbers, alone=True), together, rtol=1e-3, atol=1e-5)

    class Wrong(Program):
        def _same_everywhere(self, shape, keys):
            return False

    program.__class__ = Wrong
    program._alone.clear()
    gradients(program, numbers)
    assert program._alone == {(1, 32): True}


def test_no_record_makes_a_run_fail_and_none_outside_the_domain_counts():
    inputs = np.concatenate([RNG.normal(size=(40, 4)), [[np.nan] * 4, [np.inf] * 4, [3e38] * 4, [0.0] * 4, [0.0] * 4]])
    labels = np.concatenate([np.arange(40) % 3, [0, 1, 2, 3, -1]])
    given = {
        "init": lambda key: jnp.zeros((4, 3)),
        "predict": lambda params, x: (x * 1e10) @ params,
        "score": lambda params: 0.5,
        "noise_multiplier": 1.0,
        "records": 45,
        "batch_size": 45,
        "epochs": 2,
    }
    mechanism = DPSGD(data=(inputs, labels), **given)
    assert len(mechanism.program(mechanism.values({})).records) == 41
    with jax.debug_nans(True), jax.debug_infs(True):
        spoilt = mechanism({}, seed=1)
        assert not jax.config.jax_enable_x64
    none = DPSGD(data=(inputs[:0], labels[:0]), **given)({}, seed=1)
    assert spoilt.ok
    assert none.ok


@pytest.mark.slow
def test_the_default_precision_of_the_process_does_not_matter_to_the_sums():
    with jax.enable_x64(True):
        wide = noise_alone(size=50, init=lambda key: jnp.zeros(50, jnp.float32))({}, seed=1)
    np.testing.assert_array_equal(wide.model, noise_alone(size=50)({}, seed=1).model)


def test_whole_numbers_that_are_no_labels_count():
    mechanism = DPSGD(
        init=lambda key: jnp.zeros(4),
        loss=lambda params, record: (record[0] @ params - record[1]) ** 2,
        predict=lambda params, inputs: inputs @ params,
        data=(np.ones((30, 4)), np.arange(30)),
        score=lambda params: 0.5,
        noise_multiplier=1.0,
    )
    assert len(mechanism.program(mechanism.values({})).records) == 30
