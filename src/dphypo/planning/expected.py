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

from dphypo import _validate
from dphypo.laws import Law
from dphypo.planning.landscape import Floats, Landscape
from dphypo.planning.spend import Spent
from dphypo.planning.ways import fixed
from dphypo.search.plan_file import PlannedRuns, PlannedStudy

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
