"""Private scores are one set of classes: every library gives the same number for the same model, records and seed."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from dphypo import jax as in_jax
from dphypo import torch as in_torch
from dphypo.jax.program import JaxModel, Program, as_records
from dphypo.torch.record_values import TorchModel
from dphypo.training.scores import (
    NAMED,
    Metrics,
    PrivateConfusion,
    PublicAccuracy,
    named,
)

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.integers(-8, 9, (200, 3)).astype(np.float32)  # products of whole numbers: the same in every library
LABELS = RANDOM.integers(0, 2, 200)
WEIGHTS = np.array([[1, -2], [3, 1], [-1, 1]], dtype=np.float32)


def in_pytorch(weights: Any = WEIGHTS) -> TorchModel:
    layer = nn.Linear(*weights.shape, bias=False)
    layer.weight.data = torch.from_numpy(weights.T.copy())
    return TorchModel(layer)


def jax_model(weights: Any = WEIGHTS) -> JaxModel:
    def predict(params: Any, inputs: Any) -> Any:
        return inputs @ params

    program = Program(lambda key: jnp.asarray(weights), None, predict, {}, as_records((ROWS, LABELS)))
    return JaxModel(program, weights.reshape(-1))


def test_every_library_has_the_same_classes() -> None:
    for name in ("PrivateAccuracy", "PrivateLoss", "PrivateConfusion", "PublicAccuracy"):
        assert getattr(in_jax, name) is getattr(in_torch, name)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_has_the_same_value_in_every_library(name: str) -> None:
    score = named(name, data=(ROWS, LABELS), records=200)
    noisy = type(score)(**{**vars(score), "noise_multiplier": 5.0})
    first, second = (noisy(model(), seed=3) for model in (in_pytorch, jax_model))
    assert first == pytest.approx(second, rel=1e-6)
    if name not in ("loss", "perplexity"):  # each library rounds its own logarithms
        assert first == second


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS[:, :1]], ids=["two outputs", "one output"])
def test_groups_ignored_labels_and_labels_of_no_class(weights: Any) -> None:
    labels = LABELS.copy()
    labels[:7], labels[7:11] = 5, 1

    def group(inputs: Any) -> int:
        value = float(np.asarray(inputs).reshape(-1)[0])
        if value > 6:
            raise ValueError("this record has no group")
        return int(value > 0)

    found = []
    for model in (in_pytorch(weights), jax_model(weights)):
        score = PrivateConfusion((ROWS, labels), 1e-6, group=group, ignore_index=0, records=200)
        found.append(score.drawn(model, 1))
    counted = (labels == 1) & (ROWS[:, 0] <= 6)
    assert found[0].sum() == counted.sum()
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(
        found[0].sum((1, 2)), [(counted & (ROWS[:, 0] <= 0)).sum(), (counted & (ROWS[:, 0] > 0)).sum()]
    )


def test_bins_of_an_auc_compare_margins_with_their_edges() -> None:
    """The bin of a record is that of its probability; one whose margin is not a number is in the first."""
    margins = np.array([[-800.0], [-1.0], [0.0], [1e-9], [1.0], [800.0], [np.nan]])

    class Outputs(TorchModel):
        def labelled(self, records: Any, value: Any, asked: Any) -> Any:
            return value(margins, np.zeros(len(margins)), None)

    score = PrivateConfusion((ROWS, LABELS), 1e-6, "auc", records=200)
    found = score.drawn(Outputs(nn.Linear(3, 2)), 1)
    bins = [math.floor(64 / (1 + math.exp(-one))) for one in (-700.0, -1.0, 0.0, 1e-9, 1.0)]
    wanted = np.bincount([0, *bins[1:], 63, 0], minlength=64)
    np.testing.assert_array_equal(found, [wanted, np.zeros(64)])


def test_several_names_in_jax_share_one_matrix() -> None:
    mechanism = in_jax.DPSGD(
        init=lambda key: jnp.zeros((3, 2)),
        predict=lambda params, inputs: inputs @ params,
        data=(ROWS, LABELS),
        score=("f1", "accuracy"),
        epochs=1,
        batch_size=50,
    )
    assert isinstance(mechanism.score, Metrics)
    assert len(mechanism.score.private) == 1
    assert mechanism.metrics == ("f1", "accuracy")
    outcome = mechanism.at(noise_multiplier=1.0, score_noise_multiplier=9.0)({"learning_rate": 0.1}, seed=1)
    assert set(outcome.metrics) == {"f1", "accuracy"}
    assert outcome.score == outcome.metrics["f1"]


def test_the_stated_noise_is_that_of_the_score_that_ranks() -> None:
    """It was that of all scores together, which is smaller than that of each."""
    mechanism = in_jax.DPSGD(
        init=lambda key: jnp.zeros((3, 2)),
        predict=lambda params, inputs: inputs @ params,
        data=(ROWS, LABELS),
        score=("accuracy", "loss"),
        epochs=1,
        batch_size=50,
    ).at(score_noise_multiplier=5.0)
    accuracy = mechanism.score.scores["accuracy"]
    assert accuracy.noise_multiplier == 5 * math.sqrt(2)
    assert mechanism.score_deviation == accuracy.noise_multiplier / accuracy.records


def test_a_model_of_no_library_is_refused() -> None:
    with pytest.raises(TypeError, match="model is a str"):
        PublicAccuracy((ROWS, LABELS))("a model")
