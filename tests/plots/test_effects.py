"""What matters, against functions whose split of the variance is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import loguniform, qmc, uniform
from support.report_world import table

from dphypo import plots
from dphypo.space import Space
from dphypo.table import Row, Surveyed

CUBE = Space({"x": uniform(), "y": uniform(), "z": uniform()})


def surveyed(function, runs=60, width=3):
    points = qmc.Sobol(width, seed=0).random(64)[:runs]
    return Surveyed(tuple(Row(dict(zip("xyz", point.tolist(), strict=False)), function(*point)) for point in points))


def shares(table, space=CUBE):
    return {effect.column.name: (effect.main, effect.total) for effect in plots.Surrogate(table, space).effects}


def test_a_function_with_an_interaction_is_split_as_it_should_be():
    """f = x + 2y + 3xy with x, y uniform. E[f|x] = 1 + 5x/2, E[f|y] = 1/2 + 7y/2, and the rest is 3(x−½)(y−½)."""
    parts = {"x": 2.5**2 / 12, "y": 3.5**2 / 12, "both": 9 / 144}
    whole = sum(parts.values())
    found = shares(surveyed(lambda x, y, z: x + 2 * y + 3 * x * y))
    assert found["x"] == pytest.approx((parts["x"] / whole, (parts["x"] + parts["both"]) / whole), abs=0.03)
    assert found["y"] == pytest.approx((parts["y"] / whole, (parts["y"] + parts["both"]) / whole), abs=0.03)
    assert found["z"] == pytest.approx((0, 0), abs=0.01)


def test_what_acts_together_with_others_alone_has_no_effect_by_itself():
    found = shares(surveyed(lambda x, y, z: (x - 0.5) * (y - 0.5)))
    assert found["x"][0] < 0.05
    assert found["x"][1] > 0.9


def test_a_category_counts_by_the_means_of_its_values():
    """f = 1, 2 or 6 by the category, and nothing else."""
    rng = np.random.default_rng(0)
    rows = [Row({"c": c, "x": float(rng.random())}, v) for c, v in [("a", 1.0), ("b", 2.0), ("c", 6.0)] * 12]
    fitted = plots.Surrogate(Surveyed(tuple(rows)))
    effect = fitted.effects[0]
    assert effect.column.name == "c"
    assert effect.main > 0.95
    assert effect.means == pytest.approx([1, 2, 6], abs=0.3)


def test_a_logarithmic_hyperparameter_counts_by_its_logarithm():
    """f = log₁₀ x over six decades: nearly all of the variance in log x, where x itself would see a step at 0."""
    places = np.geomspace(1e-6, 1.0, 30)
    table = Surveyed(tuple(Row({"x": float(x)}, float(np.log10(x))) for x in places))
    for space in (None, Space({"x": loguniform(1e-6, 1.0)})):
        (effect,) = plots.Surrogate(table, space).effects
        inner = (effect.places > 1e-5) & (effect.places < 0.1)
        assert effect.means[inner] == pytest.approx(np.log10(effect.places[inner]), abs=0.15)
    (flat,) = plots.columns(table, Space({"x": uniform(0, 1)}))
    assert flat.scale == "linear", "the declared prior decides"


def test_main_is_never_above_total_nor_total_above_one():
    for effect in plots.Surrogate(table()).effects:
        assert 0 <= effect.main <= effect.total <= 1


def test_the_same_table_gives_the_same():
    assert shares(table()) == shares(table())


def test_scores_that_are_all_alike_give_no_shares():
    assert shares(surveyed(lambda x, y, z: 1.0)) == {"x": (0, 0), "y": (0, 0), "z": (0, 0)}


def test_noise_is_said_to_be_unexplained():
    rng = np.random.default_rng(1)
    assert plots.Surrogate(surveyed(lambda x, y, z: rng.normal(), runs=40), CUBE).explained < 0.25
    assert plots.Surrogate(surveyed(lambda x, y, z: x), CUBE).explained > 0.99


def test_too_few_scores_are_refused():
    with pytest.raises(ValueError, match="table = '4 runs with a score' is not valid: give at least 5"):
        plots.Surrogate(surveyed(lambda x, y, z: x, runs=4))
    with pytest.raises(ValueError, match="no hyperparameter differs"):
        plots.Surrogate(Surveyed(tuple(Row({"x": 1.0}, 0.1 * k) for k in range(8))))


def test_a_hyperparameter_that_some_runs_do_not_have_is_drawn_where_it_is():
    rows = [Row({"opt": "sgd", "momentum": m}, m) for m in (0.1, 0.5, 0.9)]
    rows += [Row({"opt": "adam"}, 0.3 + 0.01 * k) for k in range(4)]
    names = [effect.column.name for effect in plots.Surrogate(Surveyed(tuple(rows))).effects]
    assert sorted(names) == ["momentum", "opt"]
    assert np.isnan(plots.columns(Surveyed(tuple(rows)))[1].places[3:]).all()
