"""Targets that a measure cannot score are refused, and the stated noise is that of the measure asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PrivateAccuracy, PrivateConfusion, PublicAccuracy
from dphypo.training.scores import MEASURES, auc, deviation

ROWS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
LABELS = np.arange(400) % 3


def dpsgd(targets: Any, classes: int = 3, **changes: Any) -> DPSGD:
    given: dict[str, Any] = {"score": "accuracy", "epochs": 2, "device": "cpu"}
    return DPSGD(model=lambda: nn.Linear(4, classes), data=(ROWS, targets), **{**given, **changes})


ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]
SEVERAL = (np.random.default_rng(0).random((400, 3)) > 0.5).astype(np.float32)


@pytest.mark.parametrize("score", ["accuracy", "f1", "balanced_accuracy"])
@pytest.mark.parametrize(("targets", "loss"), [(ONE_HOT, functional.cross_entropy), (SEVERAL, nn.BCEWithLogitsLoss())])
def test_one_hot_and_multi_label_targets_are_refused(score: str, targets: Any, loss: Any) -> None:
    """Before, they scored 0 for every run."""
    with pytest.raises(ValueError, match=rf"score = '{score}' is not valid.*3 values per record.*argmax"):
        dpsgd(targets, loss=loss, score=score)


def test_regression_has_no_accuracy() -> None:
    for loss in (nn.MSELoss(), functional.huber_loss):
        with pytest.raises(ValueError, match="the loss is one of regression"):
            dpsgd(ROWS[:, :1], 1, loss=loss)


def test_positions_have_no_accuracy() -> None:
    pixels = torch.zeros(60, 4, 4, dtype=torch.int64)
    model = lambda: nn.Conv2d(3, 2, 3, padding=1)  # noqa: E731
    with pytest.raises(ValueError, match='16 values per record: use score="loss"'):
        DPSGD(model=model, data=(torch.zeros(60, 3, 4, 4), pixels), score="accuracy", device="cpu")


@pytest.mark.parametrize("kind", [PublicAccuracy, PrivateAccuracy, PrivateConfusion])
def test_scores_of_one_s_own_are_looked_at_too(kind: Any) -> None:
    score = kind((ROWS, ONE_HOT), **({} if kind is PublicAccuracy else {"noise_multiplier": 2.0}))
    with pytest.raises(ValueError, match="3 values per record"):
        dpsgd(LABELS, score=score)


def test_what_can_be_scored_is_taken() -> None:
    dpsgd(LABELS)
    dpsgd(LABELS[:, None] % 2 * 1.0, 1, loss=nn.BCEWithLogitsLoss(), score="auc")
    dpsgd(ONE_HOT, score="loss")


@pytest.mark.parametrize("measure", ["f1", "balanced_accuracy", "auc"])
def test_the_noise_of_a_measure_grows_as_a_class_gets_rarer(measure: str) -> None:
    found = [deviation(measure, 2, share, 1180, 15.0) for share in (0.5, 0.1, 17 / 1180)]
    assert found == sorted(found)
    assert found[2] > (3 if measure == "balanced_accuracy" else 1.2) * found[0]
    assert deviation("accuracy", 2, 0.1, 1180, 15.0) == pytest.approx(
        15.0 * np.sqrt(0.2**2 * 2 + 0.8**2 * 2) / 1180, rel=0.2
    )


def test_the_stated_noise_of_a_measure_is_that_of_its_matrices() -> None:
    """Against matrices of another shape: classes in other orders have the same noise."""
    random = np.random.default_rng(1)
    expected = np.array([[94.0, 24.0], [212.0, 850.0]])
    drawn = [MEASURES["balanced_accuracy"](np.maximum(expected + random.normal(0, 15, (2, 2)), 0)) for _ in range(2000)]
    assert np.std(drawn) == pytest.approx(deviation("balanced_accuracy", 2, 0.1, 1180, 15.0), rel=0.25)
    assert auc(np.array([[3.0, 1.0], [0.0, 4.0]])) == 0.875


@pytest.mark.filterwarnings("ignore:the noise of the score")
@pytest.mark.slow
def test_tune_states_the_noise_of_the_measure_that_was_asked_for() -> None:
    """Before, "noise of 0.013" was printed of an AUC whose deviation was 0.7."""
    labels = (np.arange(400) % 20 == 0).astype(int)
    space = dpsgd(labels, 2).default_space()
    said = {}
    for rarest in (None, 0.05, 0.5):
        mechanism = dpsgd(labels, 2, score="auc", rarest=rarest)
        said[rarest] = plan_tuning(space, mechanism, epsilon=8, delta=1e-5, survey=2).summary
    assert "if the rarest class has a fifth of an even share (assumed: state rarest=" in said[None]
    assert "where the rarest class has 5 % of the records" in said[0.05]
    assert "cannot distinguish runs" in said[0.5]
    with pytest.raises(ValueError, match="rarest"):
        dpsgd(labels, 2, score="auc", rarest=0.7)
