"""Algorithm 3 of the paper: a Gaussian process as the sampler.

The kernel has one lengthscale a feature (automatic relevance determination). With r² = Σ_d (x_d − x′_d)²/ℓ_d² and
variance a:  k(x, x′) = a (1 + √5 r + 5r²/3) exp(−√5 r).

Hyperparameters maximise the log marginal likelihood plus log-normal priors, by L-BFGS over logarithms with analytic
gradients. Repeated observations of a point enter as their mean with noise divided by their count, plus the likelihood
of their scatter about that mean: exact, and never larger than the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.samplers.sampler import History
from dphypo.space import Candidates, Grid

_FEWEST = 3  # runs that a fit needs
_ROWS = 160  # distinct points at most, so that a draw costs the same after any number of runs
_LATEST = 32  # in longer histories the points before the last runs, at most this many, are a choice


class Units(Enum):
    """The units of the scores in the softmax exp(β s)."""

    RAW = "the scores' own units, as Algorithm 3 is written"
    STANDARD = "standard deviations of the scores seen so far"
    RANKS = "normal quantiles of the scores' ranks: any increasing function of the score gives the same search"


@dataclass(frozen=True)
class Hyperparameters:
    """Parameters of a Gaussian process, on scores standardised to mean 0 and deviation 1.

    ``variance`` is a, ``lengthscales`` are ℓ_d (one number serves every feature), ``noise`` is the variance of one
    observation about the function.

    >>> Hyperparameters(variance=1.0, lengthscales=(0.3, 0.5), noise=0.01).noise
    0.01
    """

    variance: float = 1.0
    lengthscales: float | tuple[float, ...] = 0.5
    noise: float = 1e-2

    def __post_init__(self) -> None:
        scales = self.lengthscales
        plain = (
            tuple(_validate.positive(lengthscales=scale) for scale in scales)
            if isinstance(scales, tuple)
            else _validate.positive(lengthscales=scales)
        )
        object.__setattr__(self, "variance", _validate.positive(variance=self.variance))
        object.__setattr__(self, "lengthscales", plain)
        object.__setattr__(self, "noise", _validate.non_negative(noise=self.noise))


@dataclass(frozen=True)
class GaussianProcess:
    r"""Algorithm 3: a Gaussian process scores each candidate, and the weights are the softmax of the scores.

        s_λ = μ_λ + τ σ_λ,   π⁽ᵗ⁺¹⁾(λ) ∝ π⁽⁰⁾(λ) exp(β s_λ)

    μ and σ are the posterior mean and standard deviation of the score at λ. :meth:`paper` has the paper's settings. The
    paper does not name its kernel; here it is Matérn-5/2 with one lengthscale per feature. Amplitude, lengthscales and
    noise are maximum a posteriori estimates under weak priors, refitted whenever the number of runs has grown by half.
    A failed run counts as the worst score so far (by rank, as the lowest). If there are more than 160 distinct points,
    those of the latest runs (at most 32) are kept, and of the earlier points the best 64 and an even sample of 64
    others.

    The defaults differ from the paper's; ``benchmarks/rules.py`` compares the two. Scores enter as normal quantiles of
    their ranks, because with raw accuracies and β = 1, exp(β s) is nearly flat. The first two runs are drawn from the
    prior, because a single score cannot be compared with anything.

    Args:
        tau: weight τ of the standard deviation.
        beta: inverse temperature β, per unit of ``units``.
        units: the units of the scores in the softmax.
        start: number of runs drawn from the prior before the scores guide the search.
        hyperparameters: fixed values, for scores of mean 0 and deviation 1; by default they are fitted. With fixed
            values and at most 160 points, the weights do not depend on the order of the runs. Fitted values do, because
            a fit uses only the first runs.

    >>> GaussianProcess.paper()
    GaussianProcess(tau=0.1, beta=1.0, units=<Units.RAW: ...>, start=1, hyperparameters=None)
    >>> from scipy.stats import uniform
    >>> from dphypo.space import Space
    >>> grid = Space({"x": uniform()}).grid(x=5)
    >>> GaussianProcess().weights(grid, History.empty(features=1, unit=1))
    array([0.2, 0.2, 0.2, 0.2, 0.2])

    References:
        Wang, Gao, Zhang, Su, Shen: DP-HyPO, NeurIPS 2023, Algorithm 3.
        Rasmussen, Williams: Gaussian Processes for Machine Learning, 2006, chapters 2 and 5.
    """

    history_only: ClassVar[bool] = True
    tau: float = 1.0
    beta: float = 4.0
    units: Units = Units.RANKS
    start: int = 2
    hyperparameters: Hyperparameters | None = None

    def __post_init__(self) -> None:
        # Kept as plain numbers: an object that computes its value could compute it from anything.
        object.__setattr__(self, "tau", _validate.non_negative(tau=self.tau))
        object.__setattr__(self, "beta", _validate.non_negative(beta=self.beta))
        object.__setattr__(self, "start", _validate.integer(at_least=1, start=self.start))
        given = self.hyperparameters
        if given is not None and type(given) is not Hyperparameters:
            raise _validate.fail("hyperparameters", given, "give dphypo.samplers.gaussian_process.Hyperparameters(...)")
        if not isinstance(self.units, Units):
            raise _validate.fail("units", self.units, f"give one of {', '.join(map(str, Units))}")

    @classmethod
    def paper(cls) -> GaussianProcess:
        """The paper's settings: τ = 0.1, β = 1, on the raw scores, from the second run on."""
        return cls(tau=0.1, beta=1.0, units=Units.RAW, start=1)

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        """exp(β s) times the prior mass; the prior before ``start`` runs."""
        masses = np.asarray(candidates.masses, dtype=np.float64)
        if len(history) < self.start:
            return masses.copy()
        mean, deviation, _, unit = self._standard(candidates, history)
        beta = self.beta * unit if self.units is Units.RAW else self.beta
        return softmax(mean + self.tau * deviation, beta, masses)

    def posterior(self, candidates: Candidates | Grid, history: History) -> tuple[Floats, Floats]:
        """μ and σ at the candidates: of the score, or with ``Units.RANKS`` of its normal quantile."""
        if len(history) == 0:
            raise ValueError("the history is empty: there is no posterior before the first run")
        mean, deviation, centre, unit = self._standard(candidates, history)
        return centre + unit * mean, unit * deviation

    def _standard(self, candidates: Candidates | Grid, history: History) -> tuple[Floats, Floats, float, float]:
        """The posterior of the standardised scores, and the scores' centre and deviation."""
        values, centre, unit = seen(history, self.units)
        hyperparameters = self.hyperparameters or _fitted(history, self.units)
        return *posterior(hyperparameters, _data(history.features, values), candidates.features), centre, unit


def _data(features: Floats, values: Floats) -> Data:
    """The observations that the surrogate uses: those at the points of the latest runs, and of the best before."""
    every = Data.of(features, values)
    if len(every.means) <= _ROWS:
        return every
    older = (len(features) - 1) // _LATEST * _LATEST
    kept = np.concatenate([Data.of(features[:older], values[:older]).best(_ROWS - _LATEST), features[older:]])
    _, row = np.unique(np.concatenate([features, kept]), axis=0, return_inverse=True)
    some = np.isin(row.ravel()[: len(features)], row.ravel()[len(features) :])
    return Data.of(features[some], values[some])


def _fitted(history: History, units: Units) -> Hyperparameters:
    """The hyperparameters at the last checkpoint: they depend on the history only, and are fitted once."""
    size = checkpoint(len(history))
    head = history.first(size)
    if size < _FEWEST:
        return prior_mode(head.features.shape[1])
    values, _, _ = seen(head, units)
    return _fit(head.features.tobytes(), values.tobytes(), head.features.shape[1])


@lru_cache(maxsize=16)
def _fit(features: bytes, values: bytes, width: int) -> Hyperparameters:
    """The fit, cached for the next draws."""
    return fit(_data(np.frombuffer(features).reshape(-1, width), np.frombuffer(values)))


def checkpoint(size: int) -> int:
    """The largest of the lengths 1, 2, 3, 4, 6, 9, 13, … (each 1.5 times the one before) that is at most ``size``.

    >>> [checkpoint(size) for size in (1, 2, 5, 100, 10_000)]
    [1, 2, 4, 94, 8092]
    """
    length = 1
    while (following := length + max(1, length // 2)) <= size:
        length = following
    return length


@dataclass(frozen=True)
class Data:
    """Distinct points, the mean score and count at each, and the scatter Σ(y − mean)² within them."""

    features: Floats
    means: Floats
    counts: Floats
    scatter: float

    @classmethod
    def of(cls, features: Floats, values: Floats) -> Data:
        """Observations, those at one point merged; points are in the order of their features."""
        points, row = np.unique(features, axis=0, return_inverse=True)
        row = row.ravel()
        counts = np.bincount(row).astype(np.float64)
        means = np.bincount(row, weights=values) / counts
        residual = values - means[row]
        return cls(points, means, counts, float(residual @ residual))

    def best(self, limit: int) -> Floats:
        """The points; of more than ``limit``, the best half of so many, and of the rest every m-th by its mean."""
        if len(self.means) <= limit:
            return self.features
        ranked = np.argsort(-self.means, kind="stable")
        best, rest = ranked[: limit // 2], ranked[limit // 2 :]
        spaced = np.linspace(0, len(rest) - 1, limit - len(best)).round().astype(np.intp)
        return np.asarray(self.features[np.sort(np.concatenate([best, rest[spaced]]))])


# Smallest exponent: no weight becomes zero or subnormal.
_LEAST = -600.0
# Scores are rounded to this many digits: smaller differences are rounding errors of the posterior, and must not decide
# between candidates.
_DIGITS = 9


def lowest(history: History) -> Floats:
    """The scores, with failed runs below all others."""
    return np.where(history.failed, -np.inf, history.scores)


def seen(history: History, units: Units) -> tuple[Floats, float, float]:
    """The values to which the surrogate is fitted, standardised (or all 0), and the scores' centre and deviation.

    A failed run counts as the worst score so far (0 if every run failed), and by rank as the lowest.
    """
    if units is Units.RANKS:
        scores = lowest(history)
        order = np.sort(scores)
        below = np.searchsorted(order, scores, side="left") + np.searchsorted(order, scores, side="right")
        scores = ndtri(below / (2 * len(scores)))  # half of those equal count as below: a plateau stays one
    elif history.failed.all():
        scores = np.zeros(len(history))
    else:
        scores = np.where(history.failed, history.scores[~history.failed].min(), history.scores)
    # Scores may be as large as floats go (a diverged loss): squares are taken of scaled numbers only.
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    relative = scores / scale
    centre, deviation = float(relative.mean()), float(relative.std())
    if not deviation > 1e-12:
        return np.zeros(len(scores)), centre * scale, 1.0
    return (relative - centre) / deviation, centre * scale, deviation * scale


def softmax(scores: Floats, beta: float, masses: Floats) -> Floats:
    """Algorithm 3's π ∝ exp(β s), as relative masses: times the prior masses, and with the largest exponent 0."""
    exponent = beta * np.round(scores - scores.max(), _DIGITS)
    return np.asarray(masses * np.exp(np.maximum(exponent, _LEAST)))


_ROOT_5 = np.sqrt(5.0)


def covariance(left: Floats, right: Floats, hyperparameters: Hyperparameters) -> Floats:
    """k between every row of ``left`` and every row of ``right``, of shape (len(left), len(right))."""
    scales = np.asarray(hyperparameters.lengthscales, dtype=np.float64)
    if scales.ndim == 1 and len(scales) != left.shape[1]:
        raise _validate.fail("lengthscales", hyperparameters.lengthscales, f"there are {left.shape[1]} features")
    scaled = cdist(_ROOT_5 * (left / scales), _ROOT_5 * (right / scales))
    value = scaled / 3.0  # in place from here: most of the time of a draw is spent in these lines
    value += 1.0
    value *= scaled
    value += 1.0
    np.negative(scaled, out=scaled)
    value *= np.exp(scaled, out=scaled)
    value *= hyperparameters.variance
    return np.asarray(value)


# Priors (mean and deviation of the logarithm), in units of standardised scores and of features of unit range. The
# lengthscale grows with the square root of the number of features, as the distance between two points does.
_VARIANCE = (0.0, 0.5)
_LENGTHSCALE = (float(np.log(0.25)), 0.8)
_NOISE = (float(np.log(2e-2)), 1.5)
_BOUNDS = (np.log(1e-2), np.log(1e2))  # of the variance and of the lengthscales
_BOUNDS_NOISE = (np.log(1e-6), np.log(4.0))


def fit(data: Data) -> Hyperparameters:
    """The most probable hyperparameters given ``data``."""
    width = data.features.shape[1]
    squares = (data.features[:, None, :] - data.features[None, :, :]) ** 2
    flat = np.ascontiguousarray(squares.reshape(-1, width).T)
    centre, spread = _prior(width)
    bounds = [*[_BOUNDS] * (1 + width), _BOUNDS_NOISE]

    def loss(logs: Floats) -> tuple[float, Floats]:
        deviation = (logs - centre) / spread
        value, gradient = _negative_log_likelihood(logs, data, flat)
        return value + 0.5 * float(deviation @ deviation), gradient + deviation / spread

    # From the prior's centre alone: on landscapes of every kind in benchmarks/landscapes.py a second or third start
    # found a better optimum in one fit of thirty, and doubled the time.
    best = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 50})
    return _from_logs(best.x)


def prior_mode(width: int) -> Hyperparameters:
    """The hyperparameters used while there are too few observations to fit."""
    return _from_logs(_prior(width)[0])


def _from_logs(logs: Floats) -> Hyperparameters:
    variance, *lengthscales, noise = np.exp(logs).tolist()
    return Hyperparameters(variance, tuple(lengthscales), noise)


def _prior(width: int) -> tuple[Floats, Floats]:
    scale = _LENGTHSCALE[0] + 0.5 * np.log(max(width, 1))
    centre = np.array([_VARIANCE[0], *[scale] * width, _NOISE[0]])
    spread = np.array([_VARIANCE[1], *[_LENGTHSCALE[1]] * width, _NOISE[1]])
    return centre, spread


def _negative_log_likelihood(logs: Floats, data: Data, flat: Floats) -> tuple[float, Floats]:
    """−log p(y | hyperparameters) up to a constant, and its gradient in the logarithms."""
    size = len(data.means)
    variance, noise = np.exp(logs[0]), np.exp(logs[-1])
    precisions = np.exp(-2.0 * logs[1:-1])
    radii = np.sqrt(precisions @ flat).reshape(size, size)
    # The derivative of the correlation by log ℓ_d is slope · (x_d − x′_d)²/ℓ_d²: no division by r, so no case r = 0.
    scaled = _ROOT_5 * radii
    decay = np.exp(-scaled)
    slope = (1.0 + scaled) * decay
    correlation = slope + scaled * scaled * decay / 3.0
    slope *= 5.0 / 3.0
    covariance = variance * correlation
    diagonal = np.diag_indices(size)
    # A trace of jitter keeps the factorisation alive at extreme trial values; it does not depend on the parameters.
    covariance[diagonal] += noise / data.counts + 1e-10 * variance
    factor, failed = lapack.dpotrf(covariance, lower=1, clean=1)
    if failed:
        return 1e10, np.zeros_like(logs)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse += np.tril(inverse, -1).T
    weights = inverse @ data.means
    extra = float(data.counts.sum()) - size
    value = 0.5 * float(data.means @ weights) + float(np.log(np.diag(factor)).sum())
    value += 0.5 * (extra * logs[-1] + data.scatter / noise)

    difference = inverse - np.outer(weights, weights)  # d(value)/dK = difference/2
    gradient = np.empty_like(logs)
    gradient[0] = 0.5 * variance * float((difference * correlation).sum())
    gradient[1:-1] = 0.5 * variance * precisions * (flat @ (difference * slope).ravel())
    gradient[-1] = 0.5 * noise * float((difference[diagonal] / data.counts).sum())
    gradient[-1] += 0.5 * (extra - data.scatter / noise)
    return value, gradient


def posterior(hyperparameters: Hyperparameters, data: Data, candidates: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation of the function at ``candidates``.

    With K the covariance of the points, R their noise, L the Cholesky factor of K + R and V = L⁻¹ k(points, x):
    mean = Vᵀ L⁻¹ y, variance = k(x, x) − Σ_points V².
    """
    matrix = covariance(data.features, data.features, hyperparameters)
    matrix[np.diag_indices(len(matrix))] += hyperparameters.noise / data.counts
    factor = _cholesky(matrix, hyperparameters.variance)
    across = covariance(data.features, candidates, hyperparameters)
    solved = blas.dtrsm(1.0, factor, across.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    mean = blas.dtrsv(factor, data.means, lower=1) @ solved
    variance = hyperparameters.variance - np.einsum("ij,ij->j", solved, solved)  # rounding can leave it below 0
    return mean, np.sqrt(np.maximum(variance, 0.0))


_JITTER = 1e-10  # the least share of the variance that is added to a covariance without a Cholesky factor


def _cholesky(matrix: Floats, variance: float) -> Floats:
    """The lower factor; jitter on the diagonal grows from nothing until the matrix is positive."""
    diagonal = matrix.diagonal().copy()
    for jitter in (0.0, *(_JITTER * 10.0**power for power in range(12))):
        matrix[np.diag_indices(len(matrix))] = diagonal + jitter * variance
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
        if not failed:
            return np.asarray(factor)
    raise np.linalg.LinAlgError("the covariance of the runs has no Cholesky factor: are their features finite?")
