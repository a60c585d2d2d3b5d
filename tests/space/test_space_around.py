"""A prior shaped around a point: every candidate and every draw is from the mixture, exactly; grids have its masses.

Each statistical test has a false-alarm rate of 1e-6 and draws from a seeded source.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as st

from dphypo.band import Band, Greedy
from dphypo.entropy import Seeded
from dphypo.space import Space

ALARM = 1e-6
SETS = 4000
BASE = Space(
    {
        "lr": st.loguniform(1e-4, 10),
        "clip": st.norm(2, 3),
        "batch": ([64, 256, 128], [0.2, 0.3, 0.5]),
        "act": (["relu", "tanh", None], [0.5, 0.3, 0.2]),
        "free": st.uniform(),
    }
).when("act", ["tanh", "relu"], {"slope": st.uniform(0, 4)})
POINT = {"lr": 0.01, "clip": 7.0, "batch": 128, "act": "tanh", "free": 0.2, "slope": 1.0}
SPREAD = {"lr": 0.05, "clip": 0.2, "batch": 0.3, "act": 0.25, "slope": 0.1}
SPACE = BASE.around(POINT, spread=SPREAD, floor=0.2)
CENTRE = BASE.to_unit([POINT])[0]


def truncated(name):
    centre, spread = CENTRE[BASE.names.index(name)], SPREAD[name]
    return st.truncnorm(-centre / spread, (1 - centre) / spread, centre, spread)


def mixture_cdf(name):
    """The marginal of a number, from scipy's own truncated normal."""
    return lambda unit: 0.2 * unit + 0.8 * truncated(name).cdf(unit)


def fixed_point(index, n=8):
    """One fixed point of many independent candidate sets."""
    entropy = Seeded(index).child("around")
    return np.array([SPACE.candidates(n, entropy).unit[index] for _ in range(SETS)])


@pytest.fixture(scope="module", params=[5, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, "sample"))])
def unit(request):
    if request.param != "sample":
        return fixed_point(request.param)
    entropy = Seeded(11)
    rows = [SPACE.sample(entropy) for _ in range(SETS)]
    # Parameters that are inactive rest in the middle; their coordinates are not looked at below.
    return BASE.to_unit(rows)


@pytest.mark.parametrize("name", ["lr", "clip"])
def test_numbers_are_from_the_mixture(unit, name):
    column = unit[:, BASE.names.index(name)]
    assert st.kstest(column, mixture_cdf(name)).pvalue > ALARM


def test_levels_and_categories_have_the_masses_of_the_mixture(unit):
    rows = BASE.from_unit(unit)
    low, high = np.array([0.0, 0.2, 0.7]), np.array([0.2, 0.7, 1.0])  # 64, 128, 256
    levels = 0.2 * (high - low) + 0.8 * (truncated("batch").cdf(high) - truncated("batch").cdf(low))
    found = [sum(row["batch"] == level for row in rows) for level in (64, 128, 256)]
    assert st.chisquare(found, SETS * levels).pvalue > ALARM
    categories = 0.2 * np.array([0.5, 0.3, 0.2]) + 0.8 * np.array([0.25 * 5 / 7, 0.75, 0.25 * 2 / 7])
    found = [sum(row["act"] == value for row in rows) for value in ("relu", "tanh", None)]
    assert st.chisquare(found, SETS * categories).pvalue > ALARM


def test_a_parameter_without_spread_keeps_its_prior(unit):
    assert st.kstest(unit[:, BASE.names.index("free")], "uniform").pvalue > ALARM


def test_the_parts_of_the_mixture_do_not_mix_coordinate_by_coordinate(unit):
    """Far from the point in one coordinate, the draw is from the prior in all of them."""
    far = np.abs(unit[:, 0] - CENTRE[0]) > 8 * SPREAD["lr"]
    assert far.sum() > 100
    assert st.kstest(unit[far, BASE.names.index("clip")], "uniform").pvalue > ALARM
    expected = 0.2 * (1 - 16 * SPREAD["lr"] if CENTRE[0] > 8 * SPREAD["lr"] else 1 - CENTRE[0] - 8 * SPREAD["lr"])
    assert st.binomtest(int(far.sum()), SETS, expected).pvalue > ALARM


def test_a_mutant_that_mixes_each_coordinate_by_itself_is_caught():
    rng = np.random.default_rng(0)
    lr = np.where(rng.random(SETS) < 0.2, rng.random(SETS), truncated("lr").rvs(SETS, random_state=rng))
    clip = np.where(rng.random(SETS) < 0.2, rng.random(SETS), truncated("clip").rvs(SETS, random_state=rng))
    assert st.kstest(clip, mixture_cdf("clip")).pvalue > ALARM, "each marginal is right"
    far = np.abs(lr - CENTRE[0]) > 8 * SPREAD["lr"]
    assert st.kstest(clip[far], "uniform").pvalue < ALARM


@pytest.mark.slow
def test_a_grid_has_the_masses_of_the_mixture_and_draws_within_cells():
    """Masses against many draws, and the law within the cells against the law without cells."""
    cells = {"lr": 8, "clip": 3, "free": 1, "slope": 2}
    grid, plain = SPACE.grid(**cells), BASE.grid(**cells)
    assert np.array_equal(grid.unit, plain.unit)
    assert grid.masses.sum() == pytest.approx(1, abs=1e-12)
    assert (grid.masses >= 0.2 * plain.masses * (1 - 1e-9)).all()
    lr = np.floor(grid.unit[:, 0] * 8).astype(int)
    edges = mixture_cdf("lr")(np.arange(9) / 8)
    np.testing.assert_allclose(np.bincount(lr, grid.masses), np.diff(edges), atol=1e-12)
    entropy, rng = Seeded(3), np.random.default_rng(3)
    drawn = [grid.draw_within(int(i), entropy) for i in rng.choice(len(grid), SETS, p=grid.masses)]
    unit = BASE.to_unit(drawn)
    assert st.kstest(unit[:, 0], mixture_cdf("lr")).pvalue > ALARM
    assert st.kstest(unit[:, 1], mixture_cdf("clip")).pvalue > ALARM
    for index in range(0, len(grid), 7):
        low, high = grid.unit[index] - grid.spread / 2, grid.unit[index] + grid.spread / 2
        point = BASE.to_unit([grid.draw_within(index, entropy)])[0]
        inside = (point >= low - 1e-9) & (point <= high + 1e-9)
        assert inside.all()


def test_inactive_parameters_keep_their_prior():
    inactive = {name: value for name, value in POINT.items() if name != "slope"} | {"act": None}
    shaped = BASE.around(inactive, spread=0.01, floor=0.01)
    entropy = Seeded(8)
    unit = np.concatenate([shaped.candidates(8, entropy).unit[:1] for _ in range(1000)])
    assert st.kstest(unit[:, BASE.names.index("slope")], "uniform").pvalue > ALARM


def outside(band, shares):
    """Whether shares of tenths of a prior's mass show a density outside the band."""
    counts = np.bincount(np.minimum((shares * 10).astype(int), 9), minlength=10)
    above, below = st.binom.sf(counts - 1, len(shares), band.C / 10), st.binom.cdf(counts, len(shares), band.c / 10)
    return min(above.min(), below.min()) < ALARM / 20


@pytest.mark.slow
def test_the_band_is_relative_to_the_shaped_prior():
    """Fresh sets of two candidates, the larger one taken as often as the band allows."""
    band, entropy, drawn = Band(0.5, 1.5), Seeded(4), []
    for _ in range(SETS):
        candidates = SPACE.candidates(2, entropy)
        masses = band.project(candidates.unit[:, 0], candidates.masses, Greedy())
        drawn.append(candidates.unit[band.draw(masses, entropy, candidates.masses), 0])
    unit = np.array(drawn)
    shares = mixture_cdf("lr")(unit)
    assert st.kstest(shares, "uniform").pvalue < ALARM, "the rule has an effect"
    assert not outside(band, shares)
    assert outside(band, unit), "against the original prior the density is far outside the band"


def test_the_description_tells_shaped_spaces_apart():
    assert SPACE != BASE
    assert BASE.around(POINT, spread=SPREAD, floor=0.2) == SPACE
    assert BASE.around(POINT, spread=SPREAD, floor=0.3) != SPACE
    assert SPACE.to_dict()["around"]["params"]["batch"] == 128
    assert ".around({" in repr(SPACE)
    assert SPACE.names == BASE.names


def test_the_floor_of_one_is_the_prior():
    same = BASE.around(POINT, floor=1.0)
    np.testing.assert_allclose(
        same.grid(lr=2, clip=2, free=1, slope=1).masses, BASE.grid(lr=2, clip=2, free=1, slope=1).masses, atol=1e-15
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"floor": 0.0}, "floor"),
        ({"spread": 0.0}, "spread"),
        ({"spread": 2.0}, "spread"),
        ({"spread": {"lrr": 0.1}}, "none of the parameters"),
        ({"spread": {"act": 1.0}}, "the share of the other categories"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BASE.around(POINT, **arguments)


def test_a_point_outside_the_space_is_refused_and_a_shaped_space_is_not_shaped_again():
    with pytest.raises(ValueError, match="lr"):
        BASE.around({**POINT, "lr": 1e9})
    with pytest.raises(ValueError, match="call it first"):
        SPACE.around(POINT)
    with pytest.raises(ValueError, match="call it first"):
        SPACE.when("act", "relu", {"x": [1]})
