"""The trade-off curve of a profile: never above the attacker's own, and close to it where there is a closed form."""

from __future__ import annotations

import math
import re

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dphypo.accounting import ApproximateDp, Composition, PureDp, RdpCurve, RoundedDp, account, verify
from dphypo.accounting.certificate import Certificate
from dphypo.accounting.composition import account_published
from dphypo.accounting.tradeoff import RATES, Tradeoff, attacker, paper_sentence, rounded
from dphypo.laws import Geometric

ALPHAS = np.concatenate([np.geomspace(1e-9, 0.5, 200), 1 - np.geomspace(0.5, 1e-9, 200)])


def gaussian(alpha: np.ndarray, mu: float) -> np.ndarray:
    return norm.cdf(norm.ppf(1 - alpha) - mu)


def published(event: object) -> Composition:
    return Composition.of(account_published(event, 1))


@pytest.mark.parametrize("mu", [0.02, 0.25, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_a_gaussian_mechanism_has_its_own_mu_and_rates(mu, delta):
    found = attacker(published(dp_accounting.GaussianDpEvent(1 / mu)), delta)
    exact = [1 - float(gaussian(np.array(rate), mu)) for rate in RATES]
    stated = [found[f"{rate:g}"] for rate in RATES]
    assert stated == pytest.approx(exact, rel=2e-4)
    assert all(above >= below for above, below in zip(stated, exact, strict=True))
    assert mu - 20 * delta <= found["mu"] <= mu * (1 + 1e-3)  # outside lets μ be smaller by as much
    assert found["overstated"] < 1e-3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_randomised_response_has_its_closed_form(epsilon):
    found = attacker(published(PureDp(epsilon)), 0.0)
    worst = 1 / (1 + math.exp(epsilon))  # the vertex, where a miss is as likely as a false alarm
    assert found["mu"] == pytest.approx(2 * norm.ppf(1 - worst), rel=1e-6)
    for rate in RATES:
        exact = max(1 - math.exp(epsilon) * rate, math.exp(-epsilon) * (1 - rate))
        assert 1 - exact <= found[f"{rate:g}"] <= 1 - exact + 1e-9


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=2, max_size=8),
    st.floats(1e-4, 0.1),
)
def test_no_test_of_any_discrete_pair_does_better(pairs, outside):
    """By Neyman and Pearson: the exact curve of a pair of distributions, with events of infinite loss."""
    p, q = np.array(pairs, dtype=float).T
    if q.sum() == 0:
        return
    p, q = p / p.sum(), q / q.sum()
    losses = np.log(p) - np.log(np.maximum(q, 1e-300))
    epsilons = np.linspace(0.0, 5.0, 23)
    above, below = (
        [np.maximum(one - math.exp(eps) * other, 0).sum() for eps in epsilons] for one, other in ((p, q), (q, p))
    )
    curve = Tradeoff(epsilons, np.maximum(above, below))
    order = np.argsort(-losses)
    wrong, right = np.append(0.0, np.cumsum(q[order])), np.append(0.0, np.cumsum(p[order]))
    alphas = np.linspace(0.0, 1.0, 101)
    exact = np.array([1 - right[wrong <= a].max() if a in wrong else 1 - _between(a, wrong, right) for a in alphas])
    assert (curve.misses(alphas) <= exact + 1e-12).all()
    mu = curve.mu(outside)
    if mu < math.inf:
        inner = np.linspace(0.001, 0.999, 501)
        assert (gaussian(inner, mu) - outside <= curve.misses(inner) + 1e-12).all()
        gap = np.max(curve.misses(inner) - gaussian(inner, mu))
        assert gap <= curve.overstated(mu) + 1e-12


def _between(alpha: float, wrong: np.ndarray, right: np.ndarray) -> float:
    """Power of the most powerful test at a level between two of its steps: it is randomised."""
    last = int(np.searchsorted(wrong, alpha, side="right")) - 1
    if last + 1 == len(wrong):
        return float(right[last])
    share = (alpha - wrong[last]) / (wrong[last + 1] - wrong[last])
    return float(right[last] + share * (right[last + 1] - right[last]))


def test_mu_is_the_smallest_that_holds():
    points = np.linspace(0.0, 6.0, 60)
    curve = Tradeoff(points, np.array([0.3 * math.exp(-one) for one in points]))
    mu = curve.mu(0.01)
    fine = np.linspace(1e-4, 1 - 1e-4, 20_001)
    assert (gaussian(fine, mu) - 0.01 <= curve.misses(fine) + 1e-12).all()
    assert (gaussian(fine, 0.98 * mu) - 0.01 > curve.misses(fine)).any()


@pytest.mark.parametrize(
    ("event", "delta", "mu"),
    [(ApproximateDp(1.0, 1e-3), 1e-5, math.inf), (RdpCurve([2.0, 8.0, 64.0], [0.1, 0.4, 3.2]), 1e-5, None)],
)
def test_any_event_has_rates_and_a_certificate_that_verifies(event, delta, mu):
    guarantee = published(event) if mu else account(event, Geometric(mean=3)).compose()
    found = attacker(guarantee, delta)
    assert found["mu"] == mu or mu is None
    assert 0.001 < found["0.001"] <= found["0.01"] <= 1
    certificate = guarantee.certificate(delta)
    assert certificate.document["attacker"]["0.01"] >= found["0.01"]
    assert not verify(certificate).problems
    assert ("no finite mu" in certificate.statement()) == (mu == math.inf)
    assert ("(inf, " in paper_sentence(certificate.document)) == (mu == math.inf)


def test_rates_that_are_too_small_do_not_verify():
    certificate = published(dp_accounting.GaussianDpEvent(1.0)).certificate(1e-6)
    for name in ("0.01", "0.001", "mu", "outside"):
        stated = dict(certificate.document["attacker"])
        stated[name] *= 0.999
        found = verify(Certificate({**certificate.document, "attacker": stated}))
        assert any(problem.startswith(f"attacker.{name}:") for problem in found.problems)


def test_what_is_stated_is_rounded_up():
    found = {"0.01": 0.1234561, "0.001": 0.99999999, "mu": 1.000001, "outside": 1e-9, "overstated": 2e-9}
    assert rounded(found) == {"0.01": 0.123457, "0.001": 1.0, "mu": 1.00001, "outside": 1e-9, "overstated": 1e-6}


@pytest.mark.parametrize("delta", [1 / 70_000, 1e-5, 1.23456749e-7, 0.1])
def test_what_is_said_of_delta_is_never_less_than_what_is_certified(delta):
    """A δ of 1/70 000 was said to be 1.42857e-05, which is less; and a slack of 2.14e-12, 2.1e-12 at most."""
    event = RoundedDp(dp_accounting.GaussianDpEvent(5.0), 2.14e-12)
    document = published(event).certificate(delta, ledger={"epsilon": 8.0, "delta": delta}).document
    said = re.findall(r"delta = ([0-9.e-]+[0-9])", document["statement"])
    said += re.findall(r"\([0-9.]+, ([0-9.e-]+)\)", paper_sentence(document))
    assert len(said) == 3
    assert all(delta <= float(one) <= delta * (1 + 1e-5) for one in said)
    assert "a total variation of at most 2.2e-12" in document["statement"]


def test_the_statement_says_what_it_means_for_one_person_and_what_nobody_knows():
    guarantee = published(dp_accounting.GaussianDpEvent(1.0))
    words = guarantee.certificate(1e-5, unit="person", records=2000).statement()
    assert "What it means for one person: an attacker who knows all other data" in words
    assert "finds at most 9.24% of those that were used; at 0.1%, at most 1.83%" in words
    assert "runs train on 2000 declared persons, and delta times that number is 0.02" in words
    assert "What else was released from these data: unknown." in words
    bare = guarantee.certificate(1e-5, ledger={"epsilon": 8.0, "delta": 1e-5}).statement()
    assert "the number of records is not stated" in bare
    assert "charged to it stays within epsilon = 8 at delta = 1e-05" in bare
    assert "too large" in guarantee.certificate(1e-3, records=5000).statement()


def test_the_sentence_for_a_paper_has_all_numbers():
    certificate = published(dp_accounting.GaussianDpEvent(2.0)).certificate(1e-5)
    words, mu = paper_sentence(certificate.document), certificate.document["attacker"]["mu"]
    assert f"({certificate.epsilon:.5f}, 1e-05)-differential privacy under adding or removing one record" in words
    assert f"mu = {mu:.5f} Gaussian DP up to 1e-05" in words
