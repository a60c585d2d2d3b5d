"""LayerNorm, GroupNorm and RMSNorm: PyTorch normalises each row, then scale and shift are applied as copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers
from dphypo.dpsgd.layers import elementwise


def _normalise(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    sizes = "num_groups" if func is functional.group_norm else "normalized_shape"
    names = ("input", sizes, "weight", *(() if func is functional.rms_norm else ("bias",)), "eps")
    given = dict(zip(names, args, strict=False)) | kwargs
    weight, bias = given.pop("weight", None), given.pop("bias", None)
    return _affine(book, func(**given), weight, bias, given["input"].dim() - 2 if sizes == "num_groups" else 0)


def _affine(
    book: Book, made: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, after: int = 0
) -> torch.Tensor:
    """Scale and shift, trained or frozen; ``after`` dimensions of the outputs follow those of the parameters."""

    def factor(value: torch.Tensor) -> torch.Tensor:
        place = book.place(value)
        if place is None:
            return value.view(*value.shape, *[1] * after)
        return elementwise.copies(book, place, made, after)

    if weight is not None:
        made = made * factor(weight)
    return made if bias is None else made + factor(bias)


HANDLERS: Handlers = dict.fromkeys((functional.layer_norm, functional.rms_norm, functional.group_norm), _normalise)
