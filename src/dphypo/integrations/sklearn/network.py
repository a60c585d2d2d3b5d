"""The network of the estimators: layers of the given widths, and public scaling of what goes in and comes out."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dphypo import _validate

Floats = npt.NDArray[np.float32]


def network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    """A multilayer perceptron; with no hidden layer, a linear model.

    >>> [type(layer).__name__ for layer in network(4, (8,), 2)]
    ['Linear', 'ReLU', 'Linear']
    """
    widths = [inputs, *(_validate.integer(at_least=1, hidden=width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def to_unit(values: npt.ArrayLike, bounds: Any) -> Floats:
    """Values cut off at public bounds and mapped to [-1, 1]; as they are without bounds.

    >>> to_unit([[0.0, 5.0, 30.0]], (0, 20))
    array([[-1. , -0.5,  1. ]], dtype=float32)
    """
    given = np.asarray(values, dtype=np.float64)
    if bounds is None:
        return given.astype(np.float32)
    low, high = _bounds(bounds)
    return (2 * (np.clip(given, low, high) - low) / (high - low) - 1).astype(np.float32)


def from_unit(values: npt.ArrayLike, bounds: Any) -> npt.NDArray[np.float64]:
    """The inverse of :func:`to_unit`."""
    given = np.asarray(values, dtype=np.float64)
    if bounds is None:
        return given
    low, high = _bounds(bounds)
    return low + (given + 1) / 2 * (high - low)


def _bounds(bounds: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise _validate.fail("bounds", bounds, "give (low, high), numbers or one a column, low below high")
    return low, high


def outputs_of(model: nn.Module, inputs: Floats) -> npt.NDArray[np.float64]:
    """What the model says of each row, in double precision, so that it does not depend on the rows beside it."""
    with torch.no_grad():
        precise = copy.deepcopy(model).double()
        return precise(torch.from_numpy(inputs).double()).numpy()  # type: ignore[no-any-return]
