"""The density of draws from candidate sets stays inside the band, given everything drawn before.

Two runs are drawn many times over. The weights of the second depend on the first, and aim at it, or away from it. The
probability that λ₂ falls into a dyadic box about λ₁ of prior mass η must lie in [cη, Cη]; it is exactly at one end when
the aim succeeds. Counts are compared with binomial tails; over all boxes, aims, rules and dimensions of this file a
correct search is rejected with probability below 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import binom, uniform

from dphypo.band import KL, L2, Band, Greedy
from dphypo.entropy import Entropy, Seeded, below
from dphypo.space import Space

BAND = Band(0.5, 4)
CANDIDATES = 16
LEVELS = (1, 2, 3, 4, 5)  # boxes of prior mass 2⁻¹ … 2⁻⁵; there is one candidate in a box of the fourth
AIM = 4
TRIALS = 1500
DIMENSIONS = (1, 2, 6)
TRIED = [2, *(pytest.param(one, marks=pytest.mark.slow) for one in DIMENSIONS if one != 2)]
PROJECTIONS = (L2(), KL(), Greedy())
FALSE_ALARM = 1e-6 / (2 * len(LEVELS) * 2 * len(DIMENSIONS) * len(PROJECTIONS))

Sets = Callable[[Space, Entropy], tuple[np.ndarray, np.ndarray]]
Draw = Callable[[np.ndarray, Entropy], int]


def fresh(space: Space, entropy: Entropy) -> tuple[np.ndarray, np.ndarray]:
    """A scramble for each run: what the library does."""
    return space.candidates(CANDIDATES, entropy).unit, space.candidates(CANDIDATES, entropy).unit


def continued(space: Space, entropy: Entropy) -> tuple[np.ndarray, np.ndarray]:
    """One Sobol sequence, continued from the first run to the second."""
    both = space.candidates(2 * CANDIDATES, entropy).unit
    return both[:CANDIDATES], both[CANDIDATES:]


def projected(projection) -> Draw:
    return lambda weights, entropy: BAND.draw(BAND.project(weights, projection=projection), entropy)


def clipped(weights: np.ndarray, entropy: Entropy) -> int:
    """Weights clipped to the band and then divided by their sum, which takes them out of it."""
    masses = np.clip(weights / weights.sum(), BAND.c / CANDIDATES, BAND.C / CANDIDATES)
    return int(
        np.random.default_rng(int.from_bytes(entropy.bytes(8), "big")).choice(CANDIDATES, p=masses / masses.sum())
    )


def same_box(points: np.ndarray, point: np.ndarray, level: int) -> np.ndarray:
    """Which points share the dyadic interval of length 2^−level of the first coordinate with a point."""
    return np.floor(points[:, 0] * 2**level) == np.floor(point[0] * 2**level)


def outside(dimension: int, sets: Sets, draws: Sequence[Draw]) -> list[tuple[bool, int]]:
    """The aims and levels at which the number of hits could not have come from a density in the band."""
    space = Space({f"x{index}": uniform() for index in range(dimension)})
    hits = np.zeros((len(draws), 2, len(LEVELS)))
    for trial in range(TRIALS):
        entropy = Seeded(trial).child(f"{dimension}")
        first, second = sets(space, entropy)
        one = first[below(CANDIDATES, entropy)]
        at = same_box(second, one, AIM)
        for towards in (False, True):
            weights = np.where(at == towards, 1.0, 1e-12)
            for place, draw in enumerate(draws):
                two = second[[draw(weights, entropy)]]
                hits[place, int(towards)] += [same_box(two, one, level)[0] for level in LEVELS]
    masses = 2.0 ** -np.array(LEVELS)
    least, most = BAND.c * masses, np.minimum(BAND.C * masses, 1 - BAND.c * (1 - masses))
    few = binom.cdf(hits, TRIALS, least) < FALSE_ALARM
    many = binom.sf(hits - 1, TRIALS, most) < FALSE_ALARM
    return [(bool(towards), LEVELS[level]) for _, towards, level in np.argwhere(few | many)]


@pytest.mark.slow
@pytest.mark.parametrize("dimension", TRIED)
def test_the_density_given_the_history_is_in_the_band(dimension):
    assert outside(dimension, fresh, [projected(projection) for projection in PROJECTIONS]) == []


@pytest.mark.parametrize("dimension", TRIED)
def test_weights_clipped_but_not_normalised_are_caught(dimension):
    assert (True, AIM) in outside(dimension, fresh, [clipped])


@pytest.mark.parametrize("dimension", TRIED)
def test_one_sequence_continued_across_runs_is_caught(dimension):
    assert (False, 5) in outside(dimension, continued, [projected(Greedy())])
