"""What a way of tuning reaches on a landscape: what a search without a band finds, by quadrature, no simulation.

One visit draws cell j with its prior mass W_j and shows a score with density φ_j. The best of T visits shows the score
q with density f′(F(q)) F′(q), f the probability generating function of T and F the law of one visit's score, and is
cell i with the share W_i φ_i(q) / F′(q) of it. So P[cell i wins] = W_i ∫ g(Σ_j W_j P[score_j > q]) φ_i(q) dq with
g(v) = f′(1 − v): two matrix products for any number of priors at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dphypo.laws import Law
from dphypo.planning.landscape import Floats, Landscape
from dphypo.planning.ways import Spent, fixed
from dphypo.search.plan_file import PlannedRuns, PlannedStudy

_REACH = 9.0  # standard deviations beyond the means: less than 1e-18 lies outside
_STEP = 0.2  # standard deviations: a sum of smooth functions of that width is exact to many digits
_PIECE = 1_000_000  # of cells times scores held at once


def winners(priors: npt.ArrayLike, means: npt.ArrayLike, noise: float | Floats, law: Law) -> Floats:
    """The probability of each of n cells to win a uniform search, for each row of an (m, n) array of ``priors``.

    ``means`` are the mean scores of the cells, larger being better; ``noise`` is the standard deviation of one shown
    score, for all cells or for each. A search with T = 0 has no winner: what is returned is given that T ≥ 1.

    >>> from dphypo.laws import Pmf
    >>> winners([[0.5, 0.5]], [0.0, 9.0], 1.0, Pmf({2: 1.0})).round(6).tolist()  # the worse cell twice: 1/4
    [[0.25, 0.75]]
    """
    masses, mean = np.asarray(priors, dtype=np.float64), np.asarray(means, dtype=np.float64)
    spread = np.broadcast_to(np.asarray(noise, dtype=np.float64), mean.shape)
    low, high = (mean - _REACH * spread).min(), (mean + _REACH * spread).max()
    scores = np.linspace(low, high, 1 + int(np.ceil((high - low) / (_STEP * spread.min()))))
    found = np.zeros_like(masses)
    for part in np.array_split(scores, 1 + len(scores) * max(masses.shape) // _PIECE):
        z = (part - mean[:, None]) / spread[:, None]
        factor = np.exp(law.log_g(np.clip(masses @ ndtr(-z), 0.0, 1.0)))
        found += masses * (factor @ np.exp(-0.5 * z**2).T) / spread
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def expected_score(spent: Spent, landscape: Landscape) -> float | None:
    """The expected mean score of what is released; None where the landscape has no runs of that length or noise.

    It is on the safe side where a search rule decides. The λ of a survey are taken as drawn from the prior and its best
    score is followed, where the Gaussian process of :func:`dphypo.tune` does better. A band counts as uniform search
    with its noise. A search with T = 0 has no release: the score is given that T ≥ 1. Without tuning, the middle of the
    space is run.
    """
    full = landscape.mean(1.0, spent.noise_multiplier)
    if full is None:
        return None
    if len(spent.parts) == 1:
        (only,) = spent.parts
        won = _middle(landscape) if isinstance(only, PlannedRuns) else _won(landscape, full, only.runs)
        return float(won @ full)
    first, last = spent.parts
    seen = _seen(landscape, first)
    if seen is None:
        return None
    law = fixed(first.runs or 1) if isinstance(first, PlannedRuns) else first.runs
    won = _won(landscape, seen, law)
    if isinstance(last, PlannedRuns):
        return float(won @ full)
    assert first.around is not None
    spread = first.around.spread
    assert isinstance(spread, (int, float))
    priors = landscape.priors(spread, first.around.floor)
    return float(won @ winners(priors, full, landscape.score_noise, last.runs) @ full)


def _seen(landscape: Landscape, part: PlannedRuns | PlannedStudy) -> Floats | None:
    """The mean scores of the runs of a part that is not the last."""
    if part.fraction not in landscape.fractions:
        return None
    matched = isinstance(part, PlannedRuns)
    noise = part.noise_multiplier / math.sqrt(part.fraction) if matched else part.noise_multiplier
    return landscape.mean(part.fraction, noise)


def _won(landscape: Landscape, means: Floats, law: Law) -> Floats:
    flat = np.full((1, len(landscape)), 1.0 / len(landscape))
    return np.asarray(winners(flat, means, landscape.score_noise, law)[0])


def _middle(landscape: Landscape) -> Floats:
    """The cells about the middle of the space, equally likely."""
    masses: Floats = np.ones(1)
    for cells in landscape.shape:
        axis = np.zeros(cells)
        axis[[(cells - 1) // 2, cells // 2]] = 1.0
        masses = np.asarray(np.kron(masses, axis / axis.sum()))
    return masses
