"""The exact step in JAX: gradients of single records, their clipped sums with noise, and the optimisers.

Sums are in double precision. Optimisers of optax are given by name, or as a function that returns one; they read noisy
gradients only.

**Factors.** Where a record's vector x is multiplied by a trained matrix W that is used nowhere else, the gradient of W
is the outer product of x and the gradient of the product. The factors take in + out numbers instead of in · out, and
their weighted sum over records is one matrix product. JAX's equations of a loss show where that is so; other arrays are
differentiated as usual.

**Two programs.** The sum receives gradients as an argument: another program has computed them, and they are fixed in
memory. If one program did both, XLA could compute them twice, once for the norm and once for the sum, and round
differently.

The contribution of a record is its gradient in memory, times a weight; that of a matrix may be the outer product of two
vectors in memory, whose norm is the product of theirs. The computed norm is within (d + 8)u of the real one in any
order of the sum, and so is the weight. That order may depend on the place of a record. So d is among the terms of the
sum's error (:func:`terms`), and a record's place changes nothing that is not covered.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from dphypo import _validate, noise
from dphypo.mechanisms import sampled_gaussian
from dphypo.training.setting import Setting
from dphypo.training.sum_on_grid import NORMALISED, UNIT

Arrays = list[jax.Array]
RecordGradients = tuple[jax.Array, ...]
"""The gradient of a trained array: itself, or two vectors whose outer product it is."""

TINY = 2.0**-960
"""An upper bound on what squares lose to underflow; that of a factor may underflow where the product does not."""


class Product(NamedTuple):
    """The equation, by number, that multiplies a matrix by a vector; and the axis of the matrix that it sums over."""

    equation: int
    axis: int


def gradients(loss: Callable[..., Any], leaves: Sequence[Any], *more: Any) -> tuple[Any, list[RecordGradients]]:
    """The loss ``loss(leaves, *more)`` of one record, and its gradient with respect to each leaf."""
    given = jax.tree.leaves((list(leaves), more))
    called = jax.make_jaxpr(loss)(list(leaves), *more)
    code = jax.make_jaxpr(lambda *values: _run(called, values, {})[0])(*given)  # calls of compiled functions inside
    products = _products(code, len(leaves))
    zeros = {at: jnp.zeros_like(leaves[at], shape=(leaves[at].shape[1 - one.axis],)) for at, one in products.items()}
    others = {at: leaf for at, leaf in enumerate(leaves) if at not in products}

    def value(others: Mapping[int, Any], added: Mapping[int, Any]) -> tuple[Any, Mapping[int, Any]]:
        values = [others.get(at, one) for at, one in enumerate(given)]
        (made,), vectors = _run(code, values, {one.equation: added[at] for at, one in products.items()})
        return made, vectors

    (made, vectors), (found, after) = jax.value_and_grad(value, (0, 1), has_aux=True)(others, zeros)
    for at, one in products.items():
        pair = (vectors[one.equation], after[at])
        found[at] = pair if one.axis == 0 else pair[::-1]
    return made, [found[at] if at in products else (found[at],) for at in range(len(leaves))]


def _products(code: ClosedJaxpr, leaves: int) -> dict[int, Product]:
    """The matrices that are used once, in a product with a vector; all in single precision.

    The squares of single-precision numbers, and products of two such squares, are doubles that do not leave the range.
    """
    found = {}
    for at, leaf in enumerate(code.jaxpr.invars[:leaves]):
        uses = [place for place, one in enumerate(code.eqns) for value in one.invars if value is leaf]
        if len(uses) != 1 or (used := code.eqns[uses[0]]).primitive.name != "dot_general":
            continue
        side = 0 if used.invars[0] is leaf else 1
        sizes = (leaf.aval.ndim, used.invars[1 - side].aval.ndim)
        summed = used.params["dimension_numbers"][0][side]
        kinds = {str(value.aval.dtype) for value in (*used.invars, *used.outvars)}
        if sizes == (2, 1) and summed and kinds == {"float32"}:
            found[at] = Product(uses[0], summed[0])
    return found


def _run(code: ClosedJaxpr, given: Sequence[Any], added: Mapping[int, Any]) -> tuple[list[Any], dict[int, Any]]:
    """Evaluate equations, and add to what some of them give; also the vectors that go into those."""
    known = dict(zip((*code.jaxpr.constvars, *code.jaxpr.invars), (*code.consts, *given), strict=True))
    vectors = {}
    for place, one in enumerate(code.eqns):
        names = [value for value in one.invars if not isinstance(value, Literal)]
        values = [known[name] for name in names]
        if one.primitive.name in ("jit", "pjit"):
            every = [value.val if isinstance(value, Literal) else known[value] for value in one.invars]
            made, _ = _run(one.params["jaxpr"], every, {})
        else:
            alone = code.jaxpr.replace(constvars=(), invars=names, outvars=one.outvars, eqns=[one])
            made = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*values)
        if place in added:
            made = [made[0] + added[place]]
            vectors[place] = next(value for value in values if value.ndim == 1)
        known.update(zip(one.outvars, made, strict=True))
    return [value.val if isinstance(value, Literal) else known[value] for value in code.jaxpr.outvars], vectors


def terms(size: int, piece: int, count: int) -> int:
    """The largest number of roundings in the sum of a batch, in units of :data:`UNIT`, for ``SumGrid``."""
    return piece * count + 2 * size + 32


@functools.partial(jax.jit, static_argnames=("normalise",))
def add_clipped(
    sums: Arrays, gradients: list[RecordGradients], counts: Any, finite: Any, most: Any, scale: Any, *, normalise: bool
) -> Arrays:
    """Add the clipped gradients of a piece to the sums of each run, in units of h·2^−bits.

    Sums are [runs, numbers] for each trained array, gradients [runs, records, ...] or two factors. ``counts`` and
    ``finite``, [runs, records], say which records count; one whose gradient is not finite does not, either. ``most``
    and ``scale`` are those of each run's grid.
    """
    size = sum(total.shape[1] for total in sums)
    margin = 1 + (size + 16) * UNIT

    def of_run(run: Any) -> Any:
        totals, found, counting, limit, whole = run
        parts = [[one.astype(jnp.float64).reshape(len(one), -1) for one in part] for part in found]
        squares = [functools.reduce(jnp.multiply, [jnp.sum(one * one, 1) + TINY for one in part]) for part in parts]
        norms = jnp.sqrt(functools.reduce(jnp.add, squares)) * margin  # upper bounds
        fine = counting & (norms < jnp.inf)  # false for NaN
        weights = limit / (norms + NORMALISED) if normalise else jnp.minimum(whole, limit / norms)
        weights = jnp.where(fine, weights, 0.0)
        clean = [[jnp.where(fine[:, None], one, 0.0) for one in part] for part in parts]  # 0 · NaN is NaN
        return [total + _weighted(weights, part) for total, part in zip(totals, clean, strict=True)]

    # One run after the other: what is added stays in the processor's cache.
    made: Arrays = jax.lax.map(of_run, (sums, gradients, counts & finite, most, scale))
    return made


def _weighted(weights: Any, part: Sequence[Any]) -> Any:
    """The weighted sum of gradients, or of outer products of their factors, whatever precision the process asks for."""
    if len(part) == 1:
        return jnp.matmul(weights, part[0], precision="highest")
    return jnp.matmul((weights[:, None] * part[0]).T, part[1], precision="highest").reshape(-1)


@functools.partial(jax.jit, static_argnames=("kind",))
def release(sums: Arrays, drawn: Any, shrink: Any, units: Any, kind: Any) -> jax.Array:
    """Round sums to the grid with dither, and add noise: ⌊(S + V + 2^bits·Z)/2^bits⌋·h/batch size."""
    made: jax.Array = jnp.floor((jnp.round(jnp.concatenate(sums, 1)) + drawn) * shrink) * units
    return made.astype(kind)


def key_of(words: noise.Words) -> Any:
    """A key of JAX's generator, 64 bits, from the next word."""
    return jax.random.wrap_key_data(jnp.asarray(words.draw(1).view("uint32")), impl="threefry2x32")


Optimizer = str | Callable[..., optax.GradientTransformation]

# They need the loss, or add noise of their own, or are a part of another one.
_UNSUITABLE = {"lbfgs", "noisy_sgd", "scale_by_learning_rate", "scale_by_rprop"}


@functools.cache
def known_optimizers() -> dict[str, Callable[..., optax.GradientTransformation]]:
    """optax's optimisers that take a learning rate, by name."""
    public = {name: one for name, one in vars(optax).items() if name[0] != "_" and name not in _UNSUITABLE}
    return {name: one for name, one in public.items() if inspect.isfunction(one) and "learning_rate" in names_of(one)}


def names_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)


def read_optimizer(optimizer: Any, argument: str = "optimizer") -> Callable[..., optax.GradientTransformation]:
    """The function that builds an optimiser from its learning rate and options; an error if there is none."""
    if callable(optimizer) and "learning_rate" in names_of(optimizer):
        return cast(Callable[..., optax.GradientTransformation], optimizer)
    if isinstance(optimizer, str) and optimizer in known_optimizers():
        return known_optimizers()[optimizer]
    names = ", ".join(sorted(known_optimizers()))
    remedy = f"give one of {names}, or a function of learning_rate that returns an optax optimiser"
    raise _validate.fail(argument, optimizer, remedy)


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser of optax takes."""
    return frozenset(name for one in known_optimizers().values() for name in names_of(one)) - {"learning_rate"}


def options_of(optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the optimiser has; others are dropped, so that one space can compare optimisers."""
    takes = set(names_of(read_optimizer(optimizer))) - {"learning_rate"}
    return {name: value for name, value in given.items() if name in takes}


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Options that choose the program, and those that are numbers in it."""
    numbers = {name: value for name, value in options.items() if isinstance(value, float)}
    return {name: value for name, value in options.items() if name not in numbers}, numbers


class Stepper:
    """One of optax's optimisers on rows, each with its learning rate and options; ``tree`` makes arrays of a row."""

    def __init__(self, tree: Callable[[Any], Any], factory: Callable[..., Any], static: Mapping[str, Any]) -> None:
        def start(row: Any, numbers: Mapping[str, Any]) -> Any:
            return factory(learning_rate=0.0, **static, **numbers).init(tree(row))

        def step(row: Any, state: Any, mean: Any, gradient: Any, rate: Any, numbers: Any, share: Any) -> Any:
            transform = factory(learning_rate=rate, **static, **numbers)
            updates, state = transform.update(tree(gradient.astype(row.dtype)), state, tree(row))
            moved = jax.tree.leaves(optax.apply_updates(tree(row), updates))
            row = jnp.concatenate([leaf.reshape(-1) for leaf in moved])
            return row, state, mean + (row - mean) * share

        self.start = jax.jit(jax.vmap(start))
        self.step = jax.jit(jax.vmap(step, (0, 0, 0, 0, 0, 0, None)))


def walk(
    params: Mapping[str, Any], gradients: Any, steps: int, schedule: Callable[[float], float] | None = None
) -> sampled_gaussian.Floats:
    """The weights after made-up gradients, for the rehearsal of a transfer rule (:class:`NoiseRehearsal`)."""
    stepper = Stepper(lambda row: row, read_optimizer(params["optimizer"]), options_of(params["optimizer"], params))
    setting, rows = Setting(average=params.get("average")), None
    for number, gradient in enumerate(gradients):
        given = np.asarray(gradient, dtype=np.float32)[None]
        if rows is None:
            rows = mean = jnp.zeros_like(given)
            state = stepper.start(rows, {})
        rate = params["learning_rate"] * (1.0 if schedule is None else schedule(number / steps))
        share = np.float32(setting.share(number, steps))
        rows, state, mean = stepper.step(rows, state, mean, given, np.full(1, rate, np.float32), {}, share)
    return np.asarray(mean[0], dtype=np.float64)
