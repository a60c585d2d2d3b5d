"""The pieces of a step for a GPU: compiled once for any batch size, the norm of the second convolution by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paper.train import gradients, pooling

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # a machine without a GPU
    triton = None


def compiled(function: Callable[..., Tensor], **batch_axis: int) -> Callable[..., Tensor]:
    """``function`` compiled, with the batch's axis of each positional argument (in order) free to vary."""
    fast = torch.compile(function)
    axes = list(batch_axis.values())

    def call(*args: Any) -> Tensor:
        for argument, axis in zip(args, axes, strict=False):
            torch._dynamo.maybe_mark_dynamic(argument, axis)
        return fast(*args)

    return call


def fused_pieces() -> gradients.Pieces:
    """All pieces compiled; the second convolution's squares by :func:`triton_squares` where there is Triton."""
    torch._dynamo.config.automatic_dynamic_shapes = False  # the batch varies, the number of models does not
    plain = gradients.Pieces()
    return gradients.Pieces(
        patches=compiled(pooling.second_patches, z=0),
        fold=compiled(pooling.folded, gradient=1),
        unpool=compiled(pooling.unpooled, gradient=0, z=0),
        inputs=compiled(gradients.hidden_inputs, z=1),
        inputs_gradient=compiled(gradients.hidden_inputs_gradient, gradient=1, z=1),
        squares=plain.squares if triton is None else triton_squares,
        scaled=compiled(gradients.scaled, gradient=1, weight=1),
        squares_of_first=compiled(gradients.squares_of_first, samples=0),
        weighted_first=compiled(gradients.weighted_first, samples=0, weight=1),
    )


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _squares(patches, gradient, out, T: tl.constexpr, TP: tl.constexpr, I: tl.constexpr, O: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: E741
        n = tl.program_id(0).to(tl.int64)
        t, o = tl.arange(0, TP), tl.arange(0, O)
        inside = t[:, None] < T
        d = tl.load(gradient + n * T * O + t[:, None] * O + o[None, :], mask=inside, other=0.0)
        bias = tl.sum(d.to(tl.float32), axis=0)
        total = tl.sum(bias * bias, axis=0)
        for start in tl.static_range(0, I, 64):
            i = start + tl.arange(0, 64)
            a = tl.load(patches + n * T * I + t[:, None] * I + i[None, :], mask=inside, other=0.0)
            g = tl.dot(tl.trans(d), a)
            total += tl.sum(tl.sum(g * g, axis=1), axis=0)
        tl.store(out + n, total)


def triton_squares(patches: Tensor, gradient: Tensor) -> Tensor:
    """:func:`paper.train.gradients.gram_squares`, by forming each sample's gradient in registers and squaring it."""
    models, count, positions, width = patches.shape
    out = torch.empty(models, count, device=patches.device)
    padded = triton.next_power_of_2(positions)
    _squares[(models * count,)](
        patches, gradient, out, positions, padded, width, gradient.shape[3], num_warps=4 if padded > 32 else 2
    )
    return out
