"""The total that was asked for: whatever the design, it is not certified with more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.designs_world import certified
from support.survey_world import SPACE, Descent

import dphypo
from dphypo.errors import UnreachableError
from dphypo.search.tune import plan_tuning


@pytest.mark.parametrize("seed", range(30))
def test_no_design_is_certified_with_more_than_was_asked_for(seed):
    kind, asked, total = certified(np.random.default_rng(seed))
    assert total <= asked, kind


def test_a_search_that_would_cost_more_than_its_total_is_refused_before_it_runs():
    mechanism = Descent(noise_multiplier=3.0, steps=4)
    cost = dphypo.Study(SPACE, mechanism, dphypo.Geometric(mean=3), delta=1e-6, journal=None).guarantee.epsilon(1e-6)
    options = {"delta": 1e-6, "journal": None, "epsilon": 0.9 * cost}
    with pytest.raises(UnreachableError, match=r"epsilon = .* was asked for, .* nothing was run"):
        dphypo.Study(SPACE, mechanism, dphypo.Geometric(mean=3), **options)
    with pytest.raises(UnreachableError, match="nothing was run"):
        dphypo.Stages(SPACE, [dphypo.Survey(mechanism, 5), dphypo.LastRun(mechanism)], **options)


def test_a_last_run_that_scores_records_of_the_other_side_does_not_exceed_the_total():
    """Its score counts for records that train, whose noise is first solved for without it."""
    full = Descent(noise_multiplier=3.0, steps=50, score_noise_multiplier="calibrate", score_records=100)
    plan = dphypo.SurveyPlan(runs=10, last=lambda full: replace(full, split=None))
    tuning = plan_tuning(SPACE, full, epsilon=2.0, delta=1e-6, survey=plan)
    assert 1.99 < tuning.declare(SPACE, 1e-6).certificate.epsilon <= 2.0
