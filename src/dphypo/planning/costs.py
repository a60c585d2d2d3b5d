"""Noise multipliers for many designs at once, approximately: enough to rank designs, never used to run one.

A design that is chosen is calibrated anew, to within 1e-3 and never above the target, by :meth:`Design.stages`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.accounting import Composition, Guarantee, account
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, over_space
from dphypo.space import Space

# Steps of √2 in the noise multiplier: 0.09 to 91. Between them ε is interpolated on logarithmic axes.
_LADDER = 2.0 ** (np.arange(-7, 14) / 2)
_START = 7
LEAST, MOST = float(_LADDER[0]), float(_LADDER[-1])
_LONGER = 1.1  # by how much a cheap run, of whole steps, may be longer than its fraction of a full run


@dataclass(frozen=True, eq=False)
class Costs:
    """What searches over a space cost, kept as far as they were asked for.

    Args:
        space: the hyperparameters.
        run: what one run is, by the fraction of a full run's steps.
        delta: δ of all of it.
    """

    space: Space
    run: Callable[[float], Mechanism]
    delta: float
    _mechanisms: dict[float, Mechanism] = field(default_factory=dict, init=False)
    _runs: dict[tuple[float, float], Guarantee] = field(default_factory=dict, init=False)
    _searches: dict[tuple[float, float, str], Guarantee] = field(default_factory=dict, init=False)

    def search(self, fraction: float, noise_multiplier: float, law: Law) -> Guarantee:
        """The guarantee of a uniform search with runs of a given length and noise."""
        key = (fraction, noise_multiplier, repr(law))
        if key not in self._searches:
            # The run's own privacy loss distribution does not depend on the law of T: computed once for all laws.
            one = self._runs.get(key[:2])
            if one is None:
                one = self._runs[key[:2]] = self._account(fraction, noise_multiplier, law)
            self._searches[key] = replace(one, runs=law)
        return self._searches[key]

    def alone(self, fraction: float, law: Law, epsilon: float) -> float:
        """The noise multiplier at which a search costs ε by itself; 0 or infinity where it is below or above all that
        are tried."""
        return _solve(lambda sigma: self.search(fraction, sigma, law).profile_epsilon(self.delta), epsilon)

    def last(self, first: Guarantee, law: Law, epsilon: float) -> float:
        """The noise multiplier of full runs at which a search with them costs ε together with an earlier one."""

        def both(sigma: float) -> float:
            return Composition((first, self.search(1.0, sigma, law))).epsilon(self.delta)

        return _solve(both, epsilon)

    def makes(self, fraction: float) -> bool:
        """True if a run can be cut to this fraction. A mechanism without ``steps`` is trusted."""
        full, cheap = (getattr(self.mechanism(one), "steps", None) for one in (1.0, fraction))
        return full is None or cheap is None or cheap <= _LONGER * fraction * full

    def mechanism(self, fraction: float) -> Mechanism:
        """A run of that length."""
        if fraction not in self._mechanisms:
            self._mechanisms[fraction] = self.run(fraction)
        return self._mechanisms[fraction]

    def _account(self, fraction: float, noise_multiplier: float, law: Law) -> Guarantee:
        kind: Any = self.mechanism(fraction)
        made = kind.at(noise_multiplier=noise_multiplier)
        return account(over_space.events(made, self.space), law, relation=made.relation)


def _solve(cost: Callable[[float], float], epsilon: float) -> float:
    """The noise multiplier of cost ε, the cost falling in it, from the rungs of the ladder about it; 0 where even its
    lowest rung costs less, infinity where its highest costs more."""
    known: dict[int, float] = {}

    def at(rung: int) -> float:
        if rung not in known:
            known[rung] = cost(float(_LADDER[rung]))
        return known[rung]

    low = _START
    while at(low) < epsilon:
        if low == 0:
            return 0.0
        low -= 1
    while low + 1 < len(_LADDER) and at(low + 1) >= epsilon:
        low += 1
    if low + 1 == len(_LADDER):
        return math.inf
    if not 0 < at(low + 1) < at(low) < math.inf:
        return float(_LADDER[low + 1])
    return _between(low, at, epsilon)


def _between(low: int, at: Callable[[int], float], epsilon: float) -> float:
    """The cubic through four rungs of log σ against log ε where they fall, else the line through two."""
    rungs = [rung for rung in range(low - 1, low + 3) if 0 <= rung < len(_LADDER)]
    costs = [at(rung) for rung in rungs]
    if not all(math.inf > first > second > 0 for first, second in pairwise(costs)):
        rungs, costs = [low, low + 1], [at(low), at(low + 1)]
    return noise_between(_LADDER[rungs], costs, epsilon)


def noise_between(levels: npt.ArrayLike, costs: npt.ArrayLike, epsilon: float) -> float:
    """The noise multiplier at which a cost that falls with it comes to ε, by a monotone cubic of log σ against log ε.

    Args:
        levels: increasing noise multipliers.
        costs: the cost at each.
        epsilon: a cost between the first and the last.

    >>> round(noise_between([1.0, 2.0, 4.0], [8.0, 4.0, 2.0], 5.0), 6)
    1.6
    """
    from scipy.interpolate import PchipInterpolator

    falling = PchipInterpolator(np.log(np.asarray(costs)[::-1]), np.log(np.asarray(levels)[::-1]))
    return float(np.exp(falling(math.log(epsilon))))
