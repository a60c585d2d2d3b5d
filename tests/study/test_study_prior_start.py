"""The first n₀ runs of a study come from the prior, whatever the rule says; the guarantee counts on just as many."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import dp_accounting as dp
import numpy as np
import pytest
from support.slow import mostly_slow
from support.study_world import SPACE, make, mechanism, train

import dphypo
from dphypo import errors
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.entropy import Seeded
from dphypo.journal.store import open_store
from dphypo.laws import NegativeBinomial, Pmf
from dphypo.samplers import GaussianProcess
from dphypo.search import Stage, Stages

BAND = Band(0.25, 8)
LAW = Pmf({8: 1.0})


@dataclasses.dataclass(frozen=True)
class Greedy:
    """A rule that wants one candidate from the start, and keeps how many results it was shown."""

    asked: list
    start: int = 5  # what a rule of the user's says of itself counts for nothing
    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        self.asked.append(len(history))
        wanted = np.zeros(len(candidates.masses))
        wanted[0] = 1.0
        return wanted


def study(asked, journal=None, **options):
    return dphypo.Study(
        SPACE, train, LAW, BAND, Greedy(asked), delta=1e-6, journal=journal, entropy=Seeded(3), **options
    )


def in_order(search):
    """Run one after the other."""
    while (trial := search.ask()) is not None:
        search.tell(trial, ({}, 0.5))


@pytest.mark.parametrize("first", mostly_slow([1, 3, 2, 7], 2))
def test_the_rule_is_not_asked_before_the_first_runs_have_ended(first):
    asked: list = []
    in_order(study(asked, first_from_prior=first))
    assert asked == list(range(first, 8))


@pytest.mark.parametrize("first", [1, 3])
def test_the_first_runs_are_draws_of_the_prior_itself(first):
    search = study([], first_from_prior=first)
    in_order(search)
    drawn = [trial["params"] for trial in search.curator().trials()]
    entropy = [Seeded(3).child(f"trial {number}").child("draw") for number in range(8)]
    from_prior = [params == SPACE.sample(one) for params, one in zip(drawn, entropy, strict=True)]
    assert from_prior == [number < first for number in range(8)]


def test_on_a_grid_the_first_runs_are_draws_of_its_masses():
    search = study([], first_from_prior=3, grid={"lr": 4})
    in_order(search)
    grid = SPACE.grid(lr=4)
    for number, trial in enumerate(search.curator().trials()[:3]):
        entropy = Seeded(3).child(f"trial {number}")
        index = Band(1, 1).draw(grid.masses, entropy.child("draw"), grid.masses)
        assert trial["params"] == grid.draw_within(index, entropy.child("within"))


@pytest.mark.parametrize("lag", mostly_slow([1, 3]))
def test_a_lag_leaves_no_fewer_runs_to_the_prior(lag):
    """With a lag, a run sees fewer results than runs came before it."""
    asked: list = []
    study(asked, first_from_prior=2, lag=lag).run(progress=False)
    assert asked == list(range(2, 8 - lag))


def test_runs_side_by_side_leave_no_fewer_runs_to_the_prior():
    asked: list = []
    search = study(asked, first_from_prior=4, policy="anything")
    given = [search.ask() for _ in range(4)]
    assert asked == []  # four under way, and none has ended
    for trial in given[::-1]:
        search.tell(trial, ({}, 0.5))
    search.ask()
    assert asked == [4]


@pytest.mark.slow
def test_a_study_claims_what_the_gaussian_process_leaves_to_the_prior():
    for start in (1, 2, 4):
        found = make(None, sampler=GaussianProcess(start=start))
        assert found.guarantee.terms[0].releases.first_from_prior == start
        assert found.certificate.to_dict()["terms"][0]["policy"]["first_from_prior"] == start
    assert study([]).guarantee.terms[0].releases.first_from_prior == 1


@pytest.mark.slow
def test_more_runs_from_the_prior_cost_less_and_the_certificate_says_how_many():
    noisy = mechanism(train.train, event=dp.GaussianDpEvent(4.0))
    law = NegativeBinomial(8, mean=6)
    few, many = (
        dphypo.Study(SPACE, noisy, law, BAND, Greedy([]), delta=1e-6, journal=None, first_from_prior=first)
        for first in (1, 4)
    )
    assert many.guarantee.terms[0].releases.policy is PolicyClass.HISTORY
    assert many.guarantee.epsilon(1e-6) < few.guarantee.epsilon(1e-6) - 0.02
    assert "he hyperparameters of the first 4 runs were drawn from the prior" in many.certificate.statement()
    assert not dphypo.verify(many.certificate).problems
    lie = many.certificate.to_dict()
    lie["terms"][0]["policy"]["first_from_prior"] = 1
    assert not dphypo.verify(dphypo.Certificate.from_dict(lie))


@pytest.mark.slow
def test_it_may_not_change_on_the_way():
    store = open_store(None)
    study([], store, first_from_prior=3).ask()
    for other in (1, 2, 4):
        with pytest.raises(errors.ChangedStudy, match="first_from_prior was 3"):
            study([], store, first_from_prior=other).ask()
    study([], store, first_from_prior=3).run(progress=False)


@pytest.mark.slow
def test_a_study_that_began_with_one_goes_on_with_one():
    store = open_store(None)
    make(store, sampler=GaussianProcess(), first_from_prior=1).ask()
    with pytest.raises(errors.ChangedStudy, match="first_from_prior was 1"):
        make(store, sampler=GaussianProcess()).ask()
    assert make(store, sampler=GaussianProcess(), first_from_prior=1).run(progress=False)


def test_without_a_band_nothing_is_claimed():
    found = dphypo.Study(SPACE, train, LAW, delta=1e-6, journal=None, first_from_prior=3)
    assert found.guarantee.terms[0].releases.first_from_prior == 0


@pytest.mark.parametrize("value", [0, -1, 1.5, "two"])
def test_a_bad_number_is_named(value):
    with pytest.raises((ValueError, TypeError), match="first_from_prior"):
        study([], first_from_prior=value)


@pytest.mark.slow
def test_a_stage_keeps_to_it_too():
    asked: list = []
    stage = Stage(train, LAW, BAND, Greedy(asked), first_from_prior=3)
    plan = Stages(SPACE, [dphypo.Survey(train, 2), stage], delta=1e-6, journal=None, entropy=Seeded(3))
    assert plan.guarantee.terms[1].releases.first_from_prior == 3
    plan.run(progress=False)
    assert asked == list(range(3, 8))
