"""What reviewers of a release ask for beside ε: what an attacker achieves, how small δ is, what else was released."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting.composition import Composition
from dphypo.accounting.profiles import round_epsilon, round_up
from dphypo.accounting.tradeoff import LEAST_OUTSIDE, RATES, Tradeoff

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
    """For the statement of a certificate: one person, Gaussian DP, δ beside the number of records, other releases."""
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
        share = f"runs train on {records} declared {unit}s, and delta times that number is {delta * records:.2g}"
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
    outside = f"up to a probability of {float(stated['outside']):g}"
    return f"mu = {mu:.5f} {outside}, which overstates the attacker's rates by at most {error:.2g}{far}."


def _elsewhere(ledger: Json) -> str:
    if ledger:
        total = f"epsilon = {float(ledger['epsilon']):g} at delta = {float(ledger['delta']):g}"
        return (
            f"this search was charged to a ledger. All that is ever charged to it stays within {total} together. "
            "What was released without the ledger is unknown."
        )
    return "unknown. This certificate covers one search; every other release from the same data adds to its cost."


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
        more = f", and mu = {_up(stated['mu'])} Gaussian DP up to {float(stated['outside']):g}"
    version = printable(document.get("versions", {}).get("dphypo", ""), 50)
    return (
        "All training runs, including those that chose the hyperparameters, together satisfy "
        f"({_up(document['epsilon'])}, {float(document['delta']):g})-differential privacy {how}{more}; the bound was "
        f"computed with dphypo {version}, and anyone can recompute it from the released certificate."
    )


def _up(value: object) -> str:
    """With the decimals that the certificate has; infinities are texts there."""
    return str(value) if math.isinf(float(str(value))) else f"{float(str(value)):.5f}"
