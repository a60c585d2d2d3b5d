"""Grids: all cells, their masses, and draws within them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats as st

from dphypo.entropy import Seeded
from dphypo.space import Space


def test_a_finite_space_is_the_product_of_its_values_in_the_order_given():
    space = Space({"layers": st.randint(1, 4), "batch": [128, 64], "act": (["relu", None], [0.125, 0.875])})
    grid = space.grid()
    values = itertools.product([1, 2, 3], [128, 64], ["relu", None])
    assert [grid.params(i) for i in range(len(grid))] == [dict(zip(space.names, row, strict=True)) for row in values]
    assert grid.masses == pytest.approx([p / 6 for _ in range(6) for p in (0.125, 0.875)], rel=1e-15)
    assert np.array_equal(grid.features, space.features(space.to_unit([grid.params(i) for i in range(len(grid))])))
    assert grid.draw_within(3, Seeded(0)) == grid.params(3)
    assert repr(grid) == "Grid(12 points of 3 parameters)"


def test_masses_of_a_discrete_prior():
    grid = Space({"k": st.poisson(3)}).grid()
    values = [grid.params(i)["k"] for i in range(len(grid))]
    assert values == list(range(len(grid)))
    assert grid.masses == pytest.approx(st.poisson(3).pmf(values), rel=1e-8)
    assert math.fsum(grid.masses) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("shape", [(3, 5), (16, 20), (100, 7)])
def test_cells_of_a_continuous_space_have_equal_prior_mass(shape):
    prior = st.loguniform(1e-4, 10)
    space = Space({"lr": prior, "clip": st.norm(), "act": (["relu", "tanh", "gelu"], [0.5, 0.3, 0.2])})
    grid = space.grid(lr=shape[0], clip=shape[1])
    assert len(grid) == shape[0] * shape[1] * 3
    assert math.fsum(grid.masses) == pytest.approx(1, abs=1e-14)
    assert grid.masses[:3] == pytest.approx(np.array([0.5, 0.3, 0.2]) / (shape[0] * shape[1]), rel=1e-15)
    last = grid.params(len(grid) - 1)
    assert prior.cdf(last["lr"]) == pytest.approx(1 - 0.5 / shape[0], abs=1e-9)
    assert last["act"] == "gelu"


def test_a_draw_within_a_cell_is_from_the_prior_there():
    space = Space({"act": ["relu", "tanh"], "clip": st.expon()})
    grid = space.grid(clip=5)
    entropy = Seeded(4)
    drawn = [grid.draw_within(8, entropy) for _ in range(3000)]  # tanh, the fourth fifth
    assert {row["act"] for row in drawn} == {"tanh"}
    within = st.expon().cdf([row["clip"] for row in drawn])
    assert st.kstest(within, st.uniform(0.6, 0.2).cdf).pvalue > 1e-6
    assert st.kstest(within, st.uniform(0.6, 0.19).cdf).pvalue < 1e-6  # a cell that is 5 % too short is caught


def test_drawing_a_cell_by_its_mass_and_within_it_gives_the_prior():
    grid = Space({"clip": st.norm()}).grid(clip=3)
    entropy = Seeded(5)
    drawn = [grid.draw_within(i % 3, entropy)["clip"] for i in range(3000)]
    assert st.kstest(drawn, "norm").pvalue > 1e-6


def test_long_lists_of_numbers_can_be_cut_too():
    space = Space({"steps": st.randint(0, 1000), "k": st.geom(1e-7)})
    grid = space.grid(steps=10, k=4)
    assert len(grid) == 40
    assert all(300 <= grid.draw_within(12, Seeded(seed))["steps"] < 400 for seed in range(50))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({}, r"'lr', 'clip' cannot be listed: .*space.grid\(lr=16, clip=16\)"),
        ({"lr": 4}, r"'clip' cannot be listed: .*space.grid\(clip=16\)"),
        ({"lr": 4, "clip": 4, "momentum": 3}, "the parameters are act, batch, clip, lr"),
        ({"lr": 0, "clip": 4}, "the number of cells of 'lr' = 0 .*1 or greater"),
        ({"lr": 2.5, "clip": 4}, "the number of cells of 'lr' = 2.5"),
        ({"lr": 4, "clip": 4, "act": 2}, "categories are not cut"),
        ({"lr": 4, "clip": 4, "batch": 3}, "only 3 values"),
        ({"lr": 1000, "clip": 1000}, "more than 1,000,000 cells: cut 'act' into fewer, or search by space.candidates"),
    ],
)
def test_grids_that_make_no_sense_are_refused(cells, message):
    space = Space(
        {"lr": st.loguniform(1e-4, 10), "clip": st.uniform(), "act": ["relu", "tanh"], "batch": [64, 128, 256]}
    )
    with pytest.raises(ValueError, match=message):
        space.grid(**cells)
