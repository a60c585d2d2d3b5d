"""Calibration of a search in stages: never above the target, within 1e-3 below it."""

from __future__ import annotations

import contextlib
import sqlite3
import textwrap
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting as dp
import pytest
from support.stages_world import FEW

import dphypo
from dphypo.accounting import Composition, Split, Term, account, solve_noise
from dphypo.accounting.solve import watch
from dphypo.band import Band
from dphypo.errors import UnreachableError
from dphypo.laws import Geometric, NegativeBinomial
from dphypo.mechanisms import Declared, Plain
from dphypo.search import Stage, Stages, calibrate_stages

DELTA = 1e-5
SPACE = dphypo.Space({"lr": [0.1, 1.0], "rounds": [50, 100]})


@dataclass(frozen=True)
class Training:
    """A mechanism that defines its own fidelities."""

    noise_multiplier: float
    rate: float = 0.02

    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    score_event = dp.GaussianDpEvent(40.0)
    split = Split("odd numbers score").sides
    monotone: frozenset[str] = frozenset()
    saver = Plain()

    def event(self, params: Any) -> dp.DpEvent:
        step = dp.PoissonSampledDpEvent(self.rate, dp.GaussianDpEvent(self.noise_multiplier))
        return dp.SelfComposedDpEvent(step, params["rounds"])

    def at(self, **changes: Any) -> Training:
        return replace(self, **changes)

    def __call__(self, params: Any, *, seed: int) -> tuple[int, float]:
        return 1, params["lr"]


FIRST = Stage(Training(4.0), NegativeBinomial(8, mean=20))
LAST = Stage(Training(1.0), NegativeBinomial(8, mean=5))


def cost(stages: list[Stage]) -> float:
    return Stages(SPACE, stages, delta=DELTA, journal=None).guarantee.epsilon(DELTA)


@pytest.mark.slow
def test_the_last_stage_spends_what_the_first_leaves():
    found = calibrate_stages(SPACE, [FIRST, LAST], epsilon=2.0, delta=DELTA)
    assert found[0] == FIRST
    assert 1.999 <= cost(found) <= 2.0
    dearer = calibrate_stages(SPACE, [replace(FIRST, mechanism=Training(2.0)), LAST], epsilon=2.0, delta=DELTA)
    assert dearer[1].mechanism.noise_multiplier > found[1].mechanism.noise_multiplier


@pytest.mark.slow
def test_a_split_finds_the_noise_of_the_first_stage_too():
    found = calibrate_stages(SPACE, [FIRST, LAST], epsilon=2.0, delta=DELTA, share=0.4)
    assert 0.799 <= found[0].account(SPACE).epsilon(DELTA) <= 0.8
    assert 1.999 <= cost(found) <= 2.0
    assert found[1].account(SPACE).epsilon(DELTA) > 1.2, "costs compose: the last stage gets more than the rest"


@pytest.mark.slow
def test_three_stages_are_split_by_two_shares():
    found = calibrate_stages(SPACE, [FIRST, FIRST, LAST], epsilon=2.0, delta=DELTA, share=[0.2, 0.3])
    assert [stage.account(SPACE).epsilon(DELTA) for stage in found[:2]] == pytest.approx([0.4, 0.6], abs=1e-3)
    assert 1.999 <= cost(found) <= 2.0


def test_what_cannot_be_reached_or_solved_is_refused():
    with pytest.raises(UnreachableError, match="the earlier stages alone cost"):
        calibrate_stages(SPACE, [replace(FIRST, mechanism=Training(1.5)), LAST], epsilon=0.5, delta=DELTA)
    loud = Declared(lambda params, *, seed: 1, dp.GaussianDpEvent(1.0), Training.relation)
    with pytest.raises(UnreachableError, match="cheaper earlier stages"):
        calibrate_stages(SPACE, [FIRST, Stage(WithAt(loud), FEW)], epsilon=1.0, delta=DELTA)
    with pytest.raises(ValueError, match="one share for each of the 1 stages"):
        calibrate_stages(SPACE, [FIRST, LAST], epsilon=2.0, delta=DELTA, share=[0.1, 0.2])
    for wrong in ([LAST], [], LAST, Training(1.0)):
        with pytest.raises(ValueError, match=r"two or more.*use dphypo\.calibrate"):
            calibrate_stages(SPACE, wrong, epsilon=2.0, delta=DELTA)
    with pytest.raises(ValueError, match=r"epsilon = -1\.0"):
        calibrate_stages(SPACE, [FIRST, LAST], epsilon=-1.0, delta=DELTA, share=0.3)
    fixed = dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=Training.relation)(lambda params, *, seed: 1)
    with pytest.raises(ValueError, match=r"no at\(noise"):
        calibrate_stages(SPACE, [FIRST, Stage(fixed, FEW)], epsilon=2.0, delta=DELTA)


@pytest.mark.parametrize("band", [Band(1, 1), Band(0.5, 2.0)])
@pytest.mark.parametrize("score", [None, dp.GaussianDpEvent(40.0)])
def test_a_share_that_cannot_be_reached_is_named_with_what_would_help(band, score):
    training = Declared(lambda params, *, seed: 1, dp.GaussianDpEvent(1.0), Training.relation, score_event=score)
    first = Stage(WithAt(training), FEW, band)
    with pytest.raises(
        UnreachableError, match=r"epsilon = 0\.0003 at delta.*share · epsilon = 0\.3 · 0\.001"
    ) as caught:
        calibrate_stages(SPACE, [first, LAST], epsilon=0.001, delta=DELTA, share=0.3)
    assert ("narrower band" in str(caught.value)) == (band != Band(1, 1))
    assert ("noise on the score" in str(caught.value)) == (score is not None)


@dataclass(frozen=True)
class WithAt:
    """A mechanism that spends what it was declared with, whatever the noise."""

    declared: Declared

    def __getattr__(self, name: str) -> Any:
        return getattr(self.declared, name)

    def __call__(self, params: Any, *, seed: int) -> Any:
        return self.declared(params, seed=seed)

    def at(self, noise_multiplier: float) -> WithAt:
        return self


def test_the_remedy_for_a_mechanism_without_at_can_be_copied():
    fixed = dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=Training.relation)(lambda params, *, seed: 1)
    with pytest.raises(ValueError, match=r"no at\(noise") as caught:
        calibrate_stages(SPACE, [FIRST, Stage(fixed, FEW)], epsilon=2.0, delta=DELTA)
    code = "\n".join(line for line in str(caught.value).splitlines() if line.startswith("    ") or not line)
    names: dict[str, Any] = {"dp": dp, "dphypo": dphypo, "relation": Training.relation}
    exec(textwrap.dedent(code), names)
    found = calibrate_stages(SPACE, [FIRST, Stage(names["training"](1.0), FEW)], epsilon=2.0, delta=DELTA)
    assert 1.999 <= cost(found) <= 2.0


@pytest.mark.slow
def test_the_papers_training_given_a_cheap_first_stage():
    """One epoch at σ = 2 leaves the ten epochs nearly all of ε."""

    def training(noise: float, steps: int, mean: float) -> list[Term]:
        step = dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(noise))
        return [Term(account(dp.SelfComposedDpEvent(step, steps), Geometric(mean=mean)))]

    first = training(2.0, 235, 30)
    found = solve_noise(lambda noise: Composition((*first, *training(noise, 2344, 10))), epsilon=4.13, delta=DELTA)
    assert 4.129 <= found.guarantee.epsilon(DELTA) <= 4.13
    assert found.value == pytest.approx(0.71, abs=0.01)


def solved_in(journal, **options):
    """The noise that is found with a journal, and how many values were tried for it."""
    tried: list[float] = []
    with watch(tried.append):
        found = calibrate_stages(SPACE, [FIRST, LAST], epsilon=2.0, delta=DELTA, share=0.4, journal=journal, **options)
    return [stage.mechanism.noise_multiplier for stage in found], len(tried)


@pytest.mark.slow
def test_noise_that_was_found_is_kept_and_not_solved_for_again(tmp_path):
    journal = tmp_path / "stages.db"
    noise, tries = solved_in(journal)
    assert tries > 2
    assert solved_in(journal) == (noise, 0)
    assert solved_in(journal, name="another")[1] == tries
    assert solved_in(None) == (noise, tries)
    other = calibrate_stages(SPACE, [FIRST, LAST], epsilon=2.1, delta=DELTA, share=0.4, journal=journal)
    assert other[1].mechanism.noise_multiplier < noise[1], "another budget is another question"


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.999, 1.01])
def test_a_kept_noise_that_is_stale_or_forged_is_not_believed(tmp_path, factor):
    journal = tmp_path / "stages.db"
    noise, _ = solved_in(journal)
    with contextlib.closing(sqlite3.connect(journal)) as connection, connection:
        assert connection.execute("UPDATE dphypo_solved SET answer = answer * ?", (factor,)).rowcount == 2
    found, tries = solved_in(journal)
    assert found == noise
    assert tries > 0
