"""A study after a survey whose search rule sees only the history: it is charged by Theorem H, also when composed."""

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
from dphypo.search import PriorAround, Stage, Stages, Survey

WIDE = Band(0.25, 8)


@dataclasses.dataclass(frozen=True)
class Promised:
    """A rule of the user's own."""

    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        return candidates.masses.copy()


def dp_sgd(noise, steps):
    step = dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(noise))
    return mechanism(train.train, dp.SelfComposedDpEvent(step, steps))


def chain(sampler, **options):
    """Short noisy runs, all published, then a study in a wide band."""
    return [
        Survey(dp_sgd(3.0, 234), 6, prior=PriorAround(spread=0.1)),
        Stage(dp_sgd(2.0, 234), Poisson(6), WIDE, sampler, **options),
    ]


@pytest.mark.slow
def test_a_band_inside_stages_costs_what_theorem_h_says():
    plan = Stages(SPACE, chain(GaussianProcess()), delta=1e-5, journal=None)
    free = Stages(SPACE, chain(None, policy="anything"), delta=1e-5, journal=None)
    study = plan.guarantee.terms[1].releases
    assert (study.policy, study.first_from_prior) == (PolicyClass.HISTORY, 2)
    new, old = plan.guarantee.epsilon(1e-5), free.guarantee.epsilon(1e-5)
    assert new < 0.25 * old  # short noisy runs tell a rule little, so that a wide band costs little
    assert new >= study.epsilon(1e-5)
    stated = json.loads(json.dumps(plan.certificate.to_dict()))
    assert stated["terms"][1]["policy"]["class"] == "history"
    assert not verify(Certificate.from_dict(stated)).problems
    for change in ({"first_from_prior": 3}, {"class": "anything"}):
        lie = json.loads(json.dumps(stated))
        lie["terms"][1]["policy"] |= change
        assert not verify(Certificate.from_dict(lie))


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
    for one in directions(guarantee.pld, 1):
        exact = exact_history_delta(world, pmf, WIDE, epsilons, first_from_prior=1)
        assert (np.asarray(one.delta(epsilons)) >= exact - 1e-12).all()
        assert one.delta(-1.5) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "word"), [(GaussianProcess(), "which is given the history"), (Promised(), "who declared history_only")]
)
def test_the_certificate_says_whose_word_a_rule_is(sampler, word):
    plan = Stages(SPACE, chain(sampler), delta=1e-5, journal=None)
    survey, study = plan.certificate.to_dict()["public"]["search rules"]
    assert survey is None
    assert word in study["sees only the history by"]


def test_the_rule_of_a_later_stage_may_not_change_once_the_first_has_begun():
    store = open_store(None)
    cheap = [
        Survey(mechanism(train.train, PureDp(0.1)), 2),
        Stage(mechanism(train.train, PureDp(0.2)), Pmf({3: 1.0}), Band(0.75, 2), GaussianProcess()),
    ]
    Stages(SPACE, cheap, delta=1e-6, journal=store, entropy=Seeded(1)).ask()
    for change in ({"sampler": Promised()}, {"projection": "kl"}, {"candidates": 9}):
        changed = dataclasses.replace(cheap[1], **change)
        with pytest.raises(errors.ChangedStudy):
            Stages(SPACE, [cheap[0], changed], delta=1e-6, journal=store, entropy=Seeded(1)).ask()
    release = Stages(SPACE, cheap, delta=1e-6, journal=store, entropy=Seeded(1)).run(progress=False)
    assert not dphypo.verify(release.certificate).problems
