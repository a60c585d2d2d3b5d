"""Arguments that are declared wrongly are refused when they are given, by name, before anything is trained."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score
from support.torch_world import dpsgd
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.torch import PrivateLoss, private_test


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), "gpu", 7.5, "meta", ""])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ValueError, match=r"device = .*PyTorch can use cpu here: give a device that it can use"):
        dpsgd(device=device)


@pytest.mark.parametrize(
    "schedule", ["polynomial", ("cosine", 1.0), 0.5, lambda: 1.0, lambda done: None, lambda done: 1 / done, math.log]
)
def test_a_schedule_that_is_no_function_of_the_share_of_steps_is_refused(schedule):
    with pytest.raises(ValueError, match=r"schedule = .*function of the share of completed steps"):
        dpsgd(schedule=schedule)


def test_a_schedule_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match=r"its value at 0\.5 is nan"):
        dpsgd(schedule=lambda done: math.nan if done else 1.0)


@pytest.mark.parametrize("score", [accuracy_score, lambda: 0.5, {"a": lambda model: 0.5, "b": accuracy_score}])
def test_a_score_that_does_not_take_the_model_alone_is_refused(score):
    with pytest.raises(ValueError, match=r"score = .*called with the trained model alone"):
        dpsgd(score=score)


@pytest.mark.parametrize("score", ["accuracy", lambda model: 0.5], ids=["named", "a function"])
def test_a_model_of_other_inputs_is_refused_with_the_shape_of_a_record(score):
    with pytest.raises(
        UnsupportedModelError, match=r"model fails on made-up records .*shape \(5,\).*reshape the records"
    ):
        dpsgd(model=lambda: nn.Linear(7, 2), score=score)


@pytest.mark.parametrize(
    ("named", "same"),
    [
        ("linear", lambda done: 1.0 - done),
        (("constant", 0.5), lambda done: min(1.0, done / 0.5)),
        ("cosine", lambda done: 0.5 * (1 + math.cos(math.pi * done))),
    ],
)
def test_a_schedule_by_name_trains_as_its_function_does(named, same):
    found = [dpsgd(schedule=one)({}, seed=3).model.state_dict() for one in (named, same)]
    plain = dpsgd()({}, seed=3).model.state_dict()
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])
        assert not torch.equal(value, plain[name])


X, Y = np.zeros((60, 5), dtype=np.float32), np.arange(60) % 2
FRACTIONS, ONE = (Y / 3).astype(np.float32), {"model": lambda: nn.Linear(5, 1)}


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=7), r"loader\.dataset.*batch_size=7"),
        ({"x": [[1.0] * (2 + place % 3) for place in range(60)], "labels": Y}, r"'x'.*pad.*public length"),
        ((X, np.array(["no", "yes"])[Y]), r"the targets.*classes\.index"),
        (pd.DataFrame(X).assign(y=Y), r"DataFrame.*frame\.drop\(columns='y'\)\.to_numpy\(\)"),
        (((X * 255).astype(np.uint8), Y), r"uint8.*x\.astype\('float32'\) / 255"),
        ((X, Y[:, None]), r"Targets are a column.*y\[:, 0\]"),
        ((X, Y.astype(np.float32)), r"Targets are fractions.*y\.astype\('int64'\)"),
        ((X, Y.astype(bool)), r"Targets are booleans.*y\.astype\('int64'\)"),
        ((X.astype(np.float16), Y), r"single precision: x\.astype\('float32'\)"),
        ((X.astype(np.int64), Y), r"single precision: x\.astype\('float32'\)"),
    ],
)
def test_records_of_another_kind_are_answered_with_the_conversion(data, remedy):
    with pytest.raises(TypeError, match=remedy):
        dpsgd(data=data, score=lambda model: 0.5)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"loss": nn.CrossEntropyLoss}, r"it is a class: give CrossEntropyLoss\(\)"),
        ({"loss": "mse"}, r"loss = 'mse' is not valid: give one of PyTorch's losses"),
        ({"model": lambda: nn.Linear(5, 2).double()}, r"without \.double\(\)"),
        ({"model": lambda: nn.LSTM(5, 2)}, r"the model returns a tuple: let it return one tensor"),
        ({"model": lambda: nn.Conv2d(3, 2, 3), "data": (np.zeros((60, 8, 8, 3), np.float32), Y)}, r"np\.moveaxis"),
        ({"model": lambda: nn.Conv2d(1, 2, 3), "data": (np.zeros((60, 8, 8), np.float32), Y)}, r"x\[:, None\]"),
        ({"score": "loss", "loss": nn.MSELoss(), **ONE, "data": (X, FRACTIONS[:, None])}, r"PrivateLoss\(.*bound="),
        ({"loss": nn.MSELoss(), **ONE, "data": (X, FRACTIONS)}, r"shape \(1,\).*shape \(\).*y\[:, None\]"),
        ({"loss": nn.BCEWithLogitsLoss(), **ONE, "data": (X, FRACTIONS)}, r"y\[:, None\]"),
        ({**ONE, "data": (X, FRACTIONS[:, None])}, r"always 0.*loss=torch\.nn\.MSELoss\(\)"),
    ],
)
def test_losses_models_and_targets_that_do_not_match_are_answered_with_what_to_write(given, remedy):
    with pytest.raises((TypeError, ValueError), match=remedy):
        dpsgd(**{"data": (X, Y), "score": "accuracy" if "model" in given and "loss" not in given else _half, **given})


def _half(model):
    return 0.5


def test_a_private_loss_is_that_of_the_training_unless_it_states_another():
    data, held_out = ((X[place::2], FRACTIONS[place::2, None]) for place in (0, 1))
    squared, absolute = nn.MSELoss(), nn.L1Loss()
    score = PrivateLoss(held_out, "calibrate", bound=3.0)
    given = {"data": data, "loss": squared, **ONE}
    assert dpsgd(**given, score=score).score.loss is squared
    assert dpsgd(**given, score={"a": score}).score.scores["a"].loss is squared
    assert dpsgd(**given, score=dataclasses.replace(score, loss=absolute)).score.loss is absolute
    with pytest.raises(ValueError, match="bound = None"):
        dpsgd(**given, score=dataclasses.replace(score, bound=None))
    with pytest.raises(ValueError, match="of a single output it is always 0"):
        private_test(nn.Linear(5, 1), held_out, epsilon=1, delta=1e-3, score=score)


def test_a_missing_total_is_asked_for_by_name():
    with pytest.raises(TypeError, match=r"tune needs epsilon and delta: give epsilon=.*delta=.*records"):
        dphypo.tune(dpsgd())


class _Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x):
        return self.layer(x), x


def _first_of_pair(outputs, targets):
    return (outputs[0].sum(1) - targets).square()


def test_a_model_of_several_outputs_can_be_scored_by_its_loss():
    """Its classes were asked for, for a deviation that does not depend on them, and no tensor was found."""
    score = PrivateLoss((X, FRACTIONS), 5.0, bound=2.0, records=60)
    made = dpsgd(model=_Pair, loss=_first_of_pair, data=(X, FRACTIONS), score=score)
    assert made.score_deviation == pytest.approx(5 / 60)
    assert made.classes is None
    with pytest.raises(UnsupportedModelError, match="a function of that record only"):
        dpsgd(model=_Pair, loss=_mixing_pair, data=(X, FRACTIONS), score=_half)


def _mixing_pair(outputs, targets):
    return (outputs[0] - outputs[0].mean(0)).square().sum(1) + 0 * targets
