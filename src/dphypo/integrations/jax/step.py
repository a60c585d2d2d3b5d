"""The exact step in JAX: clipped sums in double precision, on a grid, with dither and noise.

Gradients are an argument here: they were computed by another program, and lie in memory as they are. Were they part of
this one, XLA could compute them twice, once for the norm and once for the sum, and round differently.

The contribution of a record is its gradient in memory, times a weight; that of a matrix may be the outer product of two
vectors in memory (``factors.py``), whose norm is the product of theirs. The computed norm is within (d + 8)u of the
real one in any order of the sum, and so is the weight. That order may depend on the place of a record. So d is among
the terms of the sum's error (:func:`terms`), and a record's place changes nothing that is not covered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dphypo import noise
from dphypo.integrations.jax.factors import Part

Arrays = list[jax.Array]

UNIT = 2.0**-53
TINY = 2.0**-960
"""More than squares lose that are too small to be numbers; a factor's may be, where the product of two is not."""
NORMALISED = 0.01
"""r of ``clipping="normalise"``: w = C₀/(n̄ + r), as in :mod:`dphypo.dpsgd`."""


def terms(size: int, piece: int, count: int) -> int:
    """How many roundings the sum of a batch has at most, in units of :data:`UNIT`: for :class:`dphypo.dpsgd.Grid`."""
    return piece * count + 2 * size + 32


@functools.partial(jax.jit, static_argnames=("normalise",))
def add_clipped(
    sums: Arrays, gradients: list[Part], counts: Any, finite: Any, most: Any, scale: Any, *, normalise: bool
) -> Arrays:
    """Add the clipped gradients of a piece to the sums of each run, in units of h·2^−bits.

    Args:
        sums: of each trained array, [runs, numbers], double precision.
        gradients: of each trained array, [runs, records, ...], or its two factors.
        counts, finite: [runs, records]: which records count. One whose gradient is not finite does not, either.
        most: C₀·2^bits/h, rounded down, and
        scale: 2^bits/h: of each run, [runs].
        normalise: whether every gradient counts with its direction.
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
    """The weighted sum of gradients, or of outer products of their factors, in double precision.

    The process may ask for less by ``jax_default_matmul_precision``; it does not get it here.
    """
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


def exactly() -> Any:
    """Double precision, whatever the default of the process is."""
    return jax.enable_x64(True)
