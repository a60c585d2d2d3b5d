"""One Poisson subsample of the records, then any mechanism on it: its profile from that of the mechanism.

Neighbours D ∪ {x} and D, the record x in the subsample with probability q, the subsample S of the others given: the
mechanism sees S ∪ {x} with probability q and S otherwise, against S. With (P, Q) a pair that dominates it there, the
pair ((1−q)Q + qP, Q) dominates the whole, by the joint convexity of hockey-stick divergences over S (Zhu, Dong and
Wang 2022, Theorem 11). Its divergences are those of (P, Q) at another order:

    remove:  H_{e^ε}((1−q)Q + qP ‖ Q) = q H_{(e^ε − 1 + q)/q}(P ‖ Q),  or 1 − e^ε where that order is not positive;
    add:     H_{e^ε}(Q ‖ (1−q)Q + qP) = a H_{e^ε q/a}(Q ‖ P) with a = 1 − (1−q)e^ε,  or 0 where a is not positive.

The mechanism must not know how large the subsample is, other than through its own privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.accounting.profiles import Floats, Profile

_SLACK = 1e-12  # relative, on δ and on the order: for the rounding of exponentials and logarithms


@dataclass(frozen=True, eq=False)
class Removed:
    """The profile from the records with x to those without.

    >>> from dphypo.accounting.profiles import randomised_response
    >>> whole = randomised_response(1.0)
    >>> bool(np.isclose(Removed(whole, 0.5).delta(0.3), 0.5 * whole.delta(np.log1p(np.expm1(0.3) / 0.5))))
    True
    """

    inner: Profile
    rate: float

    @property
    def bottom(self) -> float:
        return math.log1p(-self.rate)

    @property
    def top(self) -> float:
        return float(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + self.inner.top))

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        eps = np.asarray(epsilon, dtype=np.float64)
        share = -np.expm1(
            np.minimum(math.log1p(-self.rate) - eps, 1.0)
        )  # 1 − (1−q)e^(−ε): the order is e^ε/q times this
        order = eps - math.log(self.rate) + np.log(np.maximum(share, 1e-300))
        inner = self.rate * self.inner.delta(order - _SLACK * (1 + np.abs(order)))
        certain = -np.expm1(np.minimum(eps, 0.0))
        # For ε < 0 the order is a difference of numbers near 1, which rounds absolutely.
        value = np.where(share > 0, np.maximum(inner, certain) + np.where(eps < 0, 1e-15, 0.0), certain)
        return np.asarray(np.minimum(value * (1 + _SLACK), 1.0))


@dataclass(frozen=True, eq=False)
class Added:
    """The profile from the records without x to those with it. Its losses are at most log(1/(1−q))."""

    inner: Profile
    rate: float

    @property
    def bottom(self) -> float:
        low = self.inner.bottom
        return low - float(np.logaddexp(math.log(self.rate), math.log1p(-self.rate) + low))

    @property
    def top(self) -> float:
        return -math.log1p(-self.rate)

    def delta(self, epsilon: npt.ArrayLike) -> Floats:
        eps = np.asarray(epsilon, dtype=np.float64)
        share = -np.expm1(np.minimum(eps + math.log1p(-self.rate), 0.0))  # a
        order = eps + math.log(self.rate) - np.log(np.maximum(share, 1e-300))
        inner = share * self.inner.delta(order - _SLACK * (1 + np.abs(order)))
        value = np.where(share > 0, inner * (1 + _SLACK) + 1e-15, 0.0)
        return np.asarray(np.minimum(value, 1.0))


def pure(epsilon: float, rate: float) -> float:
    """ε of the whole where the mechanism is ε-DP: log(1 + q(e^ε − 1))."""
    return math.inf if math.isinf(epsilon) else float(np.logaddexp(math.log1p(-rate), math.log(rate) + epsilon))
