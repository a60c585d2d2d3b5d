"""The total that was asked for: whatever the design, it is not certified with more."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from support.designs_world import certified
from support.ladder_world import climb
from support.survey_world import SPACE, Descent

import dphypo
from dphypo.errors import UnreachableError
from dphypo.search import progress
from dphypo.search.declaration import Declaration
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


@pytest.mark.parametrize("seed", range(12))
def test_no_number_that_people_read_is_less_than_what_is_certified(seed, tmp_path):
    noise = 10 ** np.random.default_rng(seed).uniform(-0.6, 2.5)
    mechanism = dphypo.mechanism(
        lambda params, *, seed: (1, 0.0), event=dp.GaussianDpEvent(noise), relation=dp.NeighboringRelation(1)
    )
    declared = Declaration.of(SPACE, [dphypo.LastRun(mechanism)], delta=1e-6)
    exact, certificate = declared.guarantee.epsilon(1e-6), declared.certificate
    ledger = dphypo.Ledger.open(tmp_path / "ledger.db", epsilon=math.pi * 100, delta=1e-6)
    ledger.reserve(declared.guarantee, name="search")
    told = [progress.cost(certificate, []), declared.total(), str(ledger.entries[0])]
    told += re.findall("epsilon ?= ?[0-9.]+|reported as epsilon = .*", f"{certificate!r} {certificate.statement()}")
    found = [float(re.findall("(?:ε|epsilon) ?= ?([0-9.]*[0-9])", one)[0]) for one in told]
    assert len(found) >= 5
    assert min(found) >= exact


def test_the_totals_of_a_ladder_are_shown_as_what_they_are_or_more():
    rungs = [replace(rung, epsilon=8 / 2 ** (place / 2)) for place, rung in enumerate(climb().rungs)]
    shown = replace(climb(), rungs=tuple(rungs)).summary
    totals = [float(one) for one in re.findall("each of them is ε = ([^a-zA-Z]+)[.] ", shown)[0].split(", ")]
    assert all(rung.epsilon <= total < rung.epsilon + 1e-4 for rung, total in zip(rungs, totals, strict=True))
