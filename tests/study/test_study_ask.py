"""Ask and tell: runs that are made elsewhere."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from support.study_world import make, score, train

from dphypo import errors
from dphypo.entropy import SYSTEM
from dphypo.mechanisms import Outcome


def test_ask_and_tell_is_the_same_search():
    whole = make()
    expected = whole.run(progress=False)
    study = make()
    while (trial := study.ask()) is not None:
        study.tell(trial, train(trial.params, seed=trial.seed))
    release = study.release()
    assert (release.params, release.score) == (expected.params, expected.score)
    assert study.curator().trials() == whole.curator().trials()


def test_trials_may_be_told_in_any_order_and_the_release_waits_for_all():
    study = make()
    trials = []
    while (trial := study.ask()) is not None:
        trials.append(trial)
    assert study.ask() is None
    messages = set()
    for trial in reversed(trials):
        with pytest.raises(errors.Refusal, match="nothing to release") as caught:
            study.release()
        messages.add(str(caught.value))
        study.tell(trial, Outcome(1, score(trial.params, trial.seed)))
    assert len(messages) == 1, "the refusal must not depend on how many runs remain"
    assert not re.search(r"\d", messages.pop())
    best = max(trials, key=lambda trial: score(trial.params, trial.seed))
    assert study.release().params == best.params


def test_a_trial_is_told_once():
    study = make()
    trial = study.ask()
    study.tell(trial, (1, 1.0))
    with pytest.raises(errors.Refusal, match="one outcome"):
        study.tell(trial, (1, 2.0))


class Secretive:
    def __float__(self):
        raise RuntimeError("secret record 4711")


@pytest.mark.parametrize(
    "wrong",
    [3, None, [1, 2.0], (1, 2.0, 3), (1, None), (1, "record 4711"), (1, [2.0]), Outcome(1, None), (1, Secretive())],
)
def test_a_malformed_outcome_is_refused_and_the_trial_can_be_told_rightly(wrong):
    study = make()
    trial = study.ask()
    with pytest.raises(TypeError, match=r"Nothing was recorded.*Outcome\.failed") as caught:
        study.tell(trial, wrong)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert [row["done"] for row in study.curator().trials()] == [False]
    study.tell(trial, (1, 1.0))
    assert [row["score"] for row in study.curator().trials()] == [1.0]


@pytest.mark.parametrize("failed", [Outcome.failed("diverged"), (1, math.nan), (1, -math.inf), (1, 10**400)])
def test_a_failed_run_is_told_as_such(failed):
    study = make()
    study.tell(study.ask(), failed)
    (row,) = study.curator().trials()
    assert row["done"]
    assert row["failure"]


def test_a_score_of_numpy_is_a_number():
    study = make()
    study.tell(study.ask(), (1, np.float32(0.5)))
    assert study.curator().trials()[0]["score"] == 0.5


def test_a_trial_of_another_study_is_refused():
    trial = make(entropy=SYSTEM).ask()
    study = make()
    with pytest.raises(ValueError, match="does not belong to this search"):
        study.tell(trial, (1, 1.0))


def test_run_takes_over_what_ask_gave_out():
    study = make()
    late = study.ask()
    study.run(progress=False)
    assert study.curator().trials() == _whole().curator().trials()
    with pytest.raises(errors.Refusal, match="already has an outcome"):
        study.tell(late, (1, 9.0))


def _whole():
    study = make()
    study.run(progress=False)
    return study


def test_a_trial_that_was_not_told_is_given_out_again_and_fails_at_the_third_loss():
    study = make()
    first = study.ask()
    for _ in range(2):
        study.close()
        again = study.ask()
        assert (again.number, again.params, again.seed) == (first.number, first.params, first.seed)
    study.close()
    assert study.ask().number == first.number + 1
    assert "died three times" in study.curator().trials()[0]["failure"]
