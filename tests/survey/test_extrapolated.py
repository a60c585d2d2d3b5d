"""Surveys of several lengths: the last run goes where the optimum is at full length."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import uniform
from support.survey_world import SPACE, Descent

import dphypo
from dphypo import Space
from dphypo.accounting import verify
from dphypo.entropy import Seeded
from dphypo.errors import UnreachableError
from dphypo.survey import Extrapolated, PosteriorMean, Row, SurveyPlan, plan_tuning

BUDGET = {"epsilon": 3.0, "delta": 1e-6}
CUBE = Space({"x": uniform()})


def drifting(fraction: float, per_decade: float, count: int = 12) -> list[Row]:
    """Scores whose best x is 0.8 at full length and moves with the logarithm of the length."""
    best = 0.8 + per_decade * math.log10(fraction)
    return [Row({"x": float(x)}, -((x - best) ** 2)) for x in np.linspace(0.02, 0.98, count)]


@pytest.mark.parametrize("per_decade", [0.0, 0.3])
def test_the_optimum_is_followed_to_the_full_length(per_decade):
    tables = [drifting(fraction, per_decade) for fraction in (0.03, 0.1, 0.3)]
    chosen = Extrapolated((0.03, 0.1, 0.3)).across(CUBE, tables, maximize=True)["x"]
    assert abs(chosen - 0.8) < 0.06
    stays = PosteriorMean()(CUBE, tables[0], maximize=True)["x"]
    assert (abs(stays - 0.8) < 0.06) == (per_decade == 0.0)


def test_scores_to_minimise_and_failed_runs_count_as_such():
    tables = [
        [Row(row.params, -row.score if row.score is not None else None) for row in drifting(fraction, 0.3)]
        for fraction in (0.1, 0.3)
    ]
    tables[0].append(Row({"x": 0.8}, None))
    chosen = Extrapolated((0.1, 0.3)).across(CUBE, tables, maximize=False)["x"]
    assert 0.65 < chosen < 0.95


def test_a_plan_of_two_lengths_costs_what_was_asked_and_states_its_rule(tmp_path):
    plan = SurveyPlan(runs=9, fractions=(0.3, 0.1), models=tmp_path)
    assert plan.lengths == ((0.1, 5), (0.3, 4))
    assert plan.compute == pytest.approx(1 + 0.5 + 1.2)
    release = dphypo.tune(
        SPACE, Descent(steps=300), **BUDGET, survey=plan, journal=None, progress=False, entropy=Seeded(1)
    )
    assert 2.999 <= release.certificate.epsilon <= 3.0
    assert verify(release.certificate)
    assert [len(one) for one in release.surveys] == [5, 4]
    rule = Extrapolated((0.1, 0.3))
    assert release.params == rule.across(SPACE, [one.rows for one in release.surveys], maximize=True)
    assert release.certificate.document["public"]["releases"][-1]["pick"] == rule.to_dict()
    assert release.model["steps"] == 300
    assert sorted(str(one.relative_to(tmp_path).parent) for one in tmp_path.rglob("run-001.*")) == ["0.1", "0.3"]


def test_noise_is_matched_at_every_length():
    found = plan_tuning(SPACE, Descent(steps=300), **BUDGET, survey=SurveyPlan(runs=4, fractions=(0.1, 0.4)))
    full = found.noise.full.noise_multiplier
    for short, fraction in zip(found.noise.shorts, (0.1, 0.4), strict=True):
        assert short.noise_multiplier == pytest.approx(full / math.sqrt(fraction))
    assert "2 short runs of 0.1 and 2 short runs of 0.4 of the steps" in found.summary


@pytest.mark.parametrize(
    "wrong",
    [
        {"fractions": (0.1,)},
        {"fractions": (0.1, 1.5)},
        {"fractions": (0.1, 0.2), "fraction": 0.1},
        {"fractions": (0.1, 0.2), "runs": 1},
    ],
)
def test_what_is_no_plan_of_several_lengths_is_refused(wrong):
    with pytest.raises(ValueError, match=r"fractions|runs"):
        SurveyPlan(**wrong)


def test_lengths_that_take_more_than_the_compute_are_refused():
    with pytest.raises(UnreachableError, match=r"takes 4"):
        plan_tuning(SPACE, Descent(steps=300), **BUDGET, survey=SurveyPlan(fractions=(0.1, 0.2)), compute=2.0)
    with pytest.raises(ValueError, match="2 surveys"):
        Extrapolated((0.1, 0.2, 0.3)).across(CUBE, [drifting(0.1, 0.0), drifting(0.2, 0.0)], maximize=True)
