"""Candidates and samples are from the prior: every single point, and afresh for every set.

Each statistical test has a false-alarm rate of 1e-6 and draws from a seeded source.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st
from scipy.stats import qmc

from dphypo.entropy import Seeded
from dphypo.space import Space
from dphypo.space import space as sobol

ALARM = 1e-6
SETS = 4000

CONTINUOUS = {
    "uniform": st.uniform(0.3, 5.7),
    "loguniform": st.loguniform(1e-4, 10),
    "norm": st.norm(2, 3),
    "expon": st.expon(scale=0.1),
    "beta": st.beta(0.5, 4),
    "histogram": st.rv_histogram(np.histogram([1, 1, 2, 5.0], bins=4), density=False)(),
    "long geom": st.geom(1e-6),
}
DISCRETE = {
    "randint": (st.randint(1, 5), dict.fromkeys(range(1, 5), 1 / 4)),
    "poisson": (st.poisson(3), {k: st.poisson(3).pmf(k) for k in range(40)}),
    "ordinal": ([256, 64, 128], {64: 1 / 3, 128: 1 / 3, 256: 1 / 3}),
    "categories": (["sgd", "adam"], {"sgd": 1 / 2, "adam": 1 / 2}),
    "informed": ((["a", "b", None], [0.7, 0.28, 0.02]), {"a": 0.7, "b": 0.28, None: 0.02}),
}
SPACE = Space(CONTINUOUS | {name: given for name, (given, _) in DISCRETE.items()})
SQUARE = Space({"a": st.uniform(), "b": st.uniform()})


def uniform_p(samples, bins):
    """Chi-square p-value of points in the cube against the uniform law, with ``bins`` cells along each axis."""
    samples = np.reshape(samples, (len(samples), -1))
    cells = np.floor(samples * bins).astype(int) @ (bins ** np.arange(samples.shape[1]))
    return st.chisquare(np.bincount(cells, minlength=bins ** samples.shape[1])).pvalue


def fixed_point(index, n=8, space=SPACE):
    """One fixed point of many independent sets."""
    entropy = Seeded(index).child(f"{n}")
    return np.array([space.candidates(n, entropy).unit[index] for _ in range(SETS)])


@pytest.fixture(scope="module", params=[5, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, "sample"))])
def drawn(request):
    if request.param == "sample":
        entropy = Seeded(11)
        return [SPACE.sample(entropy) for _ in range(SETS)]
    return SPACE.from_unit(fixed_point(request.param))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_point_of_a_fresh_set_follows_a_continuous_prior(name, drawn):
    unit = CONTINUOUS[name].cdf([row[name] for row in drawn])
    assert st.kstest(unit, "uniform").pvalue > ALARM
    assert st.kstest(unit**1.2, "uniform").pvalue < ALARM  # a sampler that favours small values by so much is caught


@pytest.mark.parametrize("name", DISCRETE)
def test_a_point_of_a_fresh_set_follows_a_discrete_prior(name, drawn):
    _, masses = DISCRETE[name]
    values = [row[name] for row in drawn]

    def p_value(masses):
        common = {value: mass for value, mass in masses.items() if mass * SETS >= 5}
        counts = [values.count(value) for value in common]
        rest = 1 - sum(common.values())
        tail = ([SETS - sum(counts)], [rest * SETS]) if rest > 1e-9 else ([], [])
        return st.chisquare(counts + tail[0], [mass * SETS for mass in common.values()] + tail[1]).pvalue

    assert set(values) <= set(masses)
    assert p_value(masses) > ALARM
    most = max(masses, key=masses.__getitem__)
    mutant = {value: mass * (0.7 if value == most else 1) for value, mass in masses.items()}
    assert p_value({value: mass / sum(mutant.values()) for value, mass in mutant.items()}) < ALARM


@pytest.mark.parametrize(("n", "index"), [(1, 0), (3, 2), (8, 0), (8, 7), (100, 99)])
def test_every_single_point_is_uniform_on_the_cube(n, index):
    points = fixed_point(index, n, Space({"a": st.uniform(), "b": st.uniform(), "c": st.uniform()}))
    assert uniform_p(points, 4) > ALARM  # jointly
    for column in points.T:
        assert st.kstest(column, "uniform").pvalue > ALARM
        k = ((column * 2.0**53 - 1) / 2).astype(np.uint64)
        assert np.array_equal((2 * k + 1) * 2.0**-53, column)
        assert uniform_p((k % np.uint64(32)) / 32, 32) > ALARM  # down to the last bits
        assert uniform_p((k % np.uint64(2**24)) / 2**24, 32) > ALARM


class Repeating:
    """The mutant: a source that gives every set the same scramble."""

    private = False

    def __init__(self, seed):
        self.seed = seed

    def bytes(self, count):
        return Seeded(self.seed).bytes(count)

    def child(self, label):
        return self


def scrambled_afresh(seed):
    entropy = Seeded(seed)
    return [SQUARE.candidates(8, entropy).unit for _ in range(2)]


def scramble_reused(seed):
    return [SQUARE.candidates(8, Repeating(seed)).unit for _ in range(2)]


def sequence_continued(seed):
    both = SQUARE.candidates(16, Seeded(seed)).unit
    return [both[:8], both[8:]]


def independence_p(two_sets):
    """The smallest p-value, over pairs of a point of one set and a point of the next, that they are independent."""
    sets = np.array([two_sets(seed) for seed in range(2000)])
    pairs = [(0, 0), (0, 1), (3, 3), (7, 0), (6, 2)]
    return min(uniform_p(np.column_stack([sets[:, 0, i, 0], sets[:, 1, j, 0]]), 6) for i, j in pairs)


def test_a_set_is_independent_of_the_one_before():
    assert independence_p(scrambled_afresh) > ALARM / 5


@pytest.mark.parametrize("mutant", [scramble_reused, sequence_continued])
def test_a_scramble_used_twice_is_caught(mutant):
    assert independence_p(mutant) < ALARM / 5


def test_the_points_of_one_set_are_spread_evenly():
    points = sobol.candidate_points(256, 6, Seeded(2))
    for column in points.T:
        assert np.array_equal(np.sort(np.floor(column * 256)), np.arange(256))  # one in each 256th
    for split in range(9):  # the first two coordinates are a (0, 8, 2)-net: one in each elementary rectangle
        cells = np.floor(points[:, 0] * 2**split) * 2 ** (8 - split) + np.floor(points[:, 1] * 2 ** (8 - split))
        assert len(np.unique(cells)) == 256
    assert qmc.discrepancy(points) < 0.1 * qmc.discrepancy(np.random.default_rng(0).random((256, 6)))


class Zeros:
    """No scramble at all: the identity matrix and no shift."""

    private = False

    def bytes(self, count):
        return bytes(count)


@pytest.mark.parametrize(("n", "dimension"), [(1, 3), (2, 1), (64, 40), (1024, 6)])
def test_without_a_scramble_the_points_are_scipys(n, dimension):
    ours = sobol.candidate_points(n, dimension, Zeros()) - 2.0**-53
    scipys = qmc.Sobol(dimension, scramble=False).random(n)
    assert {tuple(row) for row in ours} == {tuple(row) for row in scipys}


def test_a_thousand_parameters():
    space = Space({f"x{i}": st.uniform() for i in range(1000)})
    assert space.candidates(3, Seeded(0)).unit.shape == (3, 1000)
