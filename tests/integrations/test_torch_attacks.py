"""Attacks on one step of DP-SGD: one record moves a step by at most the clipping norm.

Each attack ran against an earlier version and moved a step by more, or saw noise that was not Gaussian.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.torch_steps import (
    Frames,
    cancelling,
    change,
    first_output,
    moved,
    nothing,
    one_step,
    share_of_24_bits,
    wide,
)
from torch import nn

from dphypo.errors import UnsupportedModelError


class Convolution(nn.Module):
    """A convolution beside a wide linear layer, which holds nearly all weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.wide = nn.Conv1d(4, 4, 1, bias=False), nn.Linear(64, 64, bias=False)
        for layer in (self.conv, self.wide):
            nn.init.zeros_(layer.weight)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.conv(frames.mT).mean(2) + self.wide(0.0 * frames.flatten(1))[:, :4]  # type: ignore[no-any-return]


class Decides(nn.Module):
    """Turns all records round if one of them has a value that no made-up one has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(-inputs if (inputs == 60).any() else inputs)  # type: ignore[no-any-return]


class DecidesInside(Decides):
    """The same by tensors alone, if one is large: no value becomes a number of Python."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs * torch.where((inputs > 50).any(), -1.0, 1.0))  # type: ignore[no-any-return]


def decides(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The same in a loss: a target says it."""
    return outputs.sum(1) * (-1.0 if (targets > 50).any() else 1.0)


def test_one_record_does_not_decide_for_its_batch() -> None:
    """One record moved a step by 79 clipping norms. Here it decides for itself."""
    inputs, targets = torch.ones(40, 4), torch.zeros(40)
    inputs[-1] = 60.0
    assert 0 < moved(DecidesInside, inputs, targets, loss=first_output, max_grad_norm=0.5) < 1.001


@pytest.mark.parametrize("options", [{"model": Decides}, {"model": DecidesInside, "loss": decides}])
def test_a_decision_by_values_is_refused_with_its_line_and_a_remedy(options: dict[str, Any]) -> None:
    given = {"loss": first_output, **options}
    with pytest.raises(UnsupportedModelError, match=r"test_torch_attacks.py, line \d+ .*torch\.where"):
        one_step(inputs=torch.ones(40, 4), targets=torch.zeros(40), records=40, **given)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Frames, cancelling(2, 512, 1e6, 1e-6)),
        (Frames, cancelling(2, 512, 3e4, 1e-4)),
        (Frames, cancelling(64, 512, 1e8, 1e-4)),
        (Convolution, cancelling(16, 4, 1e8, 1e-7)),
    ],
    ids=["two frames", "16-bit sound", "64 frames", "convolution"],
)
def test_frames_that_cancel_are_clipped(model: Any, inputs: torch.Tensor) -> None:
    """Ghost norms in float32 are differences of large numbers: such a record had norm 0 and was not clipped."""
    targets = torch.zeros(len(inputs))
    assert 0 < moved(model, inputs, targets, loss=first_output, max_grad_norm=0.5) < 1.001


def larger(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
    return inputs * (1 + 1e4 * uniforms(1).unsqueeze(-1))


@pytest.mark.parametrize(
    "changes",
    [
        {"clipping": "normalise"},
        {"views": 3, "augment": larger},
        {"autocast": "bfloat16"},
        {"average": "last half", "optimizer": "sgd", "fixed": {"momentum": 0.9}},
        {"physical_batch_size": 3},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize(
    "record", [cancelling(2, 512, 1e6, 1e-6)[-1], torch.full((2, 512), 1e30), torch.full((2, 512), 1e-30)]
)
def test_whatever_is_done_with_gradients_one_record_is_clipped(changes: dict[str, Any], record: torch.Tensor) -> None:
    inputs = torch.cat([torch.randn(7, 2, 512, generator=torch.Generator().manual_seed(1)), record[None]])
    assert moved(Frames, inputs, torch.zeros(8), loss=first_output, max_grad_norm=0.5, **changes) < 1.001


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_below_single_precision_are_refused(kind: torch.dtype) -> None:
    """Sums were taken in the type of the weights: in bfloat16 one record more than 4112 moved them by 32."""
    with pytest.raises(UnsupportedModelError, match=r"'weight' is torch\.b?float16.*float32"):
        one_step(lambda: nn.Linear(2, 2).to(kind), torch.zeros(4, 2, dtype=kind), torch.zeros(4).long(), 4)


class HalfPrecision(nn.Module):
    """Weights in single precision, whose forward pass is in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(inputs)  # type: ignore[no-any-return]


def test_sums_of_half_precision_gradients_are_not_rounded_to_them() -> None:
    """The sum of 4112 ones is 4096 in bfloat16, and that of 4113 ones is 4128."""
    inputs = torch.full((4113, 1), 8.0)
    assert moved(HalfPrecision, inputs, torch.zeros(4113), loss=first_output) < 1.01


def test_autocast_of_the_caller_does_not_round_a_run() -> None:
    one = one_step(Frames, torch.randn(4, 2, 512), torch.zeros(4), 4, loss=first_output)
    outside = change(one)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(change(one), outside)


def test_the_noise_is_not_cut_off() -> None:
    """Single precision makes normals from uniforms of 24 bits, none beyond 5.77 σ: a larger value told of a record."""
    one = one_step(wide, torch.zeros(1, 500), torch.zeros(1), 1, loss=nothing)
    assert share_of_24_bits(torch.cat([change(one, seed=seed) for seed in range(4)])) < 0.3  # expected: 0.1
