"""Arguments of generating functions: a point x in [0, 1] held by log x and v = 1 − x, both accurate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dphypo import _validate

Array = npt.NDArray[np.float64]


def at_x(x: npt.ArrayLike) -> tuple[Array, Array]:
    """(log x, 1 − x), as one-dimensional arrays."""
    flat = _validate.fractions(x=x).ravel()
    with np.errstate(divide="ignore"):
        return np.log(flat), 1 - flat


def at_v(v: npt.ArrayLike) -> tuple[Array, Array]:
    """(log(1 − v), v), as one-dimensional arrays."""
    flat = _validate.fractions(v=v).ravel()
    with np.errstate(divide="ignore"):
        return np.log1p(-flat), flat


def like(values: Array, argument: npt.ArrayLike) -> Array:
    """``values`` in the form of ``argument``: a number for a number, an array of its shape for an array."""
    shaped: Array = values.reshape(np.shape(argument))[()]
    return shaped
