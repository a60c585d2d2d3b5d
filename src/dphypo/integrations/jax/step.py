"""The exact step in JAX: clipped sums in double precision, on a grid, with dither and noise.

Gradients are an argument here: they were computed by another program, and lie in memory as they are. Were they part of
this one, XLA could compute them twice, once for the norm and once for the sum, and round differently.

The contribution of a record is its gradient in memory, times a weight. The computed norm is within (d + 8)u of the real
one in any order of the sum, and so is the weight. That order may depend on the place of a record. So d is among the
terms of the sum's error (:func:`terms`), and a record's place changes nothing that is not covered.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from dphypo import noise

UNIT = 2.0**-53
NORMALISED = 0.01
"""r of ``clipping="normalise"``: w = C₀/(n̄ + r), as in :mod:`dphypo.dpsgd`."""


def terms(size: int, piece: int, count: int) -> int:
    """How many roundings the sum of a batch has at most, in units of :data:`UNIT`: for :class:`dphypo.dpsgd.Grid`."""
    return piece + count + 2 * size + 32


@functools.partial(jax.jit, static_argnames=("normalise",))
def add_clipped(
    sums: jax.Array, gradients: jax.Array, counts: jax.Array, most: jax.Array, scale: jax.Array, *, normalise: bool
) -> jax.Array:
    """Add the clipped gradients of a piece to the sums of each run, in units of h·2^−bits.

    Args:
        sums: [runs, size], double precision.
        gradients: [runs, records, size].
        counts: [runs, records]: which records count. One whose gradient is not finite does not, either.
        most: C₀·2^bits/h, rounded down, and
        scale: 2^bits/h: of each run, [runs].
        normalise: whether every gradient counts with its direction.
    """
    margin = 1 + (gradients.shape[-1] + 16) * UNIT

    def of_run(run: Any) -> Any:
        total, found, counting, limit, whole = run

        def add(total: jax.Array, record: Any) -> tuple[jax.Array, None]:
            values, counts = record[0].astype(jnp.float64), record[1]
            norm = jnp.sqrt(jnp.sum(values * values)) * margin  # an upper bound
            fine = counts & (norm < jnp.inf)  # false for NaN
            weight = limit / (norm + NORMALISED) if normalise else jnp.minimum(whole, limit / norm)
            return total + jnp.where(fine, weight * values, 0.0), None  # 0 · NaN is NaN

        return jax.lax.scan(add, total, (found, counting))[0]

    # One run and one record after the other: what is added stays in the processor's cache.
    made: jax.Array = jax.lax.map(of_run, (sums, gradients, counts, most, scale))
    return made


@jax.jit
def release(sums: jax.Array, drawn: jax.Array, shrink: jax.Array, units: jax.Array) -> jax.Array:
    """Round sums to the grid with dither, and add noise: ⌊(S + V + 2^bits·Z)/2^bits⌋·h/batch size."""
    return jnp.floor((jnp.round(sums) + drawn) * shrink) * units


def key_of(words: noise.Words) -> Any:
    """A key of JAX's generator, 64 bits, from the next word."""
    return jax.random.wrap_key_data(jnp.asarray(words.draw(1).view("uint32")), impl="threefry2x32")


def exactly() -> Any:
    """Double precision, whatever the default of the process is."""
    return jax.enable_x64(True)
