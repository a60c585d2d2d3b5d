"""Distances between points of a space, in units that are the same for every kind of parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dphypo.samplers.history import Array

if TYPE_CHECKING:
    from dphypo.space import Space


def scales(space: Space) -> Array:
    """What each feature column is multiplied by, so that a parameter adds 2 to the mean squared distance of two draws.

    A number is uniform on (0, 1) as a feature: its squared distance has mean 1/6. A category of k equally likely
    choices is k columns, one of them 1: two draws differ with probability 1 − 1/k, and then by 2.
    """
    columns: list[float] = []
    for parameter in space.parameters:
        width = parameter.dimension.width
        if parameter.dimension.ordered:
            columns += [np.sqrt(12.0)] * width
        else:
            columns += [1.0 / np.sqrt(max(1.0 - 1.0 / width, 0.5))] * width
    return np.array(columns)
