"""Parameters that exist only while another has certain values."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

from dphypo.entropy import Seeded
from dphypo.space import Space


def encoded(space: Space, params: list[dict[str, Any]]) -> Any:
    return space.features(space.to_unit(params))


SPACE = (
    Space({"optimizer": (["sgd", "adam", "lion"], [0.5, 0.25, 0.25]), "lr": st.loguniform(1e-4, 1)})
    .when("optimizer", "sgd", {"momentum": st.uniform(0, 0.99), "nesterov": [True, False]})
    .when("optimizer", ["adam", "lion"], {"beta2": [0.9, 0.99, 0.999]})
    .when("nesterov", True, {"lookahead": st.randint(1, 4)})
)


def active(params):
    names = {"optimizer", "lr"}
    names |= {"momentum", "nesterov"} if params["optimizer"] == "sgd" else {"beta2"}
    return names | ({"lookahead"} if params.get("nesterov") else set())


def test_only_active_parameters_are_given():
    candidates = SPACE.candidates(256, Seeded(0))
    assert candidates.unit.shape == (256, 6)
    rows = [candidates.params(i) for i in range(256)]
    assert all(set(row) == active(row) for row in rows)
    assert {frozenset(row) for row in rows} == {frozenset(active(row)) for row in rows}
    assert len({frozenset(row) for row in rows}) == 3
    assert SPACE.from_unit(candidates.unit) == rows
    assert SPACE.from_unit(SPACE.to_unit(rows)) == rows
    assert np.array_equal(encoded(SPACE, rows), candidates.features)
    assert SPACE.names == ("optimizer", "lr", "momentum", "nesterov", "beta2", "lookahead")


def test_inactive_parameters_rest_at_a_constant():
    (adam, sgd) = encoded(
        SPACE,
        [
            {"optimizer": "adam", "lr": 0.1, "beta2": 0.99},
            {"optimizer": "sgd", "lr": 0.1, "momentum": 0.5, "nesterov": False},
        ],
    )
    assert adam[4:] == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.5])  # momentum, nesterov (2), beta2, lookahead
    assert sgd[5:] == pytest.approx([0, 1, 0.5, 0.5])
    other = SPACE.to_unit([{"optimizer": "adam", "lr": 0.1, "beta2": 0.99}])
    assert other[0, [2, 3, 5]].tolist() == [0.5, 0.5, 0.5]


def test_each_branch_has_its_prior():
    rows = SPACE.from_unit(np.vstack([SPACE.candidates(4, Seeded(seed)).unit[3] for seed in range(4000)]))
    momenta = [row["momentum"] for row in rows if "momentum" in row]
    assert st.binomtest(len(momenta), 4000, 0.5).pvalue > 1e-6
    assert st.kstest(momenta, st.uniform(0, 0.99).cdf).pvalue > 1e-6
    lookahead = [row["lookahead"] for row in rows if "lookahead" in row]
    assert st.binomtest(len(lookahead), 4000, 0.25).pvalue > 1e-6
    assert st.chisquare([lookahead.count(k) for k in (1, 2, 3)]).pvalue > 1e-6


def test_the_grid_has_each_combination_once_with_its_mass():
    grid = SPACE.grid(lr=2, momentum=4)
    rows = [grid.params(i) for i in range(len(grid))]
    assert len(grid) == 2 * (4 * (3 + 1) + 3 + 3)  # sgd: momentum × (nesterov with lookahead, without); the others
    assert len({json.dumps(row) for row in rows}) == len(rows)
    assert math.fsum(grid.masses) == pytest.approx(1, abs=1e-15)
    for row, mass in zip(rows, grid.masses, strict=True):
        assert set(row) == active(row)
        if row["optimizer"] != "sgd":
            assert mass == pytest.approx(0.25 / 2 / 3)
        else:
            assert mass == pytest.approx(0.5 / 2 / 4 / 2 / (3 if row["nesterov"] else 1))
    drawn = grid.draw_within(0, Seeded(0))
    assert drawn["optimizer"] == "sgd"
    assert drawn["momentum"] < 0.99 / 4
    assert np.array_equal(encoded(SPACE, rows), grid.features)


def test_numbers_can_be_parents():
    space = Space({"layers": st.randint(1, 4)}).when("layers", [2, 3], {"width": [8, 16]})
    assert [row for row in (space.grid().params(i) for i in range(5)) if "width" not in row] == [{"layers": 1}]
    space = space.when("layers", [np.int64(3)], {"skip": [True, False]})
    assert len(space.grid()) == 1 + 2 + 4
    with pytest.raises(ValueError, match="other parameters depend on its value"):
        space.grid(layers=2)


def test_description_and_representation():
    small = Space({"opt": ["sgd", "adam"]}).when("opt", "sgd", {"momentum": st.uniform(), "nesterov": [True]})
    assert repr(small) == (
        "Space({'opt': ['sgd', 'adam']}).when('opt', ['sgd'], {'momentum': uniform(), 'nesterov': [True]})"
    )
    assert small.to_dict()["parameters"][1] == {
        "name": "momentum",
        "distribution": "uniform",
        "arguments": {},
        "when": {"parent": "opt", "values": ["sgd"]},
    }
    assert small != Space({"opt": ["sgd", "adam"], "momentum": st.uniform(), "nesterov": [True]})
    assert pickle.loads(pickle.dumps(SPACE)) == SPACE


@pytest.mark.parametrize(
    ("parent", "values", "parameters", "message"),
    [
        ("optimiser", "sgd", {"a": [1]}, "parent = 'optimiser' .* one of optimizer, lr"),
        ("lr", 0.1, {"a": [1]}, "parent = 'lr' .* list of values"),
        ("optimizer", "rmsprop", {"a": [1]}, "parameter 'optimizer' = 'rmsprop' .* one of 'sgd'"),
        ("optimizer", [], {"a": [1]}, "at least one value of 'optimizer'"),
        ("optimizer", "sgd", {}, "give a dict"),
        ("optimizer", "sgd", {"lr": [1]}, "'lr' is already a parameter: .* optimizer_lr"),
        ("optimizer", "sgd", {"a": []}, "parameter 'a'"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(parent, values, parameters, message):
    with pytest.raises(ValueError, match=message):
        SPACE.when(parent, values, parameters)


def test_rows_that_do_not_fit_the_conditions_are_refused():
    adam = {"optimizer": "adam", "lr": 0.1, "beta2": 0.9}
    with pytest.raises(ValueError, match="has 'momentum', which has no meaning when optimizer = 'adam'"):
        SPACE.to_unit([adam | {"momentum": 0.5}])
    with pytest.raises(ValueError, match="has 'lookahead', which has no meaning when nesterov is inactive"):
        SPACE.to_unit([adam | {"lookahead": 1}])
    with pytest.raises(ValueError, match="lacks 'beta2'"):
        SPACE.to_unit([{"optimizer": "adam", "lr": 0.1}])


def test_other_priors_keep_conditions_by_value():
    """Before, the place in the list counted: momentum went over to adam."""
    space = Space({"optimizer": ["sgd", "adam"]}).when("optimizer", "sgd", {"nesterov": [True, False]})
    space = space.when("nesterov", True, {"lookahead": [1, 2]})
    turned = space.with_priors({"optimizer": ["lion", "adam", "sgd"]})
    assert turned == Space({"optimizer": ["lion", "adam", "sgd"]}).when(
        "optimizer", "sgd", {"nesterov": [True, False]}
    ).when("nesterov", True, {"lookahead": [1, 2]})
    drawn = [turned.sample(Seeded(seed)) for seed in range(32)]
    assert all(("nesterov" in row) == (row["optimizer"] == "sgd") for row in drawn)
    assert {row["optimizer"] for row in drawn} == {"lion", "adam", "sgd"}
    levels = Space({"depth": [1, 2]}).when("depth", [1, 2], {"width": [8]}).with_priors({"depth": [2.0, 1.0]})
    assert levels == Space({"depth": [2.0, 1.0]}).when("depth", [1, 2], {"width": [8]})


@pytest.mark.parametrize("prior", [["adam"], st.uniform(), ["adam", "SGD"]])
def test_a_prior_without_the_values_on_which_others_depend_is_refused(prior):
    space = Space({"optimizer": ["sgd", "adam"]}).when("optimizer", "sgd", {"momentum": st.uniform(0, 0.9)})
    with pytest.raises(ValueError, match=r"the prior of 'optimizer' = .* 'momentum' exists while .* \['sgd'\]: give a"):
        space.with_priors({"optimizer": prior})
