"""Clipped gradients of K models on one batch, per sample and exact, without storing per-sample gradients.

The squared norm of a sample's gradient is the sum over layers of: |input|² |output gradient|² for a linear layer
(the gradient is their outer product), the squares of the small per-sample gradient of the first convolution, and the
inner product of two Gram matrices over positions for the second. Each sample's output gradients are then scaled by
min(1, R / norm) and multiplied once more with the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paper.train import pooling
from paper.train.network import Network, Parameters


def wide(x: Tensor) -> Tensor:
    """At least float32: what norms and sums are computed in."""
    return x if x.dtype == torch.float64 else x.float()


def gram_squares(patches: Tensor, gradient: Tensor) -> Tensor:
    """|Σ_t gradient_t (patches_t, 1)ᵀ|², weights and bias, by model and sample: (K, b) from (K, b, t, i) and (…, o)."""
    # Inputs are raised to float32 first: the terms have both signs, and rounding each would not average out.
    patches, gradient = wide(patches), wide(gradient)
    return ((patches @ patches.mT + 1) * (gradient @ gradient.mT)).sum((2, 3)).clamp_min(0)


def hidden_inputs(z: Tensor, bias: Tensor) -> Tensor:
    """The second convolution's bias, rectifier and pooling: (K, b, features) from z (K, b, y, x, 32)."""
    return pooling.pooled(z + bias[:, None, None, None], 2, 3).flatten(2)


def hidden_inputs_gradient(gradient: Tensor, z: Tensor, bias: Tensor) -> Tensor:
    """Its gradient with respect to z, positions flattened."""
    side = z.shape[2] - 1
    gradient = gradient.view(*z.shape[:2], side, side, z.shape[4])
    return pooling.unpooled(gradient, z + bias[:, None, None, None], 2, 3).flatten(2, 3)


def squares_of_first(samples: Tensor) -> Tensor:
    """(K, b) sums of squares of the first convolution's per-sample gradients (b, rows, K, 16)."""
    return wide(samples).square().sum((1, 3)).T


def weighted_first(samples: Tensor, weight: Tensor) -> Tensor:
    """The sum over samples of weight (K, b) times gradient (b, rows, K, 16)."""
    return (wide(samples) * weight.T[:, None, :, None]).sum(0)


def scaled(gradient: Tensor, weight: Tensor) -> Tensor:
    """Every position's gradient times the weight (K, b) of its sample."""
    return (gradient * weight[:, :, None, None]).to(gradient.dtype)


@dataclass(frozen=True)
class Pieces:
    """The parts that a compiler may fuse; the matrix products between them are left to the library."""

    patches: Callable[[Tensor], Tensor] = pooling.second_patches
    fold: Callable[[Tensor, int], Tensor] = pooling.folded
    unpool: Callable[[Tensor, Tensor, int, int], Tensor] = pooling.unpooled
    inputs: Callable[[Tensor, Tensor], Tensor] = hidden_inputs
    inputs_gradient: Callable[[Tensor, Tensor, Tensor], Tensor] = hidden_inputs_gradient
    squares: Callable[[Tensor, Tensor], Tensor] = gram_squares
    scaled: Callable[[Tensor, Tensor], Tensor] = scaled
    squares_of_first: Callable[[Tensor], Tensor] = squares_of_first
    weighted_first: Callable[[Tensor, Tensor], Tensor] = weighted_first


@dataclass(frozen=True)
class Gradients:
    """Clipped gradient sums; ``dtype`` is that of activations (weights, norms and sums stay float32)."""

    network: Network
    dtype: torch.dtype = torch.float32
    pieces: Pieces = field(default_factory=Pieces)

    def forward(self, p: Parameters, patches: Tensor) -> tuple[Tensor, ...]:
        """Activations of K models on patches (b, positions, columns), the logits last."""
        net, dtype = self.network, self.dtype
        count, models = len(patches), len(p.second)
        padding = net.columns - net.rows
        first = torch.nn.functional.pad(p.first.flatten(1), (0, 0, 0, padding)).to(dtype)
        z1 = (patches.flatten(0, 1) @ first).view(count, net.first, net.first, models, 16)
        a2 = self.pieces.patches(z1)
        z2 = torch.bmm(a2.flatten(1, 2), p.second.to(dtype)).view(models, count, net.second, net.second, 32)
        a3 = self.pieces.inputs(z2, p.second_bias.to(dtype))
        z3 = torch.baddbmm(p.hidden_bias.to(dtype)[:, None], a3, p.hidden.to(dtype))
        a4 = z3.relu()
        logits = torch.baddbmm(p.last_bias.to(dtype)[:, None], a4, p.last.to(dtype))
        return z1, a2, z2, a3, a4, wide(logits)

    def clipped(
        self, p: Parameters, patches: Tensor, labels: Tensor, present: Tensor, clip: Tensor
    ) -> tuple[Parameters, Tensor]:
        """Σ over present samples of gradient · min(1, R / norm), for each model's R, and the norms (K, b).

        ``present`` (b,) is 1 for samples of the batch and 0 for padding.
        """
        net, dtype, pieces = self.network, self.dtype, self.pieces
        z1, a2, z2, a3, a4, logits = self.forward(p, patches)
        one_hot = torch.nn.functional.one_hot(labels, 10)
        d5 = (logits.softmax(2) - one_hot).to(dtype)
        d4 = torch.bmm(d5, p.last.to(dtype).mT) * (a4 > 0)
        d3 = torch.bmm(d4, p.hidden.to(dtype).mT)
        d2 = pieces.inputs_gradient(d3, z2, p.second_bias.to(dtype))
        da2 = torch.bmm(d2.flatten(1, 2), p.second.to(dtype).mT).view_as(a2)
        d1 = pieces.unpool(pieces.fold(da2, net.second), z1, 1, 2)
        del da2
        samples = torch.bmm(patches.mT, d1.flatten(1, 2).flatten(2)).view(len(patches), net.columns, -1, 16)

        squares = _squares(d5) * (_squares(a4) + 1) + _squares(d4) * (_squares(a3) + 1)
        norms = (squares + pieces.squares(a2, d2) + pieces.squares_of_first(samples)).sqrt()
        weight = present * (clip[:, None] / (norms + 1e-6)).clamp_max(1.0)  # Opacus's rule, its 1e-6 too

        w5, w4 = ((d * weight[:, :, None]).to(dtype) for d in (d5, d4))
        w2 = pieces.scaled(d2, weight)
        sums = Parameters(
            pieces.weighted_first(samples, weight)[: net.rows],
            wide(torch.bmm(a2.flatten(1, 2).mT, w2.flatten(1, 2))),
            wide(w2).sum((1, 2)),
            wide(torch.bmm(a3.mT, w4)),
            wide(w4).sum(1),
            wide(torch.bmm(a4.mT, w5)),
            wide(w5).sum(1),
        )
        return sums, norms


def _squares(x: Tensor) -> Tensor:
    return wide(x).square().sum(2)
