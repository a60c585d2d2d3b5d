"""Gradients of single records, those of matrices as two factors.

Where a record's vector x is multiplied by a trained matrix W that is used nowhere else, the gradient of W is the outer
product of x and the gradient of the product. The factors take in + out numbers instead of in · out, and their weighted
sum over records is one matrix product. JAX's equations of a loss show where that is so; other arrays are differentiated
as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

Part = tuple[jax.Array, ...]
"""The gradient of a trained array: itself, or two vectors whose outer product it is."""


class Product(NamedTuple):
    """The equation, by number, that multiplies a matrix by a vector; and the axis of the matrix that it sums over."""

    equation: int
    axis: int


def gradients(loss: Callable[..., Any], leaves: Sequence[Any], *more: Any) -> tuple[Any, list[Part]]:
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
