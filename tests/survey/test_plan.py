"""Planning a survey: what it costs in noise and compute, and the noise of training, scores and settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import dp_accounting as dp
import pytest
from scipy.stats import loguniform
from support.survey_world import RECORDS, SPACE, Descent

from dphypo.accounting import Composition, Term
from dphypo.accounting.composition import account_published
from dphypo.errors import UnreachableError
from dphypo.mechanisms import mechanism as declare
from dphypo.search import SurveyPlan
from dphypo.search.tune import plan_tuning
from dphypo.space import Space

BUDGET = {"epsilon": 4.0, "delta": 1e-6}
TWO = Space({"lr": loguniform(1e-3, 10.0), "clip": loguniform(0.1, 10.0)})


def test_the_plan_spends_the_budget_and_says_its_price():
    found = plan_tuning(TWO, Descent(steps=400), **BUDGET, price=0.2)
    assert (found.survey.runs, found.survey.fraction) == (20, 0.1)
    assert found.short.noise_multiplier == pytest.approx(found.full.noise_multiplier / math.sqrt(0.1))
    assert found.short.made == 40
    assert 3.999 <= found.guarantee.epsilon(1e-6) <= 4.0
    # 400 Gaussian steps and 20 short runs of 40 steps with noise σ²/f: 1/σ² grows by k·f², so σ by its root.
    assert found.price == pytest.approx(math.sqrt(1 + 20 * 0.1**2) - 1, abs=2e-3)
    assert "Tuning costs" in found.summary
    assert "2 runs of compute: 20 short runs of 0.1 of the steps" in found.summary
    assert "dear" not in found.summary


def test_a_plan_that_costs_more_than_was_accepted_says_so_and_what_would_cost_less():
    found = plan_tuning(SPACE, Descent(steps=20), **BUDGET, survey=SurveyPlan(runs=15, fraction=1.0))
    assert found.price == pytest.approx(3.0, abs=0.01)
    line, dear = found.summary.splitlines()
    assert line == (
        "Tuning costs 300 % more noise and 15 runs of compute: 15 full runs, all published, then one full run."
    )
    assert dear.startswith("That is more than the 1 % that is accepted (price=). It costs less with more steps")


@pytest.mark.slow
def test_a_single_hyperparameter_takes_eight_runs_of_a_twentieth_for_one_per_cent_of_noise():
    found = plan_tuning(SPACE, Descent(steps=600), **BUDGET)
    assert (found.survey.runs, found.survey.fraction) == (8, 0.05)
    assert found.price == pytest.approx(math.sqrt(1 + 8 * 0.05**2) - 1, abs=2e-3)
    alone = Space({"lr": loguniform(1e-3, 10.0), "clipping": ["normalise"]})
    assert plan_tuning(alone, Descent(steps=600), **BUDGET, compute=9).survey.runs == 8
    assert plan_tuning(SPACE, Descent(steps=120), **BUDGET).survey.fraction == 0.25  # 30 of 120 steps


def test_shorter_runs_where_the_price_is_too_high():
    found = plan_tuning(TWO, Descent(steps=1000), **BUDGET, price=0.03)
    assert found.survey.fraction == 0.1 / 2
    assert found.price <= 0.03


def test_longer_runs_where_few_steps_would_be_left_and_fewer_where_they_cost_too_much():
    found = plan_tuning(TWO, Descent(steps=120), **BUDGET, price=10.0)
    assert (found.survey.runs, found.survey.fraction) == (20, 0.25)  # 30 of 120 steps
    found = plan_tuning(TWO, Descent(steps=120), **BUDGET, price=0.05)
    assert (found.survey.runs, found.survey.fraction) == (15, 0.25)
    found = plan_tuning(TWO, Descent(steps=120), **BUDGET, price=0.05, survey=18)
    assert (found.survey.runs, found.survey.fraction) == (18, 0.25)  # a number that is given stays


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "compute", "runs", "fraction"),
    [(1000, 3, 20, 0.1), (1000, 2, 20, 0.05), (300, 2, 10, 0.1), (500, 9, 40, 0.1)],
)
def test_compute_bounds_length_first_and_then_number(steps, compute, runs, fraction):
    survey = plan_tuning(TWO, Descent(steps=steps), **BUDGET, compute=compute, price=10.0).survey
    assert (survey.runs, survey.fraction) == (runs, pytest.approx(fraction))
    assert survey.compute <= compute + 1e-9


def test_what_does_not_fit_the_compute_is_refused():
    with pytest.raises(UnreachableError, match=r"compute = 1\.2"):
        plan_tuning(SPACE, Descent(steps=120), **BUDGET, compute=1.2)
    with pytest.raises(ValueError, match="compute"):
        plan_tuning(SPACE, Descent(), **BUDGET, compute=1)


@pytest.mark.slow
def test_private_scores_are_calibrated_to_what_training_costs():
    found = plan_tuning(SPACE, Descent(score_noise_multiplier="calibrate"), **BUDGET, survey=10)
    costs = found.guarantee.costs(1e-6)
    assert costs["training"] == pytest.approx(4.0, abs=2e-3)
    assert costs["scoring"] == pytest.approx(4.0, abs=2e-3)
    public = plan_tuning(SPACE, Descent(), **BUDGET, survey=10)
    assert found.full.noise_multiplier == public.full.noise_multiplier
    # Ten Gaussian scores of noise s are one of noise s/√10.
    scores = Composition((Term(account_published(dp.GaussianDpEvent(found.short.score_noise_multiplier), 10)),))
    assert scores.epsilon(1e-6) <= 4.0


def test_a_last_run_on_both_sides_leaves_less_for_the_scores():
    plan = SurveyPlan(runs=10, fraction=0.1)
    one = plan_tuning(SPACE, Descent(score_noise_multiplier="calibrate"), **BUDGET, survey=plan)
    both = plan_tuning(
        SPACE,
        Descent(score_noise_multiplier="calibrate"),
        **BUDGET,
        survey=replace(plan, last=lambda full: replace(full, split=None)),
    )
    assert both.short.score_noise_multiplier > 2 * one.short.score_noise_multiplier
    assert both.guarantee.epsilon(1e-6) <= 4.0


def test_a_last_run_on_other_records_counts_for_both_sides():
    """A record that scores would meet the last run, and nothing would pay for it."""

    @dataclass(frozen=True)
    class OnOthers(Descent):
        data: object = field(default_factory=object)

    plan = SurveyPlan(runs=4, fraction=0.1, last=lambda full: OnOthers(**vars(full)))
    with pytest.raises(ValueError, match="if those that score may be among them"):
        plan_tuning(SPACE, Descent(score_noise_multiplier=50.0), **BUDGET, survey=plan)
    anyone = replace(plan, last=lambda full: OnOthers(**vars(replace(full, split=None))))
    found = plan_tuning(SPACE, Descent(score_noise_multiplier=50.0), **BUDGET, survey=anyone)
    assert found.guarantee.epsilon(1e-6) <= 4.0


def test_a_last_run_of_another_kind_is_what_is_accounted_for():
    plan = SurveyPlan(runs=4, fraction=0.1, last=lambda full: full.at(steps=200))
    found = plan_tuning(SPACE, Descent(steps=100), **BUDGET, survey=plan)
    assert (found.full.made, found.short.made) == (200, 10)
    assert 3.999 <= found.guarantee.epsilon(1e-6) <= 4.0


def test_settings_have_noise_of_their_own_and_cost_no_more_together():
    space = Space({"lr": loguniform(1e-3, 10.0), "batch": [40, 100, RECORDS]})
    found = plan_tuning(space, Descent(steps=60), **BUDGET, survey=SurveyPlan(runs=20, fraction=0.5), price=10.0)
    noise = found.full.noise_multiplier
    assert noise[40] < noise[100] < noise[RECORDS]
    assert 3.999 <= found.guarantee.epsilon(1e-6) <= 4.0
    for short in noise:
        for last in noise:
            terms = (
                Term(account_published(found.short.event({"batch": short}), 20)),
                Term(account_published(found.full.event({"batch": last}), 1)),
            )
            assert Composition(terms).epsilon(1e-6) <= 4.0


def test_a_mechanism_that_cannot_be_cut_brings_a_short_run_of_its_own():
    def short(full):
        return replace(full, steps=5, noise_multiplier=3 * full.noise_multiplier)

    found = plan_tuning(SPACE, Descent(), **BUDGET, survey=SurveyPlan(runs=5, short=short, fraction=0.05))
    assert found.short.steps == 5
    assert found.guarantee.epsilon(1e-6) <= 4.0


def test_a_mechanism_without_at_is_refused_with_a_remedy():
    run = declare(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)(
        lambda params, *, seed: (None, 0.0)
    )
    with pytest.raises(ValueError, match=r"at\(noise_multiplier"):
        plan_tuning(SPACE, run, **BUDGET)
    with pytest.raises(ValueError, match="survey"):
        plan_tuning(SPACE, Descent(), **BUDGET, survey="twenty")
    with pytest.raises(ValueError, match="survey = -1 is not valid: give a whole number, 0 or greater"):
        plan_tuning(SPACE, Descent(), **BUDGET, survey=-1)
    with pytest.raises(ValueError, match=r"give a dphypo\.Space"):
        plan_tuning({"lr": [0.1, 1.0]}, Descent(), **BUDGET)
    with pytest.raises(ValueError, match=r"@dphypo\.mechanism"):
        plan_tuning(SPACE, print, **BUDGET)
    with pytest.raises(ValueError, match="no side of their own"):
        plan_tuning(SPACE, Descent(score_noise_multiplier="calibrate", split=None), **BUDGET)


@pytest.mark.slow
def test_settings_that_could_exceed_the_compute_are_neither_run_nor_paid_for():
    space = Space({"lr": loguniform(1e-3, 10.0), "batch": [40, 100, RECORDS]})
    small = Descent(steps=60, batch=100)
    plan = SurveyPlan(runs=8, fraction=0.5)
    whole = plan_tuning(space, small, **BUDGET, survey=plan, price=10.0)
    assert (whole.largest, whole.parts[0].within) == (4.0, None)
    assert whole.compute == 20.0
    assert "at most 20 runs of the given setting, in all" in whole.summary
    cut = plan_tuning(space, small, **BUDGET, survey=plan, price=10.0, compute=5.5)
    assert cut.compute == 5.0
    assert [cut.parts[0].within({"batch": batch}) for batch in (40, 100, RECORDS)] == [True, True, False]
    assert [len(term.releases.events) for term in cut.guarantee.terms] == [2, 2]
    with pytest.raises(UnreachableError, match="too little for any setting"):
        plan_tuning(Space({"batch": [RECORDS]}), small, **BUDGET, survey=plan, compute=6)
