"""The scales on which a survey searches: logarithmic where a positive number spans a decade or more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import loguniform, randint, uniform

from dphypo.entropy import Seeded
from dphypo.samplers import History
from dphypo.search.proposer import SamplerProposer, history_of, on_scales, posterior_mean
from dphypo.search.release import Row
from dphypo.space import Space

CLIP = uniform(0.3, 5.7)


@pytest.mark.parametrize(
    "prior",
    [
        uniform(0.0, 10.0),
        uniform(1.0, 8.0),
        uniform(-5.0, 10.0),
        loguniform(1e-3, 10.0),
        randint(1, 50),
        [1, 2, 5, 10, 20],
        [0.1, 1.0, 10.0],
        ["sgd", "adam"],
        ([0.1, 0.3, 1.0, 3.0, 10.0], [0.1, 0.1, 0.2, 0.3, 0.3]),
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [1.0, 1.0000000001, 2.0, 3.0, 20.0],  # the share of the first would be below the smallest probability
    ],
)
def test_what_is_no_scale_stays_as_it_is(prior):
    space = Space({"x": prior})
    assert on_scales(space) is space


def test_a_uniform_prior_over_a_decade_becomes_log_uniform():
    scaled = on_scales(Space({"lr": loguniform(1e-3, 1), "clip": CLIP}))
    middle = scaled.from_unit(np.array([[0.5, 0.5]]))[0]
    assert middle["clip"] == pytest.approx((0.3 * 6.0) ** 0.5)
    assert middle["lr"] == pytest.approx(10**-1.5)


def test_conditions_and_shaped_priors_are_kept():
    space = Space({"optimizer": ["sgd", "adam"]}).when("optimizer", "sgd", {"clip": CLIP})
    scaled = on_scales(space)
    assert scaled.parameters[1].parent == 0
    assert scaled.to_dict()["parameters"][1]["when"] == space.to_dict()["parameters"][1]["when"]
    shaped = Space({"clip": CLIP}).around({"clip": 1.0})
    assert on_scales(shaped) is shaped
    with pytest.raises(ValueError, match="none of the parameters"):
        space.with_priors({"other": [1]})


def test_a_survey_spreads_its_first_runs_over_the_scale():
    space = Space({"clip": CLIP})
    empty = History.empty(features=1, unit=1)
    proposed, history = [], empty
    for _ in range(8):
        params = SamplerProposer(start=8).propose(space, history, [], Seeded(0))
        proposed.append(params["clip"])
        rows = [Row({"clip": value}, 0.0) for value in proposed]
        history = history_of(space, rows, maximize=True)
    assert all(0.3 <= value <= 6.0 for value in proposed)
    assert sum(value < 1.35 for value in proposed) in (3, 4, 5), "half of them below the geometric mean"


def test_rules_find_the_optimum_of_a_scale_and_stay_inside_it():
    space = Space({"clip": CLIP})
    rows = [Row({"clip": clip}, -(np.log(clip / 0.5) ** 2)) for clip in (0.3, 0.45, 0.8, 1.5, 3.0, 5.9)]
    assert 0.35 < posterior_mean(space, rows, maximize=True)["clip"] < 0.7
    proposed = SamplerProposer(start=2).propose(
        space, history_of(space, rows, maximize=True), [{"clip": 1.0}], Seeded(1)
    )
    assert 0.3 <= proposed["clip"] <= 6.0
