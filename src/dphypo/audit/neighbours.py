"""A lower bound on ε from what many searches, or many training runs, released on two neighbouring data sets.

Half of the observations choose an event E, the other half count it. With p and q the one-sided Clopper–Pearson bounds
of P[E] on one data set from below and on the other from above, every valid ε at δ is at least log((p − δ)/q). The
choice of E does not touch the counts, so the bound holds at the stated confidence whatever the choice was. The same p
and q bound the whole profile: every valid δ at any ε is at least p − e^ε q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from dphypo import _validate

Floats = npt.NDArray[np.float64]

_CATEGORIES = 64  # as many different observations, at most, are counted one by one


@dataclass(frozen=True)
class Audit:
    """What came of an audit: with the stated confidence, the true ε at ``delta`` is at least ``epsilon``.

    ``claimed`` is what the search claims at the same δ; an audit that finds more has found a fault. ``frequencies`` are
    the bounds of P[E] on the two data sets, from below and from above, in each direction.
    """

    epsilon: float
    delta: float
    confidence: float
    repetitions: int
    claimed: float | None = None
    frequencies: tuple[tuple[float, float], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the claim is consistent with the observations."""
        return self.claimed is None or self.epsilon <= self.claimed

    def delta_at(self, epsilon: float) -> float:
        """What is proven of the profile: with the stated confidence, the true δ at every ε is at least this.

        >>> found = audit_observations([1] * 90 + [0] * 10, [0] * 100, delta=1e-3)
        >>> found.delta_at(0.0) > found.delta_at(1.0) > 0, abs(found.delta_at(found.epsilon) - 1e-3) < 1e-9
        (True, True)
        """
        return max((low - math.exp(epsilon) * high for low, high in self.frequencies), default=0.0)

    def __str__(self) -> str:
        how = f"confidence {self.confidence:g}, {self.repetitions} runs a side"
        found = f"ε ≥ {self.epsilon:.3f} at δ = {self.delta:g} ({how})"
        if self.claimed is None:
            return found
        verdict = "the claim stands" if self.passed else "THE CLAIM IS FALSE"
        return f"{found}; claimed {self.claimed:.3f}: {verdict}"


def audit_observations(
    here: Sequence[Any],
    there: Sequence[Any],
    *,
    delta: float,
    claimed: float | None = None,
    event: Callable[[Any], bool] | None = None,
    confidence: float = 0.99,
) -> Audit:
    """A lower bound on ε from observations on two data sets that differ in one record, equally many on each.

    **Observe searches or trainings on records that are not private.**

    Args:
        here, there: what the attacker saw of each execution on the one data set and on the other: hashable values,
            numbers, or vectors of numbers, such as ``(release.params["lr"], release.score)``.
        delta: the δ at which ε is bounded.
        claimed: what is claimed, to be compared.
        event: whether an observation is in E, if E was fixed before the first one was made, as one that is likelier on
            the first data set. All observations count it then; otherwise half of them choose E.
        confidence: of the bound, over both directions.

    >>> rng = np.random.default_rng(0)  # a count with Gaussian noise of deviation 1, of 3 records and of 2
    >>> found = audit_observations(3 + rng.normal(size=2000), 2 + rng.normal(size=2000), delta=1e-2, claimed=2.6)
    >>> 0.4 < found.epsilon < 2.6, found.passed
    (True, True)
    """
    delta = _validate.within(0.0, 1.0, closed="left", delta=delta)
    confidence = _validate.within(0.0, 1.0, confidence=confidence)
    here, there = _validate.sequence(here=here), _validate.sequence(there=there)
    if len(here) != len(there) or len(here) < 4:
        raise ValueError(f"there are {len(here)} and {len(there)} observations: give as many on each side, at least 4")
    if event is not None:
        hits, false_hits = (sum(bool(event(one)) for one in side) for side in (here, there))
        frequencies = [_frequencies(hits, false_hits, len(here), confidence)]
    else:
        frequencies = _chosen(*_values(here, there), delta, confidence)
    found = max(_epsilon(low, high, delta) for low, high in frequencies)
    return Audit(found, delta, confidence, len(here), claimed, tuple(frequencies))


def _chosen(first: Floats, second: Floats, delta: float, confidence: float) -> list[tuple[float, float]]:
    """For each direction, the event that one half of the repetitions shows best, counted in the other half."""
    half = len(first) // 2
    frequencies = []
    for on, off in ((first, second), (second, first)):
        score = _likelihood_ratio(on[:half], off[:half])
        cut = _best_cut(score(on[:half]), score(off[:half]), delta, confidence)
        hits, false_hits = int((score(on[half:]) >= cut).sum()), int((score(off[half:]) >= cut).sum())
        frequencies.append(_frequencies(hits, false_hits, len(on) - half, (1 + confidence) / 2))
    return frequencies


def lower_bound(hits: int, false_hits: int, count: int, delta: float, confidence: float) -> float:
    """log((p − δ)/q) for p, q the Clopper–Pearson bounds of two frequencies out of ``count``; 0 if that is negative.

    Each of the two bounds fails with probability (1 − ``confidence``)/2.
    """
    return _epsilon(*_frequencies(hits, false_hits, count, confidence), delta)


def _frequencies(hits: int, false_hits: int, count: int, confidence: float) -> tuple[float, float]:
    """The Clopper–Pearson bounds of the first frequency from below and of the second from above."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, false_hits + 1, count - false_hits)) if false_hits < count else 1.0
    return low, high


def _epsilon(low: float, high: float, delta: float) -> float:
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def _values(here: Sequence[Any], there: Sequence[Any]) -> tuple[Floats, Floats]:
    """Observations as rows of numbers; few different ones as one column of categories."""
    both = [value if isinstance(value, Hashable) else tuple(np.ravel(value)) for value in (*here, *there)]
    try:
        code = {value: float(index) for index, value in enumerate(sorted(set(both), key=repr))}
    except TypeError:  # an observation holds something that cannot be hashed
        code = {}
    if 0 < len(code) <= _CATEGORIES:
        rows = np.array([[code[value]] for value in both])
    else:
        rows = np.array([np.ravel(np.asarray(value, dtype=np.float64)) for value in both])
    return rows[: len(here)], rows[len(here) :]


def _likelihood_ratio(on: Floats, off: Floats) -> Callable[[Floats], Floats]:
    """A statistic that is larger where ``on`` is more likely, learnt from these rows alone."""
    values = np.unique([*on, *off])
    if on.shape[1] == 1 and len(values) <= _CATEGORIES:
        ratios = {value: math.log(((on == value).sum() + 0.5) / ((off == value).sum() + 0.5)) for value in values}
        return lambda rows: np.array([ratios.get(value, -math.inf) for value in rows[:, 0]])
    # Two normal laws with one covariance: the linear discriminant. Enough for canaries, whose statistic is a shift.
    centre, spread = np.vstack([on, off]).mean(axis=0), np.vstack([on - on.mean(axis=0), off - off.mean(axis=0)])
    covariance = np.atleast_2d(np.cov(spread.T)) + 1e-12 * np.eye(on.shape[1])
    direction = np.linalg.solve(covariance, on.mean(axis=0) - off.mean(axis=0))
    return lambda rows: np.asarray((rows - centre) @ direction)


def _best_cut(on: Floats, off: Floats, delta: float, confidence: float) -> float:
    """The cut at which these counts, were they the ones that count, would prove most."""
    cuts = np.unique(on)
    if len(cuts) > 200:
        cuts = np.quantile(cuts, np.linspace(0, 1, 200))
    proven = [
        lower_bound(int((on >= cut).sum()), int((off >= cut).sum()), len(on), delta, (1 + confidence) / 2)
        for cut in cuts
    ]
    return float(cuts[int(np.argmax(proven))])
