"""What a study is declared by: frozen, public, accounted for once."""

from __future__ import annotations

import dataclasses
import json
import warnings

import pytest
from support.study_world import LAW, RELATION, SPACE, Nearest, make, train

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Pmf
from dphypo.samplers import GaussianProcess
from dphypo.search import Stage, Stages, Study, Survey
from dphypo.search.declaration import Declaration


def counted():
    """A mechanism that notes every question about its event."""
    asked = []

    def event(params):
        asked.append(1)
        return PureDp(0.0625 * params["depth"])

    return dphypo.mechanism(event=event, relation=RELATION, seeded=True)(train.train), asked


def test_a_study_is_accounted_for_once():
    mechanism, asked = counted()
    study = make(mechanism=mechanism)
    once = len(asked)
    assert once == 4, "when it is read, and at each of its three values"
    study.run(progress=False)
    assert 0 <= study.run(progress=False).certificate.epsilon - study.guarantee.epsilon(1e-6) < 2e-5
    assert len(asked) == once


def test_stages_are_accounted_for_once_each():
    mechanism, asked = counted()
    search = Stages(SPACE, [Survey(mechanism, 2), Stage(mechanism, Pmf({2: 1.0}))], delta=1e-6, journal=None)
    once = len(asked)
    assert once == 2 * 4
    search.run(progress=False)
    assert len(asked) == once


def test_it_is_frozen_and_its_law_is_the_one_that_was_given():
    declared = Declaration.of(SPACE, [Stage(train, LAW)], delta=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        declared.delta = 0.5
    assert declared.terms[0][0].releases.runs is LAW
    assert declared.parts[0].runs is LAW
    assert json.loads(json.dumps(declared.to_dict())) == declared.to_dict()


def test_studies_may_share_a_declaration_but_not_what_is_secret():
    stage = Stage(train, LAW, Band(0.5, 2.0), Nearest(), candidates=64)
    declared = Declaration.of(SPACE, [stage], delta=1e-6, private=False)
    one, two = (Stages.of(declared, journal=None, entropy=Seeded(seed)) for seed in (14, 15))
    assert one.run(progress=False).params != two.run(progress=False).params
    assert one.guarantee is two.guarantee
    assert one.curator(1).trials() == _whole().curator().trials(), "it is the study that the arguments declare"
    with pytest.raises(ValueError, match="entropy"):
        Stages.of(declared, journal=None, entropy=SYSTEM)


def _whole():
    study = make(entropy=Seeded(14))
    study.run(progress=False)
    return study


def test_searches_may_share_a_plan():
    plan = Declaration.of(SPACE, [Survey(train, 2), Stage(train, LAW)], delta=1e-6, private=False)
    one, two = (Stages.of(plan, journal=None, entropy=Seeded(seed)) for seed in (1, 2))
    assert one.run(progress=False).params != two.run(progress=False).params
    with pytest.raises(ValueError, match="entropy"):
        Stages.of(plan, journal=None)


def test_another_search_rule_costs_the_same():
    """Where the guarantee holds for any rule, and as many runs are left to the prior."""
    rules = (Nearest(), GaussianProcess(start=1))
    stages = [Stage(train, LAW, Band(0.5, 2.0), rule, policy="anything") for rule in rules]
    one, two = (Declaration.of(SPACE, [stage], delta=1e-6) for stage in stages)
    assert one.guarantee.epsilon(1e-6) == two.guarantee.epsilon(1e-6)
    assert one.to_dict() == two.to_dict()


def test_two_numbers_stand_for_a_band_in_a_study_and_in_a_stage():
    declared = Declaration.of(SPACE, [Stage(train, LAW, (0.5, 2))], delta=1e-6)
    assert declared.terms[0][0].releases.band == Band(0.5, 2)
    assert make(band=(0.5, 2)).declaration.to_dict() == make(band=Band(0.5, 2)).declaration.to_dict()
    assert Stage(train, LAW, (0.5, 2)) == Stage(train, LAW, Band(0.5, 2))
    assert Declaration.of(SPACE, [Stage(train, LAW, (0.5, 2))], delta=1e-6).terms[0][0].releases.band == Band(0.5, 2)


class Counted(dphypo.mechanisms.Declared):
    """A mechanism that says how many records there are."""

    records = 200


@pytest.mark.parametrize(
    "declare",
    [
        lambda run, delta: Study(SPACE, run, LAW, delta=delta, journal=None),
        lambda run, delta: Stages(SPACE, [Survey(run, 2), Stage(run, LAW)], delta=delta, journal=None),
    ],
)
def test_a_large_delta_is_warned_of_once_whatever_the_mechanism(declare):
    counted = Counted(train.train, train.event, RELATION)
    for run, delta, words in ((train, 2e-3, "0.002 is above 0.001"), (counted, 5e-3, "not below 1/records = 0.005")):
        with pytest.warns(UserWarning, match="delta = ") as caught:
            declare(run, delta)
        (warning,) = caught
        assert words in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declare(train, 1e-3)
        declare(counted, 4e-3)
