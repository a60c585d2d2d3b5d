"""Searches in two stages: what they ask for, what they cost, what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dp_accounting as dp
import pytest

import dphypo
from dphypo.errors import UnreachableError
from dphypo.mechanisms import Declared, OwnTraining, SampledGaussian
from dphypo.planning import TwoStages

DELTA = 1e-5
SPACE = dphypo.Space({"lr": [0.1, 1.0]})


def train(params: Any, *, seed: int, run: SampledGaussian) -> tuple[int, float]:
    return 1, 0.5


TRAIN = OwnTraining(train, SampledGaussian.of(records=10_000, batch_size=500, epochs=5, noise_multiplier=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("design", [TwoStages(), TwoStages(fraction=0.02, compute_share=0.5, share=0.4, shape=2.0)])
def test_the_stages_cost_what_they_may_and_compute_what_they_should(design: TwoStages) -> None:
    stages = design.stages(SPACE, TRAIN, compute=10, epsilon=3.0, delta=DELTA)
    first, last = stages
    assert first.account(SPACE).epsilon(DELTA) == pytest.approx(design.share * 3.0, abs=2e-3)
    assert 3.0 - 1e-2 < dphypo.Stages(SPACE, stages, delta=DELTA, journal=None).guarantee.epsilon(DELTA) <= 3.0
    assert design.fraction * first.runs.mean + last.runs.mean == pytest.approx(10)
    assert first.mechanism.run.steps == pytest.approx(design.fraction * last.mechanism.run.steps)
    assert first.prior == dphypo.PriorAround(spread=design.spread, floor=design.floor)
    assert last.prior is None


@pytest.mark.slow
def test_the_cheap_run_may_be_another() -> None:
    cheap = TRAIN.at(fraction=0.04)
    first, last = TwoStages().stages(SPACE, TRAIN, compute=10, epsilon=3.0, delta=DELTA, cheap=cheap)
    assert first.mechanism == cheap.at(noise_multiplier=first.mechanism.run.noise_multiplier)
    assert last.mechanism.run.steps == 100


@pytest.mark.slow
def test_a_score_that_costs_too_much_in_many_cheap_runs_is_named() -> None:
    full = replace(TRAIN, score_event=dp.GaussianDpEvent(20.0))
    with pytest.raises(UnreachableError, match=r"its score alone costs .*cheap=mechanism.at\(fraction=0.1, score="):
        TwoStages().stages(SPACE, full, compute=10, epsilon=1.0, delta=DELTA)
    cheap = replace(TRAIN, score_event=dp.GaussianDpEvent(200.0)).at(fraction=0.1)
    stages = TwoStages().stages(SPACE, full, compute=10, epsilon=1.0, delta=DELTA, cheap=cheap)
    assert dphypo.Stages(SPACE, stages, delta=DELTA, journal=None).guarantee.epsilon(DELTA) <= 1.0


def test_too_little_compute_is_refused() -> None:
    with pytest.raises(ValueError, match=r"makes 0\.9 runs of length 0\.5 in the first stage"):
        TwoStages(fraction=0.5, compute_share=0.3).stages(SPACE, TRAIN, compute=1.5, epsilon=1.0, delta=DELTA)
    with pytest.raises(ValueError, match=r"the first stage leaves 0\.7 full runs"):
        TwoStages().stages(SPACE, TRAIN, compute=1.4, epsilon=1.0, delta=DELTA)


def test_a_mechanism_that_cannot_be_made_cheaper_is_refused() -> None:
    class Fixed(Declared):
        def at(self, noise_multiplier: float) -> Fixed:
            return Fixed(self.train, dp.GaussianDpEvent(noise_multiplier), self.relation)

    def train(params: Any, *, seed: int) -> tuple[int, float]:
        return 1, 0.5

    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    for made in (Fixed(train, dp.GaussianDpEvent(1.0), relation), Declared(train, dp.GaussianDpEvent(1.0), relation)):
        with pytest.raises(ValueError, match=r"no at\(fraction=.*cheap="):
            TwoStages().stages(SPACE, made, compute=10, epsilon=1.0, delta=DELTA)
    fixed = Fixed(train, dp.GaussianDpEvent(1.0), relation)
    stages = TwoStages().stages(SPACE, fixed, compute=10, epsilon=1.0, delta=DELTA, cheap=fixed)
    assert len(stages) == 2


def test_a_mechanism_that_ignores_the_fraction_is_refused() -> None:
    class Event(Declared):
        def at(self, noise_multiplier: float = 1.0, fraction: float = 1.0) -> Event:
            return Event(self.train, dp.GaussianDpEvent(noise_multiplier), self.relation)

    event = Event(lambda params, *, seed: (1, 0.5), dp.GaussianDpEvent(1.0), TRAIN.relation)
    with pytest.raises(ValueError, match=r"at\(fraction=0\.1\) has the same event as a full run.*give it as cheap="):
        TwoStages().stages(SPACE, event, compute=10, epsilon=1.0, delta=DELTA)
    cut = event.at(fraction=0.1)
    assert len(TwoStages().stages(SPACE, event, compute=10, epsilon=1.0, delta=DELTA, cheap=cut)) == 2
    one = OwnTraining(train, SampledGaussian.of(records=100, batch_size=100, epochs=1, noise_multiplier=1.0))
    with pytest.raises(ValueError, match="too few steps to be cut"):
        TwoStages().stages(SPACE, one, compute=10, epsilon=1.0, delta=DELTA)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"fraction": 0.0}, {"fraction": 1.5}, {"compute_share": 1.0}, {"share": 0.0}, {"share": 1.0}, {"floor": 0.0}),
        *({"shape": -1.0}, {"spread": 0.0}, {"spread": 2.0}, {"spread": "wide"}, {"spread": {"lr": -0.1}}),
    ],
)
def test_numbers_that_make_no_design_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TwoStages(**wrong)


def test_a_spread_that_does_not_fit_the_space_is_refused_before_anything_is_solved() -> None:
    with pytest.raises(ValueError, match="momentum"):
        TwoStages(spread={"momentum": 0.1}).stages(SPACE, TRAIN, compute=10, epsilon=1.0, delta=DELTA)


def test_what_cannot_be_paid_for_or_composed_is_refused() -> None:
    with pytest.raises(UnreachableError, match=r"a larger share \(an earlier stage may cost"):
        TwoStages().stages(SPACE, TRAIN, compute=10, epsilon=1e-6, delta=DELTA)

    class Other(OwnTraining):
        relation = dp.NeighboringRelation.REPLACE_ONE

    cheap = Other(train, SampledGaussian(rate=1.0, steps=1, noise_multiplier=1.0))
    with pytest.raises(ValueError, match="different neighbouring relations"):
        TwoStages().stages(SPACE, TRAIN, compute=10, epsilon=1.0, delta=DELTA, cheap=cheap)
