"""A log-uniform prior on integers."""

from __future__ import annotations

import numpy as np
from scipy.stats import rv_discrete

from dphypo.space.unit import Array


class _LogRandInt(rv_discrete):  # type: ignore[misc]
    """A number log-uniform on [low − ½, high + ½], rounded."""

    def _argcheck(self, low: Array, high: Array) -> Array:
        return np.asarray((low >= 1) & (high >= low))

    def _get_support(self, low: Array, high: Array) -> tuple[Array, Array]:
        return low, high

    def _cdf(self, k: Array, low: Array, high: Array) -> Array:
        return np.log((np.floor(k) + 0.5) / (low - 0.5)) / np.log((high + 0.5) / (low - 0.5))

    def _pmf(self, k: Array, low: Array, high: Array) -> Array:
        return np.log((k + 0.5) / (k - 0.5)) / np.log((high + 0.5) / (low - 0.5))

    def _ppf(self, q: Array, low: Array, high: Array) -> Array:
        return np.floor((low - 0.5) * np.exp(q * np.log((high + 0.5) / (low - 0.5))) + 0.5)


lograndint = _LogRandInt(name="lograndint", shapes="low, high")
