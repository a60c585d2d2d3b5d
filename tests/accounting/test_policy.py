"""The class of policies in guarantees, certificates, calibration and composition."""

from __future__ import annotations

import dp_accounting
import pytest
from support.upper_bound import epsilon_from_above

from dphypo.accounting import account, calibrate, verify
from dphypo.accounting.certificate import Certificate, conditions
from dphypo.accounting.guarantee import PolicyClass
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.band import Band
from dphypo.laws import Geometric, NegativeBinomial, Pmf

DELTA = 1e-5
BAND = Band(0.5, 4)
RUN = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71)), 2344
)


@pytest.fixture(scope="module")
def history():
    return account(RUN, NegativeBinomial(8, mean=5), BAND, policy="history", first_from_prior=1)


def test_the_smallest_bound_that_applies_is_reported(history):
    anything = account(RUN, NegativeBinomial(8, mean=5), BAND)
    assert set(anything.bounds(DELTA)) == {"paper", "renyi", "profile"}
    assert set(history.bounds(DELTA)) == {"paper", "renyi", "profile", "prior start", "history"}
    assert history.bound(DELTA) == "history"
    assert history.epsilon(DELTA) < 0.7 * anything.epsilon(DELTA)
    assert history.delta(history.epsilon(DELTA)) <= DELTA


def test_a_policy_that_may_know_the_data_gets_theorem_4_prime_at_most():
    found = account(RUN, NegativeBinomial(8, mean=5), BAND, first_from_prior=1).bounds(DELTA)
    assert "history" not in found
    assert found["prior start"] < found["profile"]


def test_without_a_band_no_policy_matters():
    assert account(RUN, Geometric(mean=5), policy="history").bounds(DELTA).keys() == {"paper", "renyi", "profile"}


def test_it_composes(history):
    """Two stages that use a band: the composition is that of the sharper bound."""
    twice = history.compose(history).epsilon(DELTA)
    aware = account(RUN, NegativeBinomial(8, mean=5), BAND)
    assert history.epsilon(DELTA) < twice < aware.compose(aware).epsilon(DELTA) - 2.0
    assert history.pld.get_epsilon_for_delta(DELTA) == pytest.approx(history.epsilon(DELTA), abs=0.01)


def test_the_certificate_states_the_class_and_its_conditions(history):
    certificate = history.certificate(DELTA)
    stated = certificate.to_dict()["terms"][0]["policy"]
    assert stated["class"] == "history"
    assert stated["first_from_prior"] == 1
    assert stated["conditions"] == conditions(PolicyClass.HISTORY, 1)
    for sentence in stated["conditions"]:
        assert f"- {sentence[0].lower()}{sentence[1:]}\n" in certificate.statement()
    assert verify(certificate)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [("class", "anything", "epsilon"), ("first_from_prior", 0, "epsilon"), ("conditions", [], "policy.conditions")],
)
def test_a_certificate_that_misstates_its_policy_is_refused(history, name, value, complaint):
    document = history.certificate(DELTA).to_dict()
    document["terms"][0]["policy"] |= {name: value}
    found = verify(Certificate.from_dict(document))
    assert not found
    assert any(complaint in problem for problem in found.problems)


@pytest.mark.slow
def test_calibration_spends_what_the_sharper_bound_saves():
    law, band = Pmf({3: 1.0}), Band(0.8, 1.5)
    free = calibrate(dp_accounting.GaussianDpEvent, law, band, epsilon=4.0, delta=1e-6)
    seen = calibrate(
        dp_accounting.GaussianDpEvent, law, band, epsilon=4.0, delta=1e-6, policy="history", first_from_prior=1
    )
    assert seen.noise_multiplier < free.noise_multiplier
    assert 3.99 <= seen.guarantee.epsilon(1e-6) <= 4.0


@pytest.mark.parametrize(("argument", "value"), [("policy", "clairvoyant"), ("first_from_prior", -1)])
def test_bad_arguments_are_named(argument, value):
    with pytest.raises(ValueError, match=argument):
        account(RUN, Geometric(mean=5), BAND, **{argument: value})


def test_an_attack_does_only_what_the_policy_may_do():
    """The attack that knows the data costs more than a search whose first run is from the prior: no contradiction."""
    event, law, band = dp_accounting.GaussianDpEvent(4.0), NegativeBinomial(8, mean=6), Band(0.75, 2)
    start = account(event, law, band, first_from_prior=1)
    assert 1.0 < epsilon_from_below(start, DELTA) <= start.epsilon(DELTA) <= epsilon_from_above(start, DELTA)
    assert epsilon_from_below(account(event, law, band), DELTA) > start.epsilon(DELTA)
