"""Arguments that are declared wrongly are refused when they are given, by name, before anything is trained."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import accuracy_score
from support.torch_world import dpsgd
from torch import nn

from dphypo.errors import UnsupportedModelError


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), "gpu", 7.5, "meta", ""])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ValueError, match=r"device = .*PyTorch can use cpu here: give a device that it can use"):
        dpsgd(device=device)


@pytest.mark.parametrize("schedule", ["cosine", 0.5, lambda: 1.0, lambda done: None, lambda done: 1 / done, math.log])
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
