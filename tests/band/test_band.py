"""The band: what it accepts, and that every input to a projection has a defined answer."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from support.band_reference import BANDS, PROJECTIONS, assert_in_band, priors, zoo
from support.slow import mostly_slow

import dphypo
from dphypo.band import L2, Band, Greedy, Problem


def test_band_is_a_value():
    band = Band(0.75, 2)
    assert (band.c, band.C) == (0.75, 2.0)
    assert band == dphypo.Band(0.75, 2.0)
    assert band.log_ratio == pytest.approx(math.log(2 / 0.75), rel=1e-15)
    assert band.p == 0.25 / 1.25
    assert (Band(1, 1).log_ratio, Band(1, 1).p) == (0.0, 0.5)
    assert Band(1e-300, 1e300).log_ratio == pytest.approx(600 * math.log(10))


def test_rules_are_values_of_the_package():
    assert dphypo.band.L2() == L2()
    assert dphypo.band.Mixed(1) == dphypo.band.Mixed(1.0)
    assert dphypo.band.Greedy() == Greedy()
    assert dphypo.band.KL() == dphypo.band.KL()


@pytest.mark.parametrize(
    ("c", "C", "message"),
    [
        (0.5, 1, "(c, C) = (0.5, 1.0) is not valid: this band contains only the prior"),
        (1, 2, "(c, C) = (1.0, 2.0) is not valid: this band contains only the prior"),
        (1.5, 2, "c = 1.5 is not valid: it must be at most 1"),
        (0.5, 0.9, "C = 0.9 is not valid: it must be at least 1"),
        (0, 2, "c = 0 is not valid"),
        (-1, 2, "c = -1 is not valid"),
        (0.5, math.inf, "C = inf is not valid"),
        (math.nan, 2, "c = nan is not valid"),
        ("a", 2, "c = 'a' is not valid"),
    ],
)
def test_a_band_that_is_none_says_why(c, C, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Band(c, C)


@pytest.mark.parametrize("projection", mostly_slow(PROJECTIONS, 2), ids=repr)
@pytest.mark.parametrize("size", mostly_slow([30, 2, 1]))
def test_every_weight_and_prior_gives_masses_in_the_band(projection, size):
    for c, C in [*BANDS, (1e-300, 1e300), (0.9, 1e12), (1 - 1e-13, 1 + 1e-13), (1, 1)]:
        for prior in priors(size).values():
            for weights in zoo(size).values():
                masses = Band(c, C).project(weights, prior, projection)
                assert_in_band(masses, c, C, prior)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_one_candidate_has_all_the_mass(projection):
    assert Band(0.5, 2).project([3.0], projection=projection) == pytest.approx([1.0], abs=1e-15)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_a_band_without_room_gives_the_prior_itself(projection):
    prior = np.random.default_rng(0).dirichlet(np.ones(9))
    for band in (Band(1, 1), Band(1 - 2.0**-53, 1 + 2.0**-52)):
        np.testing.assert_array_equal(band.project(np.arange(9.0), prior, projection), prior)
        np.testing.assert_array_equal(band.project(np.arange(9.0), projection=projection), np.full(9, 1 / 9))


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_scale_and_type_of_the_weights_do_not_matter(projection):
    band = Band(0.5, 2)
    expected = band.project([1, 2, 3, 10], projection=projection)
    for weights in (
        np.array([1, 2, 3, 10], dtype=np.float32),
        np.array([1, 2, 3, 10]) * 2.0**1000,
        np.array([1, 2, 3, 10]) * 5e-324,
        np.array([1, 0, 2, 0, 3, 0, 10, 0])[::2],
    ):
        np.testing.assert_allclose(band.project(weights, projection=projection), expected, rtol=1e-12)


def test_the_arguments_are_left_as_they_were():
    rng = np.random.default_rng(1)
    arrays = [rng.random(20), rng.dirichlet(np.ones(20))]
    copies = [array.copy() for array in arrays]
    for band in (Band(0.5, 2), Band(1, 1)):
        for projection in PROJECTIONS:
            masses = band.project(arrays[0], arrays[1], projection)
            masses[:] = 0.0
            for array, copy in zip(arrays, copies, strict=True):
                np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, math.nan], "not all finite"),
        ([1.0, math.inf], "not all finite"),
        ([1.0, -math.inf], "not all finite"),
        ([1.0, -1e-300], "not all finite and non-negative"),
        ([0.0, 0.0], "all weights are 0"),
        ([], "shape (0,)"),
        ([[1.0, 2.0]], "shape (1, 2)"),
        (1.0, "shape ()"),
        (["a", "b"], "not numbers"),
        ([10**400], "not numbers"),
        (None, "weights"),
    ],
)
def test_weights_that_are_none_say_why_and_show_no_value(weights, message):
    for band in (Band(0.5, 2), Band(1, 1)):
        with pytest.raises(ValueError, match=re.escape(message)) as error:
            band.project(weights)
        assert "weights" in str(error.value)
        assert "300" not in str(error.value)


def test_a_sampler_that_names_nothing_can_be_told_apart():
    with pytest.raises(ValueError, match="all weights are 0"):
        Band(0.5, 2).project([0.0, -0.0])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.25, 0.25], "prior has length 3: give 2 numbers"),
        ([[0.5, 0.5]], "prior has shape (1, 2)"),
        ([0.5, math.nan], "prior[1] = nan is not finite"),
        ([1.0, 0.0], "prior[1] = 0.0: all must be greater than 0"),
        ([1.5, -0.5], "prior[1] = -0.5"),
        ([0.5, 0.5 + 1e-11], "prior masses sum to"),
        ([1.7e308, 1.7e308], "prior masses sum to inf"),
        ([1.0], "prior has length 1: give 2 numbers"),
        ([1.0, math.inf], "prior[1] = inf is not finite"),
    ],
)
def test_a_prior_that_is_none_says_why(values, message):
    for band in (Band(0.5, 2), Band(1, 1)):
        with pytest.raises(ValueError, match=re.escape(message)):
            band.project([1.0, 2.0], prior=values)


def test_cells_of_tiny_prior_mass_keep_it():
    prior = np.array([1.0, 5e-324, 1e-310, 1e-100])
    masses = Band(0.5, 2).project([1.0, 1.0, 0.0, 1.0], prior)
    np.testing.assert_array_equal(masses, prior)
    assert_in_band(masses, 0.5, 2, prior)


class Careless:
    """A projection that pays no attention to the limits."""

    def __init__(self, ratios):
        self.made = ratios

    def ratios(self, problem: Problem):
        return self.made

    def __repr__(self):
        return "Careless()"


@pytest.mark.parametrize(
    "ratios",
    [
        [2.0, 0.5, 0.5],
        [1.9, 0.55, 0.56],
        [2.4, 0.3, 0.3],
        [1.0, 1.0, math.nan],
        [[1.0, 1.0, 1.0]],
        [1.0],
    ],
)
def test_a_rule_cannot_break_the_band(ratios):
    with pytest.raises(RuntimeError, match="Careless\\(\\) is faulty: its result left the band"):
        Band(0.5, 2).project([1, 2, 3], projection=Careless(np.array(ratios)))
    assert Band(0.5, 2).project([1, 2, 3], projection=Careless(np.ones(3))) == pytest.approx([1 / 3] * 3)


@pytest.mark.slow
def test_ten_million_candidates():
    size = 10**7
    weights = np.random.default_rng(0).random(size)
    band = Band(0.75, 1.25)
    masses = band.project(weights)
    assert abs(float(masses.sum()) - 1) < 1e-13
    assert 0.75 / size <= masses.min()
    assert masses.max() <= 1.25 / size
    best = band.project(weights, projection=Greedy())
    assert np.sum(best > 1 / size) == pytest.approx(size / 2, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_ten_million_candidates_with_a_prior(projection):
    size = 10**7
    rng = np.random.default_rng(0)
    weights, prior = np.exp(rng.normal(size=size)), rng.random(size) + 0.01
    prior /= prior.sum()
    masses = Band(0.5, 2).project(weights, prior, projection)
    assert abs(float(masses.sum()) - 1) < 1e-13
    assert np.all((0.5 * prior <= masses) & (masses <= 2 * prior))
