"""What a uniform search, or a search in stages, finds on a grid of cells with known mean scores, exactly.

One visit draws cell j with its prior mass W_j and shows a score with density φ_j. The best of T visits shows the score
q with density f′(F(q)) F′(q), f the probability generating function of T and F the law of one visit's score, and is
cell i with the share W_i φ_i(q) / F′(q) of it. So P[cell i wins] = W_i ∫ g(Σ_j W_j P[score_j > q]) φ_i(q) dq with
g(v) = f′(1 − v): two matrix products for any number of priors at once, and no simulation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dphypo.laws import Law
from paper.data.points import Floats

_REACH = 9.0  # standard deviations beyond the means: less than 1e-18 lies outside
_STEP = 0.2  # standard deviations: a sum of smooth functions of that width is exact to many digits
_PIECE = 1_000_000  # of cells times scores held at once
_LEAST = 1e-9  # of the range of the means: less noise ranks cells as no noise does


def winners(priors: npt.ArrayLike, means: npt.ArrayLike, noise: float | Floats, law: Law) -> Floats:
    """The probability of each of n cells to win a uniform search, for each row of an (m, n) array of ``priors``.

    ``means`` are the mean scores of the cells, larger being better; ``noise`` is the standard deviation of one shown
    score, for all cells or for each. A search with T = 0 has no winner: what is returned is given that T ≥ 1.

    >>> from dphypo.laws import Pmf
    >>> winners([[0.5, 0.5]], [0.0, 9.0], 1.0, Pmf({2: 1.0})).round(6).tolist()  # the worse cell twice: 1/4
    [[0.25, 0.75]]
    """
    masses, mean = np.asarray(priors, dtype=np.float64), np.asarray(means, dtype=np.float64)
    spread = np.maximum(np.broadcast_to(np.asarray(noise, dtype=np.float64), mean.shape), _LEAST * np.ptp(mean))
    scores = _scores_near(mean - mean.min(), spread) + mean.min()
    found = np.zeros_like(masses)
    for part in np.array_split(scores, 1 + len(scores) * max(masses.shape) // _PIECE):
        z = (part - mean[:, None]) / spread[:, None]
        factor = np.exp(law.log_g(np.clip(masses @ ndtr(-z), 0.0, 1.0)))
        found += masses * (factor @ np.exp(-0.5 * z**2).T) / spread
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _scores_near(mean: Floats, spread: Floats) -> Floats:
    """The scores of a uniform grid that some cell may show. Between distant means nobody scores: nothing is computed.

    Their number is at most 2 · _REACH / _STEP for each cell and each multiple of the smallest spread.
    """
    step = _STEP * float(spread.min())
    first, last = np.floor((mean - _REACH * spread) / step), np.ceil((mean + _REACH * spread) / step)
    order = np.argsort(first)
    ends = np.maximum.accumulate(last[order])
    starts = np.concatenate([first[order][:1], np.maximum(first[order][1:], ends[:-1] + 1)])
    return step * np.concatenate([np.arange(a, b + 1) for a, b in zip(starts, ends, strict=True) if a <= b])


def winners_of_stages(
    means: Sequence[npt.ArrayLike], laws: Sequence[Law], around: Sequence[npt.ArrayLike], noise: float
) -> Floats:
    """The probability of each cell to win the last stage of a search in stages, the first prior being uniform.

    The winner of a stage chooses the prior of the next; a stage with T = 0 leaves the prior as it was, and the last
    stage is given to have T ≥ 1.

    Args:
        means: for each stage, the mean score of each of n cells.
        laws: for each stage, the law of T.
        around: for each stage but the last, (n, n): row i is the next prior if cell i is released.
        noise: the standard deviation of the noise on one shown score.

    >>> from dphypo.laws import Pmf
    >>> three = Pmf({3: 1.0})
    >>> winners_of_stages([[0.0, 9.0], [0.0, 9.0]], [three, three], [np.eye(2)], 1.0).round(4).tolist()
    [0.125, 0.875]
    """
    if not len(means) == len(laws) == len(around) + 1:
        raise ValueError(
            f"{len(means)} means, {len(laws)} laws and {len(around)} priors: give as many, priors one less"
        )
    cells = len(np.asarray(means[0]))
    for rows in map(np.shape, around):
        if rows != (cells, cells):
            raise ValueError(f"around has shape {rows}: give a prior of {cells} masses for each of {cells} cells")
    uniform = np.full((1, cells), 1.0 / cells)
    priors, chosen = uniform, np.ones(1)  # the priors a stage may have, and with what probability
    for mean, law, following in zip(means[:-1], laws[:-1], around, strict=True):
        none = float(law.pgf(0.0))
        released = (1.0 - none) * (chosen @ winners(priors, mean, noise, law))
        priors = np.concatenate([priors, np.asarray(following, dtype=np.float64)]) if none else np.asarray(following)
        chosen = np.concatenate([none * chosen, released]) if none else released
    return np.asarray(chosen @ winners(priors, means[-1], noise, laws[-1]))
