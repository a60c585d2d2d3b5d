"""From which noisy accuracy on a target counts as reached, so that this is wrong with a stated probability at most.

A model classifies a new record correctly with probability a. N records score it, drawn as the new ones are and not used
to train it; R of them are classified correctly. What is published is R̃/(R̃ + W̃), of the noisy counts of correct and
wrong records. It is at least u if and only if R̃ − u(R̃ + W̃) ≥ 0, that is R − uN + Z ≥ 0, where Z has standard
deviation σ√((1 − u)² + u²), and rounding the noise to whole numbers adds 1/2 at the most. Given N, R is binomial, and
stochastically increases with a: of all a ≤ t, a = t says "reached" most often. There the probability is a finite sum.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from dphypo import _validate
from dphypo.errors import UnreachableError

_TAIL = 1e-13  # of each law: what lies beyond is added to the probability
_DECIMALS = 4


def reaching(target: float, wrong: float, *, noise_multiplier: float, records: int, of: int | None = None) -> float:
    """The smallest accuracy, to four decimals, that is shown with probability ``wrong`` at most if a ≤ ``target``.

    Args:
        target: the accuracy that is wanted, t.
        wrong: the probability with which "reached" may be wrong.
        noise_multiplier: the standard deviation σ of the noise on each of the two counts.
        records: how many records score; the expected number if a hash sets them apart from ``of`` records.
        of: how many records there are in all, each of which scores with probability ``records / of``.

    >>> reaching(0.9, 0.0125, noise_multiplier=5.0, records=2000)
    0.916
    """
    target = _validate.within(0.0, 1.0, until=target)
    unit = 10.0**-_DECIMALS

    def probability(steps: int) -> float:
        return _reached(target, steps * unit, noise_multiplier, records, of)

    low, high = math.floor(target / unit), round(1 / unit)
    if probability(high) > wrong:
        raise UnreachableError(
            f"no accuracy on about {records} records with noise {noise_multiplier:.3g} shows that {target:g} is "
            f"reached, if that is to be wrong with probability {wrong:.3g} at most: give a lower target, more records, "
            "a larger epsilon, or a larger wrong="
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if probability(middle) > wrong else (low, middle)
    return round(high * unit, _DECIMALS)


def _reached(target: float, shown: float, noise_multiplier: float, records: int, of: int | None) -> float:
    """An upper bound of the probability that a model of accuracy ``target`` shows at least ``shown``."""
    sizes, masses = np.array([records]), np.ones(1)
    beyond = _TAIL
    if of is not None:
        law = binom(of, records / of)
        sizes = np.arange(int(law.ppf(_TAIL)), int(law.isf(_TAIL)) + 1)
        masses, beyond = law.pmf(sizes), 3 * _TAIL
    least, most = int(binom.ppf(_TAIL, sizes[0], target)), int(binom.isf(_TAIL, sizes[-1], target))
    right = np.arange(least, most + 1)[:, None]
    spread = noise_multiplier * math.hypot(1 - shown, shown)
    reached = ndtr((right - shown * sizes + 0.5) / spread)
    return float(np.sum(binom.pmf(right, sizes, target) * reached * masses)) * (1 + 1e-9) + beyond
