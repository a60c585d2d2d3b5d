"""Random search without simulation: the expected actual score of the best of T uniform visits, by quadrature."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from dphypo.runs import Law
from paper.worlds import World


def expected(world: World, runs: Law, points: int = 4001) -> float:
    """E[actual score of the winner]: ∫ f′(F(q)) Σ mean_i φ_i(q)/n dq, F the law of one noisy score.

    The winner has noisy score q with density f′(F(q)) F′(q) (the probability generating function f of T, T ≥ 1), and
    is cell i in proportion to that cell's density φ_i there.

    >>> from dphypo.runs import Geometric
    >>> flat = World(np.zeros((4, 2)), np.full(4, 0.5), np.full(4, 0.1))
    >>> round(expected(flat, Geometric(mean=10)), 6)
    0.5
    """
    mean, noise = world.mean[:, None], world.noise[:, None]
    low, high = (mean - 9 * noise).min(), (mean + 9 * noise).max()
    scores = np.linspace(low, high, points)
    above, density, weighted = (np.empty(points) for _ in range(3))
    for part in np.array_split(np.arange(points), 1 + points * len(world) // 2_000_000):
        z = (scores[part] - mean) / noise
        each = norm.pdf(z) / noise
        above[part], density[part] = norm.sf(z).mean(axis=0), each.mean(axis=0)
        weighted[part] = (each * mean).mean(axis=0)
    factor = np.exp(runs.log_g(above))
    return float((factor * weighted).sum() / (factor * density).sum())
