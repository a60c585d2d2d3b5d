"""What a run as it is made adds to that of its event: the slack of rounded noise, charged on the final δ.

**Lemma.** Let two neighbours be given, and let the release A be within total variation S of a release I that is
(ε, δ)-DP, on both of them. Then A is (ε, δ + (1 + e^ε)·S)-DP for the two: A(E) ≤ I(E) + S ≤ e^ε I′(E) + δ + S
≤ e^ε (A′(E) + S) + δ + S.

S adds up over runs, since each can be coupled with its ideal given all that came before: ``count`` times the slack of
published runs, E[T] times that of a search (the sum of P[T ≥ j]), and of a record the slack of the terms that it meets.
The slack of a run is the largest over λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from dphypo.accounting.events import Event, RoundedDp
from dphypo.accounting.profiles import Floats

_UP = 1 + 1e-12  # for the rounding of these lines
_SHARES = (1e-9, 1e-6, 1e-3, 0.1, 0.5)  # of δ that the slack may take; the first that is enough
_REFINED = 3


def largest(events: Iterable[Event]) -> float:
    """The slack of a run whose event is one of these."""
    return max(event.slack if isinstance(event, RoundedDp) else 0.0 for event in events)


def total(runs: float, slack: float) -> float:
    """The slack of so many runs, or so many on average, rounded up."""
    return runs * slack * _UP


def charge(epsilons: Callable[[float], dict[str, float]], delta: float, slack: float) -> dict[str, float]:
    """ε at δ by each bound, where ``epsilons`` gives it for runs without slack. The smallest is found most exactly.

    >>> charge(lambda delta: {"one": 2.0, "two": 40.0}, 1e-6, 1e-16)
    {'one': 2.0, 'two': inf}
    """
    if slack == 0:
        return epsilons(delta)
    settled: dict[str, float] = {}

    def settle(rest: float) -> bool:
        # delta − rest is exact: rest is at least half of delta.
        for name, epsilon in epsilons(rest).items():
            fits = _charged(epsilon, slack) <= delta - rest
            settled[name] = min(epsilon if fits else math.inf, settled.get(name, math.inf))
        return min(settled.values()) < math.inf

    share = next((share for share in _SHARES if settle(delta - share * delta)), 0.0)
    for _ in range(_REFINED if share > _SHARES[1] else 0):  # a slack that matters: give up no more than it takes
        settle(math.nextafter(delta - _charged(min(settled.values()), slack), 0.0))
    if max(settled.values()) == math.inf:
        settle(delta - _SHARES[-1] * delta)
    return settled


def add(epsilons: Floats, deltas: Floats, slack: float) -> Floats:
    """δ at increasing ε, from that of runs without slack."""
    if slack == 0:
        return deltas
    more = np.array([_charged(float(epsilon), slack) for epsilon in epsilons])
    return np.asarray(np.minimum.accumulate(np.minimum(_UP * (deltas + more), 1.0)))


def _charged(epsilon: float, slack: float) -> float:
    return (1 + math.exp(epsilon)) * slack * _UP if epsilon < 700 else math.inf
