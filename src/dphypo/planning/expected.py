"""What a search without a band finds, exactly: by quadrature, no simulation.

One visit draws cell j with its prior mass W_j and shows a score with density φ_j. The best of T visits shows the score
q with density f′(F(q)) F′(q), f the probability generating function of T and F the law of one visit's score, and is
cell i with the share W_i φ_i(q) / F′(q) of it. So P[cell i wins] = W_i ∫ g(Σ_j W_j P[score_j > q]) φ_i(q) dq with
g(v) = f′(1 − v): two matrix products for any number of priors at once.
"""

from __future__ import annotations

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
