"""Stages whose search rules see only the history: each is charged by Theorem H, and so is the whole plan."""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

import dp_accounting as dp
import numpy as np
import pytest
from support.history_oracle import exact_history_delta
from support.oracle import World
from support.stages_world import mechanism
from support.study_world import SPACE, train

import dphypo
from dphypo import errors
from dphypo.accounting import Certificate, PureDp, account, verify
from dphypo.accounting.dp_library import directions
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.entropy import Seeded
from dphypo.journal.store import open_store
from dphypo.laws import Pmf, Poisson
from dphypo.samplers import GaussianProcess
from dphypo.search import PriorAround, Stage, Stages

NARROW, WIDE = Band(0.75, 2), Band(0.25, 8)


@dataclasses.dataclass(frozen=True)
class Promised:
    """A rule of the user's own."""

    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        return candidates.masses.copy()


def dp_sgd(noise, steps):
    step = dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(noise))
    return mechanism(train.train, dp.SelfComposedDpEvent(step, steps))


def chain(first, second, **options):
    """Short noisy runs in a wide band, then full ones in a narrow band."""
    return [
        Stage(dp_sgd(2.0, 234), Poisson(6), WIDE, first, prior=PriorAround(spread=0.1), **options),
        Stage(dp_sgd(0.9, 2344), Poisson(3), NARROW, second, **options),
    ]


@pytest.mark.slow
def test_a_band_inside_stages_costs_what_theorem_h_says():
    plan = Stages(SPACE, chain(GaussianProcess(), GaussianProcess()), delta=1e-5, journal=None)
    free = Stages(SPACE, chain(None, None, policy="anything"), delta=1e-5, journal=None)
    assert [term.releases.policy for term in plan.guarantee.terms] == [PolicyClass.HISTORY] * 2
    assert [term.releases.first_from_prior for term in plan.guarantee.terms] == [2, 2]
    new, old = plan.guarantee.epsilon(1e-5), free.guarantee.epsilon(1e-5)
    assert new < 0.25 * old  # short noisy runs tell a rule little, so that a wide band costs little
    assert new >= max(term.releases.epsilon(1e-5) for term in plan.guarantee.terms)
    stated = json.loads(json.dumps(plan.certificate.to_dict()))
    assert [stage["policy"]["class"] for stage in stated["terms"]] == ["history", "history"]
    assert verify(Certificate.from_dict(stated))
    for change in ({"first_from_prior": 3}, {"class": "anything"}):
        lie = json.loads(json.dumps(stated))
        lie["terms"][0]["policy"] |= change
        assert not verify(Certificate.from_dict(lie))


@pytest.mark.slow
def test_one_stage_by_theorem_h_and_one_for_any_rule():
    mixed = Stages(SPACE, [*chain(None, None)[:1], *chain(None, None, policy="anything")[1:]], delta=1e-5, journal=None)
    assert [term.releases.policy for term in mixed.guarantee.terms] == [PolicyClass.HISTORY, PolicyClass.ANYTHING]
    rules = mixed.certificate.to_dict()["public"]["search rules"]
    assert (rules[0] is None, rules[1] is None) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("law", [Pmf({3: 1.0}), Pmf({0: 0.2, 2: 0.4, 3: 0.4})])
def test_what_composes_lies_above_the_exact_delta_below_zero_too(law):
    """Composition asks for δ at ε < 0, where "no run" counts as an outcome."""
    p = 1 / (1 + np.exp(-1.0))
    on, off = np.array([1 - p, p]), np.array([p, 1 - p])
    world = World(np.array([WIDE.p, 1 - WIDE.p]), np.tile(on, (2, 1)), np.tile(off, (2, 1)), np.array([[0, 2], [3, 1]]))
    guarantee = account(PureDp(1.0), law, WIDE, policy="history", first_from_prior=1)
    epsilons = np.array([-3.0, -1.5, -0.5, -0.1, 0.0, 0.3, 1.0, 2.0])
    pmf = law.pmf(np.arange(4))
    for one in directions(guarantee.to_pld(), 1):
        exact = exact_history_delta(world, pmf, WIDE, epsilons, first_from_prior=1)
        assert (np.asarray(one.delta(epsilons)) >= exact - 1e-12).all()
        assert one.delta(-1.5) < 1.0


@pytest.mark.slow
def test_the_certificate_says_whose_word_each_rule_is():
    plan = Stages(SPACE, chain(GaussianProcess(start=1), Promised()), delta=1e-5, journal=None)
    ours, users = plan.certificate.to_dict()["public"]["search rules"]
    assert "which is given the history" in ours["sees only the history by"]
    assert "who declared history_only" in users["sees only the history by"]


def test_the_rule_of_a_later_stage_may_not_change_once_the_first_has_begun():
    store = open_store(None)
    cheap = [
        Stage(mechanism(train.train, PureDp(0.1)), Pmf({2: 1.0})),
        Stage(mechanism(train.train, PureDp(0.2)), Pmf({3: 1.0}), NARROW, GaussianProcess(start=1)),
    ]
    Stages(SPACE, cheap, delta=1e-6, journal=store, entropy=Seeded(1)).ask()
    for change in ({"sampler": Promised()}, {"projection": "kl"}, {"candidates": 9}):
        changed = dataclasses.replace(cheap[1], **change)
        with pytest.raises(errors.ChangedStudy):
            Stages(SPACE, [cheap[0], changed], delta=1e-6, journal=store, entropy=Seeded(1)).ask()
    release = Stages(SPACE, cheap, delta=1e-6, journal=store, entropy=Seeded(1)).run(progress=False)
    assert dphypo.verify(release.certificate)
