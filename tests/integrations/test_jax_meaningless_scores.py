"""In JAX, too, targets that a measure cannot score are refused, and the stated noise is that of the measure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dphypo.search.tune import plan_tuning
from dphypo.training.scores import deviation

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from dphypo.jax import (  # noqa: E402
    DPSGD,
    PrivateAccuracy,
    PrivateConfusion,
    PrivateLoss,
    PublicAccuracy,
)

ROWS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
LABELS = np.arange(400) % 3
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]


def predict(params: Any, inputs: Any) -> Any:
    return inputs @ params["weights"]


def entropy(params: Any, record: Any) -> Any:
    return optax.softmax_cross_entropy(predict(params, record[0]), record[1])


def several(params: Any, record: Any) -> Any:
    return optax.sigmoid_binary_cross_entropy(predict(params, record[0]), record[1]).mean()


def squares(params: Any, record: Any) -> Any:
    return ((predict(params, record[0]) - record[1]) ** 2).mean()


def dpsgd(targets: Any, classes: int = 3, **changes: Any) -> DPSGD:
    given: dict[str, Any] = {"score": "accuracy", "epochs": 2, "predict": predict}
    given["init"] = lambda key: {"weights": 0.1 * jax.random.normal(key, (4, classes))}
    return DPSGD(data=(ROWS, targets), **{**given, **changes})


@pytest.mark.parametrize("score", ["accuracy", "f1", "balanced_accuracy"])
@pytest.mark.parametrize("loss", [entropy, several])
def test_one_hot_and_multi_label_targets_are_refused(score: str, loss: Any) -> None:
    with pytest.raises(ValueError, match=rf"score = '{score}' is not valid.*3 values per record.*argmax"):
        dpsgd(ONE_HOT, loss=loss, score=score)


@pytest.mark.parametrize("score", ["accuracy", "f1"])
def test_regression_has_no_accuracy(score: str) -> None:
    """Before, a regression was scored by how often a target was 0 or 1."""
    with pytest.raises(ValueError, match=rf"score = '{score}' is not valid.*are float32.*astype\(int\).*PrivateLoss"):
        dpsgd(ROWS[:, 0], 1, loss=squares, score=score)


def test_the_default_loss_names_the_targets_that_it_cannot_use() -> None:
    with pytest.raises(ValueError, match=r"data = 'targets of float32, 3 a record' is not valid.*one whole number"):
        dpsgd(ONE_HOT)


@pytest.mark.parametrize("kind", [PublicAccuracy, PrivateAccuracy, PrivateConfusion])
def test_scores_of_one_s_own_are_looked_at_too(kind: Any) -> None:
    own: dict[str, Any] = {} if kind is PublicAccuracy else {"noise_multiplier": 2.0}
    with pytest.raises(ValueError, match="3 values per record"):
        dpsgd(LABELS, score=kind((ROWS, ONE_HOT), **own))
    with pytest.raises(ValueError, match="give it pairs"):
        dpsgd(LABELS, score=kind({"x": ROWS, "y": LABELS}, **own))


def test_a_model_with_hyperparameters_is_looked_at_before_its_first_run() -> None:
    def init(key: Any, scale: float) -> Any:
        return {"weights": scale * jax.random.normal(key, (4, 3))}

    made = dpsgd(ONE_HOT, init=init, loss=entropy, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="3 values per record"):
        made.rehearse({"scale": 0.1, "learning_rate": 1.0}, seed=1)


def test_a_copy_with_another_score_is_looked_at_too() -> None:
    made = dpsgd(ONE_HOT, loss=entropy, score=lambda params: 0.5)
    with pytest.raises(ValueError, match="3 values per record"):
        made.at(score=PrivateAccuracy((ROWS, ONE_HOT), 2.0))


def test_what_can_be_scored_is_taken() -> None:
    dpsgd(LABELS)
    dpsgd(LABELS[:, None] % 2, 1, loss=several, score="f1")
    dpsgd(ONE_HOT, loss=entropy, score="loss")
    dpsgd(ROWS[:, 0], 1, loss=squares, score=PrivateLoss((ROWS, ROWS[:, 0]), 2.0, bound=4.0))


def test_the_stated_noise_is_that_of_the_measure() -> None:
    """Before, an F1 stated the noise of an accuracy."""
    f1 = dpsgd(LABELS, score="f1", rarest=0.05).at(score_noise_multiplier=4.0)
    assert f1.score_records == 80
    assert f1.score_deviation == deviation("f1", 3, 0.05, 80, 4.0)
    assert f1.score_deviation > 1.2 * 4.0 / 80
    accuracy = dpsgd(LABELS).at(score_noise_multiplier=4.0)
    assert accuracy.score_deviation == 4.0 / 80
    assert accuracy.score_assumes == ""
    with pytest.raises(ValueError, match="rarest"):
        dpsgd(LABELS, score="f1", rarest=0.7)
    with pytest.raises(ValueError, match="measure = 'ap' is not valid"):
        PrivateConfusion((ROWS, LABELS), 2.0, measure="ap")


@pytest.mark.filterwarnings("ignore:the noise of the score")
@pytest.mark.parametrize(
    ("rarest", "said"),
    [
        (None, "a fifth of an even share (assumed: state rarest="),
        (0.05, "where the rarest class has 5 %"),
    ],
)
@pytest.mark.slow
def test_tune_states_what_the_noise_assumes(rarest: float | None, said: str) -> None:
    made = dpsgd(LABELS, score="balanced_accuracy", rarest=rarest)
    summary = plan_tuning(made.default_space(), made, epsilon=8, delta=1e-5, survey=2).summary
    assert said in summary
    assert "cannot distinguish runs" in summary
