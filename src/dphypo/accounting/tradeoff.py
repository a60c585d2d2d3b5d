"""What an attacker can achieve against a release: the trade-off curve that a privacy profile implies.

Let an attacker decide, from the release, whether one record was used. Of all tests that accuse wrongly with probability
at most α, the trade-off function f(α) is the least probability to miss. If δ(ε) bounds both directions, each point of
the profile gives two lines below f, by the event and by its complement:

    f(α) ≥ 1 − δ − e^ε α  and  f(α) ≥ e^(−ε) (1 − δ − α).

So 1 − max over the lines bounds the true positive rate at α from above, whichever points of the profile are taken.

**Gaussian DP** (Dong, Roth and Su 2022): G_μ(α) = Φ(Φ⁻¹(1 − α) − μ), stated up to a probability β: G_μ − β ≤ f, which
holds everywhere if it does at the vertices of f. Each line is off by a few units in the last place of 1, and so is f at
a vertex that rounding moved: f is lowered by ``_ROUNDING``. Proof: Lemma T of docs/theory/tools.md.

The second half of the file puts these numbers into words, for the reviewers of a release.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting.composition import Composition
from dphypo.accounting.profiles import (
    Floats,
    gaussian_delta,
    lower_hull,
    round_epsilon,
    round_up,
    show_delta,
    show_epsilon,
    with_switches,
)

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
        """The most by which μ overstates the attacker's rates: the largest f − G_μ, which is that of δ_μ(ε) − δ."""
        if not 0 < mu < math.inf:
            return 0.0 if mu == 0 else 1.0
        finite = np.isfinite(self.epsilons)
        above = gaussian_delta(self.epsilons[finite], mu) - self.deltas[finite]
        return max(0.0, float(np.max(above))) + _ROUNDING


_POINTS = 401  # of the profile, from which the attacker's rates follow
_FAR = 0.01  # where μ overstates more than this, it describes the release badly
_RELATIONS = {"ADD_OR_REMOVE_ONE": "adding or removing", "REPLACE_ONE": "replacing", "REPLACE_SPECIAL": "blanking"}


def attacker(guarantee: Composition, delta: float) -> dict[str, float]:
    """Upper bounds on what an attacker achieves: true positive rates by false positive rate, and μ of Gaussian DP.

    μ holds up to a probability of "outside", and overstates the rates by at most "overstated".

    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo.accounting.composition import account_published
    >>> found = attacker(Composition.of(account_published(GaussianDpEvent(1.0), 1)), 1e-6)
    >>> round(found["mu"], 3), round(found["0.01"], 4), found["overstated"] < 1e-4
    (1.0, 0.0924, True)
    """
    found = curve(guarantee, delta)
    outside = max(float(delta), LEAST_OUTSIDE)
    mu = found.mu(outside)
    rates = {f"{rate:g}": found.true_positives(rate) for rate in RATES}
    return {**rates, "mu": mu, "outside": outside, "overstated": found.overstated(mu)}


def curve(guarantee: Composition, delta: float) -> Tradeoff:
    """The trade-off curve of a guarantee, by points of its profile and by its ε at δ."""
    epsilons, deltas = guarantee.profile(_POINTS)
    return Tradeoff(np.append(epsilons, guarantee.epsilon(delta)), np.append(deltas, delta))


def rounded(found: Mapping[str, float]) -> dict[str, float]:
    """As a certificate states them: rounded up, with room for other machines' rounding."""
    up = {name: min(1.0, round_up(rate + 2e-7, 6)) for name, rate in found.items() if rate <= 1}
    return {**up, "mu": round_epsilon(found["mu"]), "outside": found["outside"]}


def lines(document: Json) -> list[str]:
    """For the statement: one person, Gaussian DP, δ compared with the number of records, other releases."""
    public = document["public"]
    unit, delta = printable(public.get("unit", "record"), 50), float(document["delta"])
    words = []
    if stated := document.get("attacker"):
        rates = [(f"{100 * rate:g}%", percent(stated[f"{rate:g}"])) for rate in RATES]
        words += [
            f"What it means for one {unit}: an attacker who knows all other data tests whether this {unit} was used. A "
            f"test that accuses wrongly in {rates[0][0]} of cases finds at most {rates[0][1]} of those that were used; "
            f"at {rates[1][0]}, at most {rates[1][1]}. Guessing finds {rates[0][0]} and {rates[1][0]}.",
            f"Gaussian DP: {_gaussian(stated)}",
        ]
    records = public.get("records")
    if isinstance(records, int) and records > 0:
        tested = any(part.get("part") == "private test" for part in public.get("releases", ()))
        read = f"the score reads {records} declared {unit}s" if tested else f"runs train on {records} declared {unit}s"
        share = f"{read}, and delta times that number is {delta * records:.2g}"
        small = "it should be well below 1" if delta * records < 1 else "too large: it should be well below 1"
        words.append(f"How small delta is: {share} ({small}).")
    else:
        words.append(
            f"How small delta is: the number of {unit}s is not stated. Delta should be well below one over it."
        )
    ledger = public.get("ledger")
    words.append(f"What else was released from these data: {_elsewhere(ledger if isinstance(ledger, Mapping) else {})}")
    return words


def _gaussian(stated: Json) -> str:
    mu, error = float(stated["mu"]), float(stated["overstated"])
    if math.isinf(mu):
        return "no finite mu describes this guarantee."
    far = ". It describes this release badly; use the rates above" if error > _FAR else ""
    outside = f"up to a probability of {show_delta(float(stated['outside']))}"
    return f"mu = {mu:.5f} {outside}, which overstates the attacker's rates by at most {show_delta(error, 2)}{far}."


def _elsewhere(ledger: Json) -> str:
    if ledger:
        total = f"epsilon = {show_epsilon(float(ledger['epsilon']))} at delta = {show_delta(float(ledger['delta']))}"
        return (
            f"this release was charged to a ledger. All that is ever charged to it stays within {total} together. "
            "What was released without the ledger is unknown."
        )
    return "unknown. This certificate covers one release; every other release from the same data adds to its cost."


def percent(rate: object) -> str:
    """A rate in per cent, rounded up.

    >>> percent(0.2545199), percent(1.0)
    ('25.46%', '100%')
    """
    return f"{round_up(100 * float(str(rate)), 2):.2f}%" if float(str(rate)) < 1 else "100%"


def paper_sentence(document: Json) -> str:
    """One sentence that states the guarantee in a paper, with all that a reader needs to compare it."""
    stated = document.get("attacker") or {"mu": math.inf}
    unit = printable(document["public"].get("unit", "record"), 50)
    how = f"under {_RELATIONS.get(document['relation'], document['relation'])} one {unit}"
    more = ""
    if float(stated["mu"]) < math.inf and float(stated["overstated"]) <= _FAR:
        more = f", and mu = {_up(stated['mu'])} Gaussian DP up to {show_delta(float(stated['outside']))}"
    tested = any(part.get("part") == "private test" for part in document["public"].get("releases", ()))
    runs = "All training runs, including those that chose the hyperparameters, together satisfy"
    version = printable(document.get("versions", {}).get("dphypo", ""), 50)
    epsilon, delta = _up(document["epsilon"]), show_delta(float(document["delta"]))
    return (
        f"{'The reported score satisfies' if tested else runs} "
        f"({epsilon}, {delta})-differential privacy {how}{more}; the bound was "
        f"computed with dphypo {version}, and anyone can recompute it from the released certificate."
    )


def _up(value: object) -> str:
    """With the decimals that the certificate has; infinities are texts there."""
    return str(value) if math.isinf(float(str(value))) else f"{float(str(value)):.5f}"
