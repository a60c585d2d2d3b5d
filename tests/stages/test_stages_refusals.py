"""What a search in stages refuses."""

from __future__ import annotations

import dataclasses
import re

import dp_accounting as dp
import pytest
import scipy.stats as st
from support.stages_world import FEW, SEED, cheap, make, stages
from support.study_world import EVENT, LAW, SPACE, train

import dphypo
from dphypo import errors
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.search import LastRun, PriorAround, Stage, Study, Survey, refusals
from dphypo.space import Space


def test_options_that_stop_a_search_are_refused():
    for option in refusals.OPTIONS:
        with pytest.raises(errors.Refusal, match=re.escape(refusals.OPTIONS[option])):
            make().run(**{option: 1})
    with pytest.raises(TypeError, match="unexpected"):
        make().run(whatever=1)


def test_secrets_are_no_attributes():
    search = make()
    for name in refusals.SECRETS:
        with pytest.raises(errors.SecretValue):
            getattr(search, name)
    with pytest.raises(AttributeError, match="no attribute 'best'"):
        search.best  # noqa: B018


def test_what_was_declared_may_not_change(tmp_path):
    path = tmp_path / "stages.db"
    make(path).run(progress=False)
    other = stages()
    for changes in (
        {"space": Space({"lr": st.loguniform(1e-3, 1.0), "depth": [1, 2]})},
        {"maximize": False},
        {"entropy": SYSTEM},
        {"stages": [*other[:1], Stage(train, LAW)]},
        {"stages": stages(prior=PriorAround(spread=0.3))},
        {"stages": [*other[:1], *other]},
        {"stages": [dataclasses.replace(other[0], prior=None), other[1]]},
        {"stages": [dataclasses.replace(other[0], runs=3), other[1]]},
    ):
        with pytest.raises(errors.ChangedStudy):
            make(path, **changes).run(progress=False)
    with (
        Study(
            SPACE, cheap, FEW, Band(0.5, 2.0), delta=1e-6, journal=path, name="stages, stage 1", entropy=Seeded(SEED)
        ) as alone,
        pytest.raises(errors.ChangedStudy),
    ):
        alone.run(progress=False)


def test_a_second_run_gives_the_same_release(tmp_path):
    path = tmp_path / "stages.db"
    first = make(path).run(progress=False)
    again = make(path).run(progress=False)
    assert (again.params, again.score) == (first.params, first.score)
    assert again.certificate == first.certificate
    with pytest.raises(errors.Refusal, match="already made its release"):
        make(path).release()


def test_the_stages_are_checked_before_anything_runs():
    for wrong in ([], [Stage(train, FEW)], [train, train], train, Stage(train, FEW), None, {1: Stage(train, FEW)}):
        with pytest.raises(ValueError, match=r"list of dphypo\.Survey.*a study alone is dphypo\.Study"):
            make(stages=wrong)
    for after in (Stage(train, FEW), Survey(train, 2), LastRun(train)):
        with pytest.raises(ValueError, match="a Stage is followed by another part: surveys come first"):
            make(stages=[Stage(cheap, FEW), after])
    with pytest.raises(ValueError, match=r"space\.grid"):
        make(stages=[Survey(cheap, 2), Stage(train, FEW, grid={"layers": 3})])
    with pytest.raises(ValueError, match="mechanism"):
        Stage(lambda params, *, seed: 1, FEW)
    with pytest.raises(ValueError, match="sampler"):
        Stage(train, FEW, sampler=3)
    for wrong in (0.1, "around", lambda released, space: space):
        with pytest.raises(ValueError, match=r"prior = .*give a dphypo\.PriorAround"):
            Survey(train, 2, prior=wrong)
    for wrong in (None, (0.5,), 3, (2.0, 3.0)):
        with pytest.raises(ValueError, match=r"band|c = 2\.0"):
            Stage(cheap, FEW, band=wrong)
    other = dphypo.mechanism(event=EVENT, relation=dp.NeighboringRelation.REPLACE_ONE)(train.train)
    with pytest.raises(ValueError, match="neighbouring relations"):
        make(stages=[Survey(cheap, 2), Stage(other, FEW)])


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"spread": {"lrr": 0.1}}, "none of the parameters"), ({"spread": 3.0}, "spread"), ({"floor": 0}, "floor")],
)
def test_a_prior_that_does_not_fit_the_space_is_refused_before_anything_runs(rule, message):
    with pytest.raises(ValueError, match=message):
        make(stages=stages(prior=PriorAround(**rule)))


def test_a_stage_that_has_not_begun_has_no_curator(tmp_path):
    with make(tmp_path / "stages.db") as search, pytest.raises(ValueError, match="has not begun"):
        search.curator(2)


def test_a_stage_that_was_not_declared_is_refused():
    search = make()
    search.run(progress=False)
    for look in (search.prior, search.curator):
        for stage in (0, 3):
            with pytest.raises(ValueError, match=f"stage = {stage} is not valid"):
                look(stage)
