"""What looks across the records of a batch is refused, or moves a step by one record's share all the same.

Each of these models, losses and augmentations is what somebody might write. One record moved a step by 5 to 159
clipping norms in engines that ran them on batches: no value of a made-up record makes the decision that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_steps import graph_moved
from torch import nn
from torch.nn import functional

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


class ByLength(Passes):
    """Another function in larger batches than any trial has."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(-inputs if len(inputs) > 40 and bool((inputs == 60).any()) else inputs)  # type: ignore[no-any-return]


class ByText(Passes):
    """Reads values without an operator."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(-inputs if "60" in repr(inputs) else inputs)  # type: ignore[no-any-return]


class OwnRule(torch.autograd.Function):
    """A rule for batches of one's own, which mixes records."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: Any, values: torch.Tensor) -> tuple[torch.Tensor, int]:
        return values * torch.where((values == 60).any(), -1.0, 1.0), dims[0]

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return slope


MODELS |= {
    "many records": (lambda: ByLength(nn.Identity()), last(torch.ones(50, 4), 60.0)),
    "its text": (lambda: ByText(nn.Identity()), last(ONES, 60.0)),
    "a rule of one's own": (lambda: Passes(OwnRule.apply), last(ONES, 60.0)),
    "the largest": (lambda: Passes(lambda x: x / x.max()), last(ONES, 60.0)),
    "a table of pairs": (lambda: Passes(lambda x: x - (x @ x.T > 50).float() @ x), last(ONES, 60.0)),
    "any, as an operator": (
        lambda: Passes(lambda x: x * (1 - 2 * torch._is_any_true(x == 60).float())),
        last(ONES, 60.0),
    ),
    "strides": (lambda: Passes(lambda x: x.t().contiguous().t().as_strided((1, 4), (4, 1))), last(ONES, 60.0)),
    "memory": (lambda: Passes(lambda x: x + 0 * torch.empty(4)), last(ONES, 60.0)),
    "a neighbour's row": (
        lambda: Passes(lambda x: x.index_fill(0, (x[:, 0] == 60).long() * 3, -1.0)),
        last(ONES, 60.0),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_looks_across_records_moves_one_records_share(name: str) -> None:
    model, inputs = MODELS[name]
    found = graph_moved(model, inputs, torch.zeros(len(inputs)))
    assert isinstance(found, str) or 0 <= found < 1.001, found


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


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_looks_across_records_moves_one_records_share(name: str) -> None:
    loss, model, targets = LOSSES[name]
    found = graph_moved(model, ONES, targets, loss=loss)
    assert isinstance(found, str) or 0 <= found < 1.001, found


def test_an_augmentation_that_looks_across_records_sees_one_at_a_time() -> None:
    def augment(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
        return inputs * torch.where((inputs == 60).any(), -1.0, 1.0)

    assert 0 < graph_moved(lambda: Passes(nn.Identity()), last(ONES, 60.0), ZEROS, augment=augment) < 1.001  # type: ignore[operator]
