"""Optuna's distributions as priors."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from scipy.stats import rv_discrete

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.space.dimension import MOST_LISTED


class _LogRandInt(rv_discrete):  # type: ignore[misc]
    """A number log-uniform on [low − ½, high + ½], rounded."""

    def _get_support(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return low, high

    def _cdf(self, k: Floats, low: Floats, high: Floats) -> Floats:
        return np.log((np.floor(k) + 0.5) / (low - 0.5)) / np.log((high + 0.5) / (low - 0.5))

    def _ppf(self, q: Floats, low: Floats, high: Floats) -> Floats:
        return np.floor((low - 0.5) * np.exp(q * np.log((high + 0.5) / (low - 0.5))) + 0.5)


lograndint = _LogRandInt(name="lograndint", shapes="low, high")


def priors(distributions: Mapping[str, Any]) -> dict[str, Any]:
    """For each of Optuna's distributions the prior that its random sampler draws from."""
    if not isinstance(distributions, Mapping):
        raise _validate.fail("distributions", distributions, "give a dict of name to distribution of Optuna")
    return {name: _prior(f"parameter {name!r}", distribution) for name, distribution in distributions.items()}


def _prior(where: str, distribution: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from scipy.stats import loguniform, randint, uniform

    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise _validate.fail(where, distribution, "give a distribution of optuna.distributions")
    low, high = distribution.low, distribution.high
    if distribution.single():
        return [low]
    if isinstance(distribution, FloatDistribution) and distribution.step is None:
        return loguniform(low, high) if distribution.log else uniform(low, high - low)
    if isinstance(distribution, IntDistribution) and distribution.step == 1:
        return lograndint(low, high) if distribution.log else randint(low, high + 1)
    assert distribution.step is not None  # without a step it was continuous
    return _steps(where, low, high, distribution.step)


def _steps(where: str, low: float, high: float, step: float) -> list[float]:
    """low, low + step, …: in decimals, so that 0.1 + 2·0.1 is 0.3."""
    start, stride = Decimal(repr(low)), Decimal(repr(step))
    count = int((Decimal(repr(high)) - start) / stride) + 1
    if count > MOST_LISTED:
        raise ValueError(f"{where} has {count} steps, more than {MOST_LISTED}: leave the step out and round in the run")
    return [type(low)(start + stride * position) for position in range(count)]
