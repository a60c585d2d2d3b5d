"""The draw: exact probabilities, the proof that they are in the band, and that draws follow them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.band_reference import BANDS, PROJECTIONS, assert_in_band, priors, zoo

from dphypo.band import Band, Greedy
from dphypo.band import band as _band
from dphypo.entropy import SYSTEM, Seeded


def probabilities(masses, monkeypatch):
    """The probability of every index as the draw makes it: points that lead to it, times the chance of acceptance.

    The draw is asked for the first and the last point of every index, so that a search off by one is seen.
    """
    counts = [-(-(Fraction(mass) * 2**61) // 1) for mass in masses.tolist()]
    total, start, accepted = sum(counts), 0, []
    for index, count in enumerate(counts):
        for point in (start, start + count - 1):

            def choose(bound, entropy, point=point):
                assert bound == total
                return point

            def accept(probability, entropy):
                accepted.append(probability)
                return True

            monkeypatch.setattr(_band, "below", choose)
            monkeypatch.setattr(_band, "bernoulli", accept)
            assert _band.draw_exactly(masses, SYSTEM) == index
        start += count
    chances = [Fraction(count) * chance for count, chance in zip(counts, accepted[::2], strict=True)]
    assert all(0 < chance <= 1 for chance in accepted)
    return [chance / sum(chances) for chance in chances]


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_probabilities_are_exactly_the_masses_and_in_the_band(projection, monkeypatch):
    for c, C in [BANDS[0], BANDS[-1], (1 - 2.0**-37, 1 + 2.0**-35), (1, 1)]:
        for prior in priors(7).values():
            given = [Fraction(1, 7)] * 7 if prior is None else [Fraction(p) for p in prior.tolist()]
            for weights in list(zoo(7).values())[::3]:
                band = Band(c, C)
                masses = band.project(weights, prior, projection)
                assert 0 <= band.draw(masses, SYSTEM, prior) < 7  # the masses pass the draw's own check
                with monkeypatch.context() as patch:
                    chances = probabilities(masses, patch)
                exact = [Fraction(mass) for mass in masses.tolist()]
                for chance, mass, p in zip(chances, exact, given, strict=True):
                    assert chance == mass / sum(exact)
                    assert Fraction(c) * p / sum(given) <= chance <= Fraction(C) * p / sum(given)


def test_a_rejected_index_is_drawn_again(monkeypatch):
    answers = iter([False, False, True])
    monkeypatch.setattr(_band, "bernoulli", lambda probability, entropy: next(answers))
    assert _band.draw_exactly(np.array([0.3, 0.7]), Seeded(0)) in (0, 1)
    assert next(answers, None) is None


def alarm(draws, masses, rate=1e-6):
    """Whether counts of draws contradict the masses: two-sided exact binomial tests, all together at this rate."""
    counts = np.bincount(draws, minlength=len(masses))
    tests = (stats.binomtest(int(k), len(draws), float(q)).pvalue for k, q in zip(counts, masses, strict=True))
    return min(tests) < rate / len(masses)


def test_draws_follow_the_masses():
    # The false alarm rate is 1e-6; a mutant whose masses are off by a fifth, or which draws from the prior, is caught.
    band, entropy = Band(0.5, 2), Seeded(11)
    prior = np.array([0.05, 0.3, 0.15, 0.1, 0.4])
    masses = band.project([5, 1, 3, 0, 1], prior)
    draws = [band.draw(masses, entropy, prior) for _ in range(5_000)]
    assert not alarm(draws, masses)
    shifted = masses * np.array([1, 1.2, 1, 1, 0.8])
    assert alarm([_band.draw_exactly(shifted / shifted.sum(), entropy) for _ in range(5_000)], masses)
    assert alarm([Band(1, 1).draw(prior, entropy, prior) for _ in range(5_000)], masses)


def test_a_draw_repeats_with_its_seed():
    masses = Band(0.5, 2).project(np.arange(100.0))
    first, second = ([Band(0.5, 2).draw(masses, Seeded(s).child("λ")) for s in range(20)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 5


@pytest.mark.parametrize(
    ("masses", "prior"),
    [
        ([0.8, 0.2], None),  # above C and below c
        ([0.6, 0.4], [0.25, 0.75]),  # above C for this prior
        ([0.4, 0.5], None),  # does not sum to 1
        ([0.5, 0.5 + 2e-12], None),
        ([1.7e308, 1.7e308], None),
        ([0.5, 0.5], [1.0, 5e-324]),
        ([2 / 3, 1 / 3], [1 / 3, 2 / 3]),  # on the limits, where rounding decides
        ([0.25 * (1 - 2.0**-45), 1 - 0.25 * (1 - 2.0**-45)], None),  # just below c
        ([0.5 * (1 + 2.0**-45), *[(1 - 0.5 * (1 + 2.0**-45)) / 3] * 3], None),  # just above C
    ],
)
def test_masses_outside_the_band_are_refused(masses, prior):
    with pytest.raises(ValueError, match=r"masses are not in Band\(c=0.5, C=2.0\)"):
        Band(0.5, 2.0).draw(masses, SYSTEM, prior)


def test_what_passes_the_check_is_in_the_band_however_the_sums_are_rounded():
    rng = np.random.default_rng(5)
    passed = refused = 0
    for _ in range(4000):
        prior, c, C = rng.dirichlet(np.ones(4)), rng.uniform(0.2, 0.9), rng.uniform(1.2, 4)
        inside = rng.choice([1.0, 1.0, 1.0, -1.0], 2)  # one in four is outside, where rounded sums may hide it
        room = inside * 2.0 ** rng.uniform(-41, -35, 2)
        ratios = np.array([c * (1 + room[0]), C * (1 - room[1]), 1.0, 1.0])
        ratios[2:] = (1 - prior[:2] @ ratios[:2]) / prior[2:].sum()
        masses = prior * ratios * (1 + rng.uniform(-1, 1) * 2.0**-40)
        prior *= 1 + rng.uniform(-1, 1) * 2.0**-40
        if not _band.within(masses, prior, c, C):
            refused += 1
            continue
        passed += 1
        assert_in_band(masses, c, C, prior)
    assert min(passed, refused) > 200


def test_only_the_prior_is_in_the_band_without_room():
    prior = np.array([0.1, 0.2, 0.7])
    assert Band(1, 1).draw(prior, SYSTEM, prior) in range(3)
    assert Band(1, 1).draw([1 / 3] * 3, SYSTEM) in range(3)
    with pytest.raises(ValueError, match="masses are not in"):
        Band(1, 1).draw(np.nextafter(prior, 1), SYSTEM, prior)


@pytest.mark.parametrize("masses", [[], [[1.0]], [np.nan, 1.0], [-1.0, 2.0], [0.0, 0.0], "masses"])
def test_masses_that_are_none_are_refused(masses):
    with pytest.raises(ValueError, match="masses"):
        Band(0.5, 2).draw(masses, SYSTEM)


def test_one_candidate_is_drawn():
    assert Band(0.5, 2).draw([1.0], SYSTEM) == 0


def test_masses_too_small_for_the_counts_are_drawn_exactly(monkeypatch):
    prior = np.array([1e-200, 1.0, 5e-324, 1e-25])
    masses = Band(0.5, 2).project([1, 1, 1, 1], prior, Greedy())
    chances = probabilities(masses, monkeypatch)
    exact = [Fraction(mass) for mass in masses.tolist()]
    assert chances == [mass / sum(exact) for mass in exact]


@pytest.mark.slow
def test_ten_million_candidates_are_drawn_from():
    size = 10**7
    band = Band(0.5, 2)
    masses = band.project(np.arange(1.0, size + 1))
    assert 0 <= band.draw(masses, SYSTEM) < size
