"""Explicit attacks: true lower bounds, within a few per cent of the profile bound."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from support.slow import mostly_slow

from benchmarks.sharp_pair import dp_sgd_pair
from benchmarks.worst_case import WorstCase
from dphypo.accounting import PureDp, account
from dphypo.accounting.lower_bound import attack, epsilon_from_below
from dphypo.band import Band
from dphypo.laws import Geometric, Logarithmic, Pmf, Poisson

DELTA = 1e-5
STEP = dp_accounting.PoissonSampledDpEvent(256 / 60_000, dp_accounting.GaussianDpEvent(0.71))
EVENT = dp_accounting.SelfComposedDpEvent(STEP, 2344)


@pytest.fixture(scope="module")
def pair():
    return dp_sgd_pair(0.71, 256 / 60_000, 2344, grid=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(0.71, 256 / 60_000, 2344), (1.0, 1.0, 1), (1.0, 0.02, 200), (3.0, 0.5, 40)]
)
def test_the_pair_lies_just_below_the_pessimistic_distribution(noise, rate, steps):
    """Merging outcomes can only lose; here it loses next to nothing."""
    found = dp_sgd_pair(noise, rate, steps)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        upper = float(accountant.get_delta(epsilon))
        assert 0.97 * upper - 1e-7 <= found.delta(epsilon) <= upper * (1 + 1e-9) + 1e-11


@pytest.mark.parametrize(
    ("law", "band", "expected"),
    [
        pytest.param(Geometric(mean=100), Band(1, 1), 5.00, marks=pytest.mark.slow),
        (Geometric(mean=100), Band(0.75, 2), 6.87),
        pytest.param(Geometric(mean=10), Band(0.75, 2), 5.33, marks=pytest.mark.slow),
        pytest.param(Logarithmic(gamma=0.01), Band(0.75, 2), 5.39, marks=pytest.mark.slow),
        pytest.param(Geometric(mean=100), Band(0.75, 4 / 3), 6.09, marks=pytest.mark.slow),
        (Pmf({1: 1.0}), Band(1, 1), 2.774),
    ],
)
def test_the_attack_comes_close_to_the_bound_and_never_above(pair, law, band, expected):
    lower, upper = attack(pair, law, band, DELTA), account(EVENT, law, band).epsilon(DELTA)
    assert lower == pytest.approx(expected, abs=0.02)
    assert lower <= upper <= 1.03 * lower


@pytest.mark.slow
@pytest.mark.parametrize("law", [Poisson(10), Pmf({5: 1.0}), Geometric(mean=30).capped(50)], ids=repr)
@pytest.mark.parametrize("band", [Band(1, 1), Band(0.5, 4), Band(0.6, 1.2)], ids=repr)
def test_no_attack_beats_the_bound_for_other_laws(law, band):
    guarantee = account(PureDp(1.0), law, band)
    worst = WorstCase(1.0, law, band, DELTA)
    for epsilon in (0.0, 0.5, 2.0, 4.0, 7.0):
        assert worst.attack_delta(epsilon) <= guarantee.delta(epsilon)


@pytest.mark.parametrize("band", [Band(1, 1), Band(0.75, 2), Band(0.6, 1.2)], ids=repr)
def test_the_worst_case_achieves_what_the_lower_bound_says(band):
    """Two computations of the same attack: by outcomes, and on a grid of losses that are rounded down."""
    law = Geometric(mean=10)
    exact, by_grid = (
        WorstCase(1.0, law, band, 1e-3).attack_epsilon(),
        epsilon_from_below(account(PureDp(1.0), law, band), 1e-3),
    )
    assert by_grid <= exact == pytest.approx(by_grid, abs=3e-4)


@pytest.mark.parametrize("band", mostly_slow([Band(0.5, 2.0), Band(1, 1), Band(0.75, 3.0)], 2))
@pytest.mark.parametrize("prior", [False, True])
def test_the_attack_is_what_enumeration_gives(band: Band, prior: bool) -> None:
    """All outcomes of at most three runs, the first with λ from the prior or not: no run is in S, and one is in E."""
    runs = Pmf({0: 0.1, 1: 0.3, 2: 0.2, 3: 0.4})
    worst = WorstCase(0.85, runs, band, DELTA)
    masses = dict(zip(("here", "there", "rest"), (band.p, band.p, 1 - 2 * band.p), strict=True))
    masses = masses if band.C > 1 else {"rest": 1.0}
    truth = math.exp(0.85) / (1 + math.exp(0.85))
    outcomes = [(group, told) for group in masses for told in (0, 1)]
    levels = sorted({worst.loss(*one) for one in outcomes})

    def law(bit: int, first: bool) -> dict:
        dense = worst.densities(bit)
        return {
            one: masses[one[0]] * (1.0 if first and prior else dense[one[0]]) * (truth if one[1] == bit else 1 - truth)
            for one in outcomes
        }

    for bit in (0, 1):
        assert sum(law(bit, True).values()) == pytest.approx(1.0)
        assert sum(law(bit, False).values()) == pytest.approx(1.0)
    for epsilon in (0.0, 0.4, 1.0, 2.0):
        best = 0.0
        for s, t in itertools.combinations_with_replacement(range(len(levels)), 2):
            found = []
            for bit in (1, 0):
                start, later, total = law(bit, True), law(bit, False), 0.0
                for count in (1, 2, 3):
                    for seen in itertools.product(outcomes, repeat=count):
                        places = [levels.index(worst.loss(*one)) for one in seen]
                        if min(places) >= s and max(places) >= t:
                            total += runs.pmf(count) * start[seen[0]] * math.prod(later[one] for one in seen[1:])
                found.append(total)
            best = max(best, found[0] - math.exp(epsilon) * found[1])
        assert worst.attack_delta(epsilon, first_from_prior=prior) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("band", [Band(0.75, 2), Band(0.5, 4)])
def test_the_attack_on_a_study_is_below_what_the_study_claims(band: Band) -> None:
    worst = WorstCase(0.5, Geometric(mean=2), band, 1e-3)
    achieved = worst.attack_epsilon(first_from_prior=True)
    claimed = worst.study(1).guarantee.epsilon(1e-3)
    assert 0.5 * claimed < achieved <= claimed
    assert achieved <= worst.attack_epsilon() + 1e-6
    assert worst.attack_delta(achieved, first_from_prior=True) == pytest.approx(1e-3, abs=1e-9)
