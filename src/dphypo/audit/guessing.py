"""What guesses about many canaries in one run prove: Proposition O, the f-DP bound of Mahloujifar and others.

Each of m canaries is in the data with probability ½, independently. From the output, an auditor guesses for r of them
whether it was; N guesses are right. If the mechanism has trade-off function f for each canary, whatever the others are,
then with p_i = P[N = i], for every t (arXiv 2410.22235, Theorem 9, with abstentions):

    S_t ≤ 1 − f(W_{t−1}),   S_t = Σ_{i ≥ t} i p_i / m,   W_t = Σ_{i ≥ t} (r − i) p_i / m.

Which P[N ≥ c] = τ do these admit? Put all of τ at c, and go down from t = c: p_{t−1} is the least that makes W_{t−1}
large enough. That makes the sum of all p as small as it can be; τ is impossible if it exceeds 1. The sum increases with
τ, so bisection finds the largest possible τ. Proofs: docs/theory/search.md, "Audits of one run".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dphypo import _validate
from dphypo.accounting.tradeoff import Tradeoff

Needed = Callable[[float], float]
"""The least false positive rate at which a mechanism allows a true positive rate."""
Floats = npt.NDArray[np.float64]
SHARES = (1.0, 0.5, 0.25, 0.1)
"""The parts of the canaries that are guessed: the surest ones. Each has its share of the error probability."""
_HALVINGS = 30  # of the range of a logarithm
_MOST = 50.0  # the largest ε that is looked for


def chance(correct: int, guesses: int, canaries: int, needed: Needed) -> float:
    """An upper bound on the probability of at least this many correct guesses, if a mechanism is as ``needed`` says.

    >>> randomised_response = Tradeoff(np.array([1.0]), np.array([0.0])).rates_needed()
    >>> exact = float(binom.sf(89, 100, math.e / (1 + math.e)))  # each bit is told rightly with e/(1 + e)
    >>> exact <= chance(90, 100, 100, randomised_response) < 2 * exact
    True
    """
    if correct <= 0:
        return 1.0
    low, high = math.log(1e-300), 0.0
    if _least_mass(1.0, correct, guesses, canaries, needed) <= 1:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = _least_mass(math.exp(middle), correct, guesses, canaries, needed) <= 1
        low, high = (middle, high) if fits else (low, middle)
    return min(1.0, math.exp(high) * (1 + 1e-9))


def _least_mass(tail: float, correct: int, guesses: int, canaries: int, needed: Needed) -> float:
    """The least total probability of all N, if N ≥ ``correct`` has probability ``tail``; or a number above 1."""
    right, wrong, mass = tail * correct / canaries, tail * (guesses - correct) / canaries, tail
    for at in range(correct - 1, -1, -1):
        lacking = needed(right) - wrong
        if lacking > 0:
            added = lacking * canaries / (guesses - at)
            right, wrong, mass = right + added * at / canaries, wrong + lacking, mass + added
            if mass > 1:
                break
    return mass


def chance_by_binomial(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The same for (ε, δ)-DP by Steinke, Nasr and Jagielski (2023), Theorem 5.2: a binomial tail, and a term for δ."""
    right = 1 / (1 + math.exp(-epsilon))
    sums = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, right))
    more = float(np.max(sums / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, float(binom.sf(correct - 1, guesses, right)) + 2 * canaries * delta * more)


def dp(epsilon: float, delta: float) -> Needed:
    """(ε, δ)-DP. 1 − f is the smaller of two lines; this is the larger of their inverses."""
    factor = math.exp(epsilon)
    return lambda rate: max(0.0, (rate - delta) / factor, 1 - delta - (1 - rate) * factor)


def gaussian(mu: float) -> Needed:
    """Gaussian DP."""
    return lambda rate: float(ndtr(ndtri(min(rate, 1.0)) - mu))


def epsilon_of(mu: float, delta: float) -> float:
    """ε at δ of Gaussian DP, rounded down.

    >>> round(epsilon_of(1.0, 1e-5), 2)
    4.38
    """
    low, high = 0.0, mu * mu / 2 + 40 * mu + 1e-9
    for _ in range(50):
        middle = (low + high) / 2
        at = float(ndtr(mu / 2 - middle / mu) - math.exp(middle) * ndtr(-mu / 2 - middle / mu)) if mu > 0 else 0.0
        low, high = (middle, high) if at > delta else (low, middle)
    return low


@dataclass(frozen=True)
class Guesses:
    """How many of the surest guesses were right."""

    guesses: int
    correct: int


@dataclass(frozen=True, eq=False)
class OneRunAudit:
    """What the guesses about the canaries of one run prove, each with the stated confidence.

    ``epsilon`` is at most the true ε at ``delta``, of any mechanism. ``mu`` is at most its μ, if it satisfies Gaussian
    DP. ``chance`` is an upper bound on the probability of guesses as good as these, if the claim were true.
    ``apart`` counts canaries as repetitions, which needs that none affects the score of another. In training as it is
    declared, gradient canaries do not, so ``chance_apart``, the same probability for them, tests that.
    """

    canaries: int
    guesses: tuple[Guesses, ...]
    delta: float
    confidence: float
    claimed: float | None = None
    chance: float = 1.0
    apart: Guesses | None = None
    chance_apart: float = 1.0
    included: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_), repr=False)
    scores: Floats = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def passed(self) -> bool:
        """Whether the claim stands. Two tests share the error probability, if there are two."""
        allowed = (1 - self.confidence) / (1 if self.apart is None else 2)
        return min(self.chance, self.chance_apart) > allowed

    @property
    def epsilon(self) -> float:
        return self._ruled_out(lambda epsilon: dp(epsilon, self.delta))

    @property
    def mu(self) -> float:
        return self._ruled_out(gaussian)

    @property
    def mu_apart(self) -> float:
        """At most the μ of a mechanism that satisfies Gaussian DP, if no canary affects another; 0 if not known."""
        if self.apart is None or self.apart.correct == 0:
            return 0.0
        count, right = self.apart.guesses, self.apart.correct
        return max(0.0, 2 * float(ndtri(beta.ppf(1 - self.confidence, right, count - right + 1))))

    def first(self, canaries: int) -> OneRunAudit:
        """What the first so many canaries alone prove."""
        few = slice(0, _validate.integer(at_least=10, canaries=canaries))
        included, scores, apart = self.included[few], self.scores[few], self.apart is not None
        return judge(included, scores, delta=self.delta, confidence=self.confidence, apart=apart)

    @property
    def epsilon_by_binomial(self) -> float:
        """The bound of Steinke, Nasr and Jagielski (2023) from the same guesses, which is smaller if δ is not 0."""
        allowed = (1 - self.confidence) / len(self.guesses)
        return _largest(
            lambda epsilon: any(
                chance_by_binomial(one.correct, one.guesses, self.canaries, epsilon, self.delta) <= allowed
                for one in self.guesses
            )
        )

    def _ruled_out(self, family: Callable[[float], Needed]) -> float:
        return _largest(lambda value: chance_of(self.guesses, self.canaries, family(value)) <= 1 - self.confidence)

    def __str__(self) -> str:
        found = f"ε ≥ {self.epsilon:.3f} at δ = {self.delta:g}, and μ ≥ {self.mu:.3f} if it is Gaussian DP"
        how = f"{self.confidence:.0%} confidence, {self.canaries} canaries in one run"
        if self.claimed is None:
            return f"{found} ({how})"
        verdict = "the claim stands" if self.passed else "THE CLAIM IS FALSE"
        if self.apart is not None:
            found += f"; μ ≥ {self.mu_apart:.3f} with canaries as repetitions"
        seen = f"guesses as good have a probability of at most {min(self.chance, self.chance_apart):.2g} if it holds"
        return f"{found} ({how}); claimed ε = {self.claimed:.3f}: {verdict} ({seen})"


def _largest(ruled_out: Callable[[float], bool]) -> float:
    """The largest parameter that is ruled out, rounded down; 0 if none."""
    low, high = 0.0, _MOST
    for _ in range(16 if ruled_out(1e-9) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if ruled_out(middle) else (low, middle)
    return low


def chance_of(guesses: Sequence[Guesses], canaries: int, needed: Needed) -> float:
    """The probability of any of these, by the union bound: which share of the canaries is guessed was not chosen."""
    return min(1.0, len(guesses) * min(chance(one.correct, one.guesses, canaries, needed) for one in guesses))


def judge(
    included: npt.NDArray[np.bool_],
    scores: Floats,
    *,
    delta: float,
    confidence: float = 0.95,
    curve: Tradeoff | None = None,
    claimed: float | None = None,
    apart: bool = False,
) -> OneRunAudit:
    """What scores prove that are larger for canaries that were included: the surest are guessed, half each way.

    ``curve`` and ``claimed`` are what the mechanism claims; ``apart`` says that its canaries do not affect each other.
    """
    confidence = _validate.within(0.0, 1.0, confidence=confidence)
    canaries = len(scores)
    if len(included) != canaries or canaries < 10:
        raise _validate.fail("scores", f"{canaries} numbers", "give one for each canary, at least 10")
    order = np.argsort(np.where(np.isfinite(scores), scores, 0.0), kind="stable")
    found = []
    for share in SHARES:
        half = max(1, round(share * canaries / 2))
        out, inside = order[:half], order[max(canaries - half, half) :]
        found.append(Guesses(len(out) + len(inside), int((~included[out]).sum() + included[inside].sum())))
    guesses = tuple(dict.fromkeys(found))
    likely = 1.0 if curve is None else chance_of(guesses, canaries, curve.rates_needed())
    if not apart:
        return OneRunAudit(canaries, guesses, delta, confidence, claimed, likely, None, 1.0, included, scores)
    half = canaries // 2  # the first half chooses a cut, the second is guessed by it
    ranked = np.argsort(scores[:half], kind="stable")
    gains = np.append(0, np.cumsum(np.where(included[ranked], -1, 1)))  # of guessing that the lowest are out
    place = int(np.argmax(gains))
    cut = scores[ranked[place]] if place < half else math.inf
    right = int(((scores[half:] >= cut) == included[half:]).sum())
    alone = Guesses(canaries - half, right)
    by_chance = 1.0 if curve is None else float(binom.sf(right - 1, alone.guesses, (1 + curve.distance()) / 2))
    return OneRunAudit(canaries, guesses, delta, confidence, claimed, likely, alone, by_chance, included, scores)
