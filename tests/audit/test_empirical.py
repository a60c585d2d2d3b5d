"""Audits by experiment: honest claims stand, false ones fall, and the bound itself is what it says."""

from __future__ import annotations

import math

import dp_accounting as dp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

import dphypo
from benchmarks.many_runs import audit, audit_mechanism, gradient_canary, input_canary
from benchmarks.worst_case import WorstCase
from dphypo.accounting import PureDp, account
from dphypo.audit import audit_observations, lower_bound
from dphypo.band import Band
from dphypo.laws import Geometric, Pmf

SURE = 1 - 1e-6  # the confidence of bounds that must not fail by chance
RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


def search(bit: int, claims: float = 2.2) -> dphypo.Study:
    @dphypo.mechanism(event=PureDp(claims), relation=RELATION)
    def respond(params, *, seed):
        told = bit if np.random.default_rng(seed).random() < 0.9 else 1 - bit
        return told, float(told)

    return dphypo.Study(dphypo.Space({"x": [0]}), respond, Pmf({1: 1.0}), delta=1e-6, journal=None)


@pytest.mark.parametrize(
    ("hits", "false_hits", "count", "delta"), [(60, 4, 100, 1e-3), (5, 0, 40, 0.0), (3, 3, 9, 0.1)]
)
def test_the_bound_inverts_exact_binomial_tests(hits: int, false_hits: int, count: int, delta: float) -> None:
    """At the two Clopper–Pearson bounds the observed counts are exactly as unlikely as the confidence says."""
    found = lower_bound(hits, false_hits, count, delta, 0.95)
    low = brentq(lambda p: binom.sf(hits - 1, count, p) - 0.025, 1e-9, 1 - 1e-9)
    high = brentq(lambda q: binom.cdf(false_hits, count, q) - 0.025, 1e-9, 1 - 1e-9)
    assert found == pytest.approx(max(0.0, math.log(max(low - delta, 1e-300) / high)), abs=1e-6)


@pytest.mark.slow
def test_an_honest_search_stands_and_a_false_claim_falls() -> None:
    here = [search(1).run(progress=False) for _ in range(120)]
    there = [search(0).run(progress=False) for _ in range(120)]
    scores = [[one.score for one in side] for side in (here, there)]
    honest = audit_observations(*scores, delta=1e-6, claimed=2.2, confidence=SURE)
    assert honest.passed
    assert audit_observations(*scores, delta=1e-6, confidence=0.99).epsilon > 0.1
    assert not audit_observations(*scores, delta=1e-6, claimed=0.1, confidence=0.99).passed


def test_what_is_proven_of_the_profile_is_below_it_everywhere() -> None:
    """Two normal laws, whose profile has a closed form. False alarms: 1e-6 for all ε together."""
    rng = np.random.default_rng(2)
    found = audit_observations(rng.normal(1.0, size=4000), rng.normal(0.0, size=4000), delta=1e-3, confidence=SURE)
    for epsilon in np.linspace(0.0, 4.0, 41):
        true = norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon)
        assert found.delta_at(float(epsilon)) <= true
    assert found.delta_at(0.0) > 0.05
    assert found.delta_at(found.epsilon) == pytest.approx(1e-3)


def test_an_event_that_was_fixed_beforehand_is_counted_in_all_repetitions() -> None:
    here, there = [True] * 70 + [False] * 30, [True] * 3 + [False] * 97
    found = audit_observations(here, there, delta=1e-3, confidence=0.95, event=bool)
    assert found.epsilon == pytest.approx(lower_bound(70, 3, 100, 1e-3, 0.95))
    assert len(found.frequencies) == 1
    assert found.epsilon > audit_observations(here, there, delta=1e-3, confidence=0.95).epsilon


def test_equal_sides_show_nothing() -> None:
    rng = np.random.default_rng(0)
    assert audit_observations(rng.normal(size=400), rng.normal(size=400), delta=1e-5, confidence=SURE).epsilon == 0


def test_vectors_and_numbers_are_told_apart_by_a_discriminant() -> None:
    rng = np.random.default_rng(1)
    here, there = rng.normal(size=(600, 5)), rng.normal(size=(600, 5))
    here[:, 3] += 4
    assert audit_observations(here, there, delta=1e-5, confidence=SURE).epsilon > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("band", [pytest.param(Band(1, 1), marks=pytest.mark.slow), Band(0.75, 2)])
def test_the_worst_case_stays_below_the_claim(band: Band) -> None:
    attack = WorstCase(1.5, Geometric(mean=2), band, 1e-4, repetitions=40)
    result = attack.audit(confidence=SURE)
    assert result.passed


@pytest.mark.parametrize("band", [Band(0.75, 2), Band(0.5, 1.5), Band(0.9, 1.1), Band(1, 1)], ids=repr)
def test_the_policy_at_the_edge_of_the_band_is_in_the_band(band: Band) -> None:
    """With c and C as far from 1 there are two groups, not three."""
    attack = WorstCase(1.0, Geometric(mean=3), band, 1e-4)
    release = attack.study(1).run(progress=False)
    assert release.params["group"] in {"here", "there", "rest"}
    assert attack.attack_epsilon(first_from_prior=True) <= attack.study(1).guarantee.epsilon(1e-4)


@pytest.mark.slow
def test_a_gradient_canary_shows_training_with_less_noise_than_it_says() -> None:
    pytest.importorskip("opacus")
    make, data, neighbour, observe = gradient_canary(noise_multiplier=0.2, batch_size=64, steps=1)
    honest = account(make(data).event({}), Pmf({1: 1.0})).epsilon(1e-3)
    false = account(dp.GaussianDpEvent(10.0), Pmf({1: 1.0})).epsilon(1e-3)
    result = audit_mechanism(
        make, data, neighbour, {}, 80, delta=1e-3, claimed=honest, observe=observe, confidence=SURE
    )
    assert result.passed
    assert result.epsilon > false


@pytest.mark.slow
def test_an_input_canary_shows_training_without_the_noise_it_claims() -> None:
    """One record with a wrong label among usual ones; the attacker sees the loss on it. False alarms: 1e-6."""
    torch = pytest.importorskip("torch")
    opacus = pytest.importorskip("dphypo.torch")
    labels = torch.arange(31) % 2
    inputs = 3.0 * torch.stack([2.0 * labels - 1, torch.ones(31)], 1)
    data, neighbour, observe = input_canary((inputs, labels), (np.array([3.0, -3.0]), 0))
    assert len(data[0]) == 32

    def untrained():
        layer = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.zeros_(layer.weight)
        return layer

    def make(records):
        arguments = {"records": 32, "batch_size": 32, "epochs": 3, "learning_rate": 1.0, "noise_multiplier": 0.05}
        return opacus.DPSGD(model=untrained, data=records, score=lambda model: 0.0, device="cpu", **arguments)

    claimed = account(dp.GaussianDpEvent(3.0), Pmf({1: 1.0})).epsilon(1e-3)
    found = audit_mechanism(
        make, data, neighbour, {}, 120, delta=1e-3, claimed=claimed, observe=observe, confidence=SURE
    )
    assert not found.passed, str(found)
    for wrong in (inputs, (inputs,)):
        with pytest.raises(ValueError, match="must be pairs"):
            input_canary(wrong, (inputs[0], 1))


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="as many on each side"):
        audit_observations([1, 2, 3, 4], [1, 2, 3], delta=1e-5)
    with pytest.raises(ValueError, match="repetitions = 1"):
        audit(search, 0, 1, 1, delta=1e-5)
