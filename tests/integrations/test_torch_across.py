"""What looks across the records of a batch moves a step by one record's share all the same, with either engine.

Each of these models, losses and augmentations is what somebody might write. One record moved a step by 5 to 79 clipping
norms: no value of a made-up record makes the decision that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_steps import first_output, moved
from torch import nn
from torch.nn import functional

from dphypo.dpsgd import trainable
from dphypo.integrations.torch.runs import Engine

COUNT = 40
ZEROS = torch.zeros(COUNT)


class Passes(nn.Module):
    """One linear layer, whose weights are zero, behind a function of the batch."""

    def __init__(self, before: Callable[[torch.Tensor], torch.Tensor], features: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.before, self.layer = before, nn.Linear(features, outputs, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(self.before(inputs))  # type: ignore[no-any-return]


class InTraining(Passes):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(-inputs if self.training and (inputs == 60).any() else inputs)  # type: ignore[no-any-return]


class Swallows(Passes):
    """Goes on where a decision is refused."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        try:
            odd = bool((inputs == 60).any())
        except RuntimeError:
            odd = False
        return self.layer(-inputs if odd else inputs)  # type: ignore[no-any-return]


class Hooked(Passes):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(inputs.tanh())
        if outputs.requires_grad:
            outputs.register_hook(lambda slope: slope / slope.norm() if slope.norm() > 50 else slope)
        return outputs  # type: ignore[no-any-return]


class Clip(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return torch.where(slope.norm() > 50, slope / slope.norm(), slope)


class OwnDerivative(Passes):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return Clip.apply(self.layer(inputs.tanh()))  # type: ignore[no-any-return, no-untyped-call]


def last(values: torch.Tensor, value: Any) -> torch.Tensor:
    changed = values.clone()
    changed[-1] = value
    return changed


def longest(series: torch.Tensor) -> torch.Tensor:
    return series.sum(1) / (series != 0).any(2).sum(1).max() - 0.3


def near(inputs: torch.Tensor) -> torch.Tensor:
    """Records turned round by a large one that is near."""
    others = torch.stack([inputs.roll(step, 0) for step in range(-9, 10) if step])
    return inputs * torch.where((others > 50).any(0), -1.0, 1.0)


ONES, BYTES = torch.ones(COUNT, 4), torch.full((COUNT, 32), 10, dtype=torch.uint8)
SERIES = torch.cat([torch.ones(COUNT, 10, 4), torch.zeros(COUNT, 40, 4)], 1)
MODELS = {
    "bytes by the largest": (lambda: Passes(lambda x: x.float() / x.max() - 0.3, 32), last(BYTES, 255)),
    "by the longest": (lambda: Passes(longest), last(SERIES, 1.0)),
    "whole numbers": (lambda: Passes(lambda x: x * torch.where((x > 50).any(), -1.0, 1.0)), last(ONES.long(), 60)),
    "a running flag": (lambda: Passes(lambda x: x * (1 - 2 * (x.flip(0) == 60).cumsum(0).flip(0))), last(ONES, 60.0)),
    "neighbours": (lambda: Passes(near), last(ONES, 60.0)),
    "in training": (lambda: InTraining(nn.Identity()), last(ONES, 60.0)),
    "a swallowed refusal": (lambda: Swallows(nn.Identity()), last(ONES, 60.0)),
}


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_looks_across_records_is_trained_record_by_record(name: str, engine: Engine) -> None:
    model, inputs = MODELS[name]
    assert 0 < moved(model, inputs, ZEROS, loss=first_output, max_grad_norm=0.5, engine=engine) < 1.001


def test_what_the_watch_would_miss_is_seen_beside_large_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainable, "looks_across", lambda *_, **__: False)
    model, inputs = lambda: Passes(near), last(ONES, 60.0)
    assert 0 < moved(model, inputs, ZEROS, loss=first_output, max_grad_norm=0.5) < 1.001


def rare(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Other weights of the classes if one of them occurs."""
    occurs = (targets == 2).any()
    weights = torch.where(occurs, torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    return functional.cross_entropy(outputs, targets, reduction="none") * weights[targets]


def positives(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none") / (targets == 2).sum().clamp(min=1)


def guard(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Smaller losses if one of them explodes."""
    losses = (outputs.sum(1) - targets).square()
    return torch.where(losses.detach().max() > 1e4, losses * 1e-4, losses)


def squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.sum(1) - targets).square()


LOSSES = {
    "a rare class": (rare, lambda: Passes(nn.Identity(), 4, 3), last(ZEROS.long(), 2)),
    "by the number of positives": (
        positives,
        lambda: Passes(nn.Identity(), 4, 3),
        last(last(ZEROS.long(), 2).roll(1), 2),
    ),
    "exploding losses": (guard, lambda: Passes(torch.tanh), last(ZEROS + 0.5, 1e3)),
    "a hook": (squares, lambda: Hooked(nn.Identity()), last(ZEROS + 0.5, 1e6)),
    "a derivative of one's own": (squares, lambda: OwnDerivative(nn.Identity()), last(ZEROS + 0.5, 1e6)),
}


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_looks_across_records_is_differentiated_record_by_record(name: str, engine: Engine) -> None:
    loss, model, targets = LOSSES[name]
    assert 0 < moved(model, ONES, targets, loss=loss, max_grad_norm=0.5, engine=engine) < 1.001


def test_an_augmentation_that_looks_across_records_sees_one_at_a_time() -> None:
    def augment(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
        return inputs * torch.where((inputs == 60).any(), -1.0, 1.0)

    model = lambda: Passes(nn.Identity())  # noqa: E731
    inputs = last(ONES, 60.0)
    assert 0 < moved(model, inputs, ZEROS, loss=first_output, max_grad_norm=0.5, augment=augment) < 1.001
