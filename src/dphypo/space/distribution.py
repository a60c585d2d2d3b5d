"""Frozen distributions of ``scipy.stats`` as priors: which are usable, what they become, how they are described."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dphypo.space.dimension import Dimension
from dphypo.space.finite import Finite
from dphypo.space.quantiles import CELLS, SHORTEST, Prior, Quantiles

# Integers up to this many are listed, with their masses; more are read off the quantile function.
MOST_LISTED = 2**16


def dimension(where: str, prior: Any) -> Dimension:
    """The parameter with this prior: a list of levels where the distribution is discrete and short enough."""
    if any(np.ndim(argument) for argument in (*prior.args, *prior.kwds.values())):
        raise ValueError(f"{where} has a distribution with an array as argument: give each parameter its own prior")
    if not hasattr(prior, "pmf"):
        result = Quantiles(where, prior, whole=False)
        result.check()
        return result
    _check_tail(where, prior)
    result = Quantiles(where, prior, whole=True)
    result.check()
    low, high = (int(end) for end in prior.ppf([SHORTEST, 1 - SHORTEST]))
    return result if high - low >= MOST_LISTED else _listed(where, prior, low, high)


def _check_tail(where: str, prior: Any) -> None:
    """Scipy walks along the tail of a discrete distribution to find a quantile: refuse a walk without end."""
    with np.errstate(all="ignore"):
        if np.isinf(prior.support()).any() and not math.isfinite(prior.std()):
            raise ValueError(f"{where} has a prior without a finite variance: cut it, or list (choices, probabilities)")


def _listed(where: str, prior: Any, low: int, high: int) -> Finite:
    """The integers from low to high with a mass of at least 2⁻³²; rarer ones do not happen in a search."""
    integers = np.arange(low, high + 1)
    masses = np.asarray(prior.pmf(integers), dtype=np.float64)
    kept = masses >= 1 / CELLS
    total = math.fsum(masses[kept])
    if total < 0.999:
        raise ValueError(f"{where} has a prior on values that are not integers: list (choices, probabilities)")
    return Finite(where, tuple(integers[kept].tolist()), masses[kept] / total, ordered=True)


def _argument(value: Any) -> float | int | str:
    """One spelling per number: 10 and 10.0 describe the same prior. JSON has no infinity, so that is a word."""
    number = float(value)
    if math.isinf(number):
        return repr(number)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def describe(prior: Prior, dimension: Dimension) -> dict[str, Any]:
    """Name and arguments, however they were passed; for a distribution that is not scipy's, its content as well."""
    import scipy.stats

    family = prior.dist
    discrete = hasattr(prior, "pmf")
    names = [*(family.shapes or "").replace(" ", "").split(","), "loc", *([] if discrete else ["scale"])]
    named = dict(zip([name for name in names if name], prior.args, strict=False)) | prior.kwds
    arguments = {name: _argument(named[name]) for name in names if name in named}
    arguments = {name: value for name, value in arguments.items() if (name, value) not in (("loc", 0), ("scale", 1))}
    description: dict[str, Any] = {"distribution": family.name, "arguments": arguments}
    ours = type(family).__module__.startswith("dphypo.")
    if ours or type(family) is type(getattr(scipy.stats, family.name, None)):
        return description
    description["distribution"] = f"{type(family).__module__}.{type(family).__qualname__}"
    if isinstance(dimension, Finite):
        content = {"choices": list(dimension.choices), "probabilities": dimension.masses.tolist()}
    else:
        content = {"quantiles": np.asarray(prior.ppf(np.arange(1, 64) / 64), dtype=np.float64).tolist()}
    return description | content
