"""Algorithm 2 of the paper: a Gaussian process as the search rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dphypo import _validate
from dphypo.samplers.sampler import Array, History, Units, collapsed, distinct, seen, softmax
from dphypo.samplers.surrogate import Data, Hyperparameters, fit, posterior, prior_mode

if TYPE_CHECKING:
    from dphypo.space import Candidates, Grid

_FEWEST = 3  # runs that a fit needs
_ROWS = 160  # distinct points at most, so that a draw costs the same after any number of runs
_LATEST = 32  # in longer histories the points before the last runs, at most this many, are a choice


@dataclass(frozen=True)
class GaussianProcess:
    r"""Algorithm 2: a Gaussian process scores each candidate, and the weights are the softmax of the scores.

        s_λ = μ_λ + τ σ_λ,   π⁽ᵗ⁺¹⁾(λ) ∝ π⁽⁰⁾(λ) exp(β s_λ)

    μ and σ are the posterior mean and deviation of the score at λ. :meth:`paper` has the paper's settings. The paper
    does not name its kernel; here it is Matérn-5/2 with a lengthscale for each feature, and amplitude, lengthscales
    and noise are the most probable ones under weak priors, refitted whenever the number of runs has grown by half. A
    failed run counts as the worst score seen, among ranks as the lowest. Of more than 160 distinct points, those of the
    last few runs (at most 32) are kept; of the points before them, the best 64 and a fair sample of 64 others.

    The defaults are not the paper's: ``benchmarks/rules.py`` compares the two. Scores enter as normal quantiles of
    their ranks: with raw accuracies and β = 1, exp(β s) is all but flat. β does not matter to ``Greedy``, and little to
    ``KL``; the ℓ2 projection of a softmax whose peak is narrower than the band allows goes back to the prior. The first
    two runs are drawn from the prior: one score has nothing to be compared with.

    Args:
        tau: weight τ of the deviation.
        beta: inverse temperature β, per unit of ``units``.
        units: what the scores are measured in where they enter the softmax.
        start: how many runs are drawn from the prior before the scores guide the search.
        hyperparameters: fixed ones, on scores of mean 0 and deviation 1; by default they are fitted. With fixed ones
            and at most 160 points the weights do not depend on the order of the runs. Otherwise they do: a fit uses the
            first runs only.

    >>> GaussianProcess.paper()
    GaussianProcess(tau=0.1, beta=1.0, units=<Units.RAW: ...>, start=1, hyperparameters=None)
    >>> from scipy.stats import uniform
    >>> from dphypo.space import Space
    >>> grid = Space({"x": uniform()}).grid(x=5)
    >>> GaussianProcess().weights(grid, History.empty(features=1, unit=1))
    array([0.2, 0.2, 0.2, 0.2, 0.2])

    References:
        Wang, Gao, Zhang, Su, Shen: DP-HyPO, NeurIPS 2023, Algorithm 2.
        Rasmussen, Williams: Gaussian Processes for Machine Learning, 2006, chapters 2 and 5.
    """

    history_only: ClassVar[bool] = True
    tau: float = 1.0
    beta: float = 4.0
    units: Units = Units.RANKS
    start: int = 2
    hyperparameters: Hyperparameters | None = None

    def __post_init__(self) -> None:
        _validate.non_negative(tau=self.tau)
        _validate.non_negative(beta=self.beta)
        _validate.integer(at_least=1, start=self.start)
        if not isinstance(self.units, Units):
            raise _validate.fail("units", self.units, f"give one of {', '.join(map(str, Units))}")

    @classmethod
    def paper(cls) -> GaussianProcess:
        """The settings of the paper's experiments: τ = 0.1, β = 1, on the scores themselves, from the second run on."""
        return cls(tau=0.1, beta=1.0, units=Units.RAW, start=1)

    def weights(self, candidates: Candidates | Grid, history: History) -> Array:
        """exp(β s) times the prior mass; before there are ``start`` runs, the prior."""
        masses = np.asarray(candidates.masses, dtype=np.float64)
        if len(history) < self.start:
            return masses.copy()
        mean, deviation, _, unit = self._standard(candidates, history)
        beta = self.beta * unit if self.units is Units.RAW else self.beta
        return softmax(mean + self.tau * deviation, beta, masses)

    def posterior(self, candidates: Candidates | Grid, history: History) -> tuple[Array, Array]:
        """μ and σ at the candidates: of the score, or with ``Units.RANKS`` of its normal quantile."""
        if len(history) == 0:
            raise ValueError("the history is empty: there is no posterior before the first run")
        mean, deviation, centre, unit = self._standard(candidates, history)
        return centre + unit * mean, unit * deviation

    def _standard(self, candidates: Candidates | Grid, history: History) -> tuple[Array, Array, float, float]:
        """The posterior of the values of mean 0 and deviation 1, and the scores' centre and deviation."""
        values, centre, unit = seen(history, self.units)
        hyperparameters = self.hyperparameters or _fitted(history, self.units)
        return *posterior(hyperparameters, _data(history.features, values), candidates.features), centre, unit


def _data(features: Array, values: Array) -> Data:
    """The points that are kept."""
    rows = distinct(features)
    if len(rows.first) > _ROWS:
        older = (len(features) - 1) // _LATEST * _LATEST
        chosen = collapsed(features[:older], values[:older], _ROWS - _LATEST).first
        rows = rows.only(np.unique(np.concatenate([rows.row[chosen], rows.row[older:]])))
    return Data(features[rows.first], rows.means(values), rows.counts, rows.scatter(values))


def _fitted(history: History, units: Units) -> Hyperparameters:
    """The hyperparameters of the last checkpoint: they depend on the history alone, and are fitted once."""
    size = checkpoint(len(history))
    head = history.first(size)
    if size < _FEWEST:
        return prior_mode(head.features.shape[1])
    values, _, _ = seen(head, units)
    return _fit(head.features.tobytes(), values.tobytes(), head.features.shape[1])


@lru_cache(maxsize=16)
def _fit(features: bytes, values: bytes, width: int) -> Hyperparameters:
    """The fit, remembered in this process for the next draws."""
    return fit(_data(np.frombuffer(features).reshape(-1, width), np.frombuffer(values)))


def checkpoint(size: int) -> int:
    """The largest of the lengths 1, 2, 3, 4, 6, 9, 13, … (each half again as long) that is not above ``size``.

    >>> [checkpoint(size) for size in (1, 2, 5, 100, 10_000)]
    [1, 2, 4, 94, 8092]
    """
    length = 1
    while (following := length + max(1, length // 2)) <= size:
        length = following
    return length
