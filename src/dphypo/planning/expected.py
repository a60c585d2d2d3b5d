"""What a search without a band finds, exactly: by quadrature, no simulation.

One visit draws cell j with its prior mass W_j and shows a score with density φ_j. The best of T visits shows the score
q with density f′(F(q)) F′(q), f the probability generating function of T and F the law of one visit's score, and is
cell i with the share W_i φ_i(q) / F′(q) of it. So P[cell i wins] = W_i ∫ g(Σ_j W_j P[score_j > q]) φ_i(q) dq with
g(v) = f′(1 − v): two matrix products for any number of priors at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.laws import Law

Floats = npt.NDArray[np.float64]

_REACH = 9.0  # standard deviations beyond the means: less than 1e-18 lies outside
_STEP = 0.2  # standard deviations: a sum of smooth functions of that width is exact to many digits
_PIECE = 1_000_000  # of cells times scores held at once


def winners(priors: npt.ArrayLike, means: npt.ArrayLike, noise: float | Floats, law: Law) -> Floats:
    """The probability of each cell to win a uniform search, for each of several priors.

    A search with T = 0 has no winner: what is returned is given that T ≥ 1.

    Args:
        priors: (m, n), the masses of n cells under each of m priors.
        means: the mean score of each cell; larger is better.
        noise: the standard deviation of the normal noise on one shown score; one for all cells, or one for each.
        law: the law of T.

    >>> from dphypo.laws import Pmf
    >>> winners([[0.5, 0.5]], [0.0, 9.0], 1.0, Pmf({2: 1.0})).round(6).tolist()  # the worse cell twice: 1/4
    [[0.25, 0.75]]
    """
    masses, mean = _read(priors, means)
    if not isinstance(law, Law):
        raise _validate.fail("law", law, "give a law of T, for example dphypo.Geometric(mean=10)")
    spread = _spread(noise, len(mean))
    low, high = (mean - _REACH * spread).min(), (mean + _REACH * spread).max()
    scores = np.linspace(low, high, 1 + int(np.ceil((high - low) / (_STEP * spread.min()))))
    found = np.zeros_like(masses)
    for part in np.array_split(scores, 1 + len(scores) * max(masses.shape) // _PIECE):
        above, density = _normal((part - mean[:, None]) / spread[:, None])
        factor = np.exp(law.log_g(np.clip(masses @ above, 0.0, 1.0)))
        found += masses * (factor @ density.T) / spread
    return np.asarray(found / found.sum(axis=1, keepdims=True))


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


def _spread(noise: float | Floats, cells: int) -> Floats:
    """The noise of each cell."""
    if isinstance(noise, (int, float)):
        return np.full(cells, _validate.positive(noise=noise))
    spread = _validate.vector(length=cells, noise=noise)
    if not (spread > 0).all():
        raise ValueError(f"noise has a value of {spread.min():g}: give standard deviations above 0")
    return spread


def _normal(z: Floats) -> tuple[Floats, Floats]:
    """P[normal > z], and a multiple of the density at z."""
    from scipy.special import ndtr

    return np.asarray(ndtr(-z)), np.exp(-0.5 * z**2)


def _read(priors: npt.ArrayLike, means: npt.ArrayLike) -> tuple[Floats, Floats]:
    masses, mean = np.asarray(priors, dtype=np.float64), _validate.vector(means=means)
    if masses.ndim != 2 or masses.shape[1] != len(mean):
        raise ValueError(f"priors has shape {masses.shape}: give a row for each prior, {len(mean)} masses in each")
    if not (masses >= 0).all() or not np.allclose(masses.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError("priors has a row that is not a probability distribution: give masses that sum to 1")
    return masses, mean
