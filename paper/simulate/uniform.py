"""Random search without simulation: the expected actual score of the best of T uniform visits, by quadrature."""

from __future__ import annotations

import numpy as np

from dphypo.laws import Law
from paper.simulate.winners import winners
from paper.simulate.worlds import World


def expected(world: World, runs: Law) -> float:
    """E[actual score of the winner], given T ≥ 1.

    >>> from dphypo.laws import Geometric
    >>> flat = World(np.zeros((4, 2)), np.full(4, 0.5), np.full(4, 0.1))
    >>> round(expected(flat, Geometric(mean=10)), 6)
    0.5
    """
    prior = np.full((1, len(world)), 1 / len(world))
    return float(winners(prior, world.mean, world.noise, runs)[0] @ world.mean)
