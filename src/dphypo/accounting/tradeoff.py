"""What an attacker can achieve against a release: the trade-off curve that a privacy profile implies.

Let an attacker decide, from the release, whether one record was used. Of all tests that accuse wrongly with probability
at most α, the trade-off function f(α) is the least probability to miss. If δ(ε) bounds both directions, each point of
the profile gives two lines below f, by the event and by its complement:

    f(α) ≥ 1 − δ − e^ε α  and  f(α) ≥ e^(−ε) (1 − δ − α).

So 1 − max over the lines bounds the true positive rate at α from above, whichever points of the profile are taken.

**Gaussian DP** (Dong, Roth and Su 2022): G_μ(α) = Φ(Φ⁻¹(1 − α) − μ). No finite μ has G_μ ≤ f everywhere as soon as the
profile has a trace at infinity, so μ is stated up to a probability β: G_μ − β ≤ f. The maximum of the lines is convex
and linear between its vertices, and G_μ is convex: it is enough to compare the two at the vertices (α, f), where

    μ ≥ Φ⁻¹(1 − α) − Φ⁻¹(f + β).

Each line is off by a few units in the last place of 1, and so is f at a vertex that rounding moved: f is lowered by
``_ROUNDING``. Proof: Lemma T of docs/theory/tools.md.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr, ndtri

from dphypo.accounting.profiles import Floats, lower_hull, with_switches

RATES = (0.01, 0.001)
"""The false positive rates at which certificates state the attacker's true positive rate."""
LEAST_OUTSIDE = 1e-9
"""The smallest β: at smaller ones, μ would be that of the tail that a profile no longer resolves."""
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """The trade-off function that points (ε, δ) of a profile imply, where each δ bounds both directions.

    >>> pure = Tradeoff(np.array([1.0]), np.array([0.0]))
    >>> round(pure.true_positives(0.01), 6)  # e times 0.01
    0.027183
    """

    epsilons: Floats
    deltas: Floats

    @property
    def _lines(self) -> tuple[Floats, Floats, Floats]:
        """−f as a minimum of lines: slopes, intercepts, and where each hands over to the next, α increasing."""
        usable = np.isfinite(self.epsilons) & (self.epsilons < 700)
        factor, rest = np.exp(self.epsilons[usable]), 1.0 - self.deltas[usable]
        slopes = np.concatenate([factor, 1 / factor, [0.0]])  # the last line: f is not negative
        intercepts = -np.concatenate([rest, rest / factor, [0.0]])
        rank = np.lexsort((intercepts, slopes))
        slopes, intercepts = slopes[rank], intercepts[rank]
        return with_switches(slopes, intercepts, lower_hull(slopes, intercepts)[::-1])

    def misses(self, alpha: npt.ArrayLike) -> Floats:
        """f at false positive rates α, rounded down."""
        slopes, intercepts, _ = self._lines
        values = np.max(-intercepts - np.multiply.outer(np.asarray(alpha, dtype=np.float64), slopes), axis=-1)
        return np.asarray(np.maximum(values - _ROUNDING, 0.0))

    def rates_needed(self) -> Callable[[float], float]:
        """The smallest α at which a true positive rate is allowed, as a function of that rate, rounded down."""
        slopes, intercepts, meet = self._lines
        meet = meet[: np.count_nonzero(slopes > 0) - 1]  # the last line is 0, and allows every rate
        ends = (1 + slopes[: len(meet)] * meet + intercepts[: len(meet)]).tolist()  # rates where lines hand over
        lines = list(zip(slopes.tolist(), intercepts.tolist(), strict=True))

        def needed(rate: float) -> float:  # rate ≤ 1 + s α + t
            slope, intercept = lines[bisect.bisect_left(ends, rate)]
            return max(0.0, float(rate - 1 - intercept) / float(slope) - _ROUNDING)

        return needed

    def true_positives(self, alpha: float) -> float:
        """The largest true positive rate of any attack whose false positive rate is α, rounded up."""
        return min(1.0, math.nextafter(1.0 - float(self.misses(alpha)), math.inf))

    def distance(self) -> float:
        """The largest total variation: by each point, (e^ε − 1 + 2δ)/(e^ε + 1)."""
        factor = np.exp(np.minimum(self.epsilons, 700.0))
        return min(1.0, float(np.min((factor - 1 + 2 * self.deltas) / (factor + 1))) + _ROUNDING)

    def mu(self, outside: float) -> float:
        """The smallest μ with G_μ − ``outside`` ≤ f, rounded up; infinite if there is none."""
        alphas = np.concatenate([[0.0], self._lines[2]])
        alphas = alphas[(alphas >= 0) & (alphas < 1)]
        covered = self.misses(alphas) + outside
        tested = covered < 1 - alphas  # elsewhere even a blind guess misses no more
        if not tested.any():
            return 0.0
        alphas, covered = alphas[tested], covered[tested]
        quantiles = np.where(alphas < 0.5, -ndtri(alphas), ndtri(1 - alphas))  # neither loses digits
        return float(np.max(quantiles - ndtri(covered))) + 1e-9

    def overstated(self, mu: float) -> float:
        """How much μ overstates the attacker's rates: the largest f − G_μ.

        Each line of f is at most f, and G_μ is largest below it where their slopes agree: sup (f − G_μ) is the largest
        δ_μ(ε) − δ over the points, with δ_μ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).
        """
        if not 0 < mu < math.inf:
            return 0.0 if mu == 0 else 1.0
        at = self.epsilons[np.isfinite(self.epsilons)] / mu
        gaussian = ndtr(mu / 2 - at) - np.exp(at * mu + log_ndtr(-mu / 2 - at))
        return max(0.0, float(np.max(gaussian - self.deltas[np.isfinite(self.epsilons)]))) + _ROUNDING
