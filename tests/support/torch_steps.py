"""One step of DP-SGD over all records, so that the weights tell the noisy sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch import DPSGD
from dphypo.torch.engine import Program, Run, Setting
from dphypo.torch.engine.clipped_sum import Shape, Sums, Weights, add_clipped
from dphypo.torch.record_values import per_record


def one_step(model: Any, inputs: torch.Tensor, targets: torch.Tensor, records: int, **changes: Any) -> DPSGD:
    """One step over all records, so that the weights tell the noisy sum."""
    arguments: dict[str, Any] = {
        "model": model,
        "data": (inputs, targets),
        "score": lambda model: 0.0,
        "noise_multiplier": 1.0,
        "batch_size": records,
        "records": records,
        "epochs": 1,
        "learning_rate": 1.0,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def change(mechanism: DPSGD, params: dict[str, Any] | None = None, seed: int = 1) -> torch.Tensor:
    """What one step added to the weights that start at zero, in units of the clipping norm."""
    trained = mechanism(params or {}, seed=seed).model
    weights = torch.cat([parameter.detach().double().flatten() for parameter in trained.parameters()])
    return weights * mechanism.batch_size / mechanism.max_grad_norm


def moved(model: Any, inputs: torch.Tensor, targets: torch.Tensor, **changes: Any) -> float:
    """How far the last record moves a step, in units of the clipping norm. The noise is the same with and without."""
    records = len(inputs)
    with_it = change(one_step(model, inputs, targets, records, **changes))
    without = change(one_step(model, inputs[:-1], targets[:-1], records, **changes))
    return float((with_it - without).norm())


def graph_moved(model: Any, inputs: torch.Tensor, targets: torch.Tensor, **options: Any) -> float | str:
    """How far the last record moves the clipped sum of a captured step, or why the model is refused."""
    loss = per_record(options.pop("loss", first_output))
    built = model()
    try:
        program = Program.of(built, loss, (inputs[:1], targets[:1]), **options)
    except UnsupportedModelError as error:
        return str(error)
    count = 32 * -(-len(inputs) // 32)
    filled = torch.arange(count).clamp(max=len(inputs) - 1)
    valid = (torch.arange(count) < len(inputs))[None]
    rows, shape = program.layout.stacked([built], inputs.device), Shape(1, count, program.views)
    run = Run(
        seed=1, records=count, rate=1.0, steps=1, batch_size=1, noise_multiplier=1, max_grad_norm=1, learning_rate=1
    )
    grid = run.grid(program.layout.size, program.sum_terms, Setting())
    weights, found = Weights([grid], normalise=False, device=inputs.device), []
    bound = program.on(rows, shape).bound(rows, shape)
    for with_it in (True, False):
        given = inputs[filled].clone(), targets[filled].clone()
        valid[0, len(inputs) - 1] = with_it
        if not with_it:  # whatever is in its place
            given[0][len(inputs) - 1 :], given[1][len(inputs) - 1 :] = inputs[0], targets[0]
        keys = torch.arange(count * program.views).reshape(1, -1)
        with torch.no_grad():
            parts, outside = bound.parts(*given, keys)
            sums = Sums(rows)
            add_clipped(parts, valid & ~outside, weights, sums)
        found.append(sums.rows / grid.scale)
    return float((found[0] - found[1]).norm())


class Frames(nn.Module):
    """One linear layer on every frame, then the mean over the frames."""

    def __init__(self, features: int = 512, outputs: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.linear(frames).mean(1)  # type: ignore[no-any-return]


def first_output(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.sum(1)


def cancelling(frames: int, features: int, size: float, rest: float) -> torch.Tensor:
    """Zeros, and a last record whose frames are large and cancel but for a small rest."""
    inputs = torch.zeros(8, frames, features)
    generator = torch.Generator().manual_seed(0)
    large = size * torch.randn(frames // 2, features, generator=generator)
    small = size * rest * torch.randn(frames // 2, features, generator=generator)
    inputs[-1] = torch.cat([large, small - large])
    return inputs


def wide() -> nn.Module:
    model = nn.Linear(500, 500, bias=False)
    nn.init.zeros_(model.weight)
    return model


def nothing(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.0 * outputs.sum(1)


def share_of_24_bits(normals: torch.Tensor) -> float:
    """Which share of pairs of normals comes from uniforms of 24 bits, as PyTorch's in single precision do on a CPU.

    Two normals of one uniform u have z² + z'² = -2 ln u. They stand eight places apart in blocks of sixteen.
    """
    uniforms = torch.exp(-normals.double().reshape(-1, 2, 8).square().sum(1).flatten() / 2).numpy() * 2.0**24
    small = uniforms[uniforms < 2**24 * 1e-3]
    assert len(small) > 200
    return float((np.abs(small - np.rint(small)) < 0.05).mean())
