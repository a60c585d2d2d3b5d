"""LayerNorm, GroupNorm and RMSNorm: PyTorch normalises each row, then scale and shift are applied as copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers
from dphypo.dpsgd.layers import elementwise


def _layer_norm(book: Book, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    def called(
        input: torch.Tensor,
        normalized_shape: Any,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        return _affine(book, functional.layer_norm(input, normalized_shape, None, None, eps), weight, bias)

    return called(*args, **kwargs)


def _rms_norm(book: Book, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    def called(
        input: torch.Tensor,
        normalized_shape: Any,
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        return _affine(book, functional.rms_norm(input, normalized_shape, None, eps), weight, None)

    return called(*args, **kwargs)


def _group_norm(book: Book, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    def called(
        input: torch.Tensor,
        num_groups: int,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        return _affine(book, functional.group_norm(input, num_groups, None, None, eps), weight, bias, input.dim() - 2)

    return called(*args, **kwargs)


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


HANDLERS: Handlers = {
    functional.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
    functional.group_norm: _group_norm,
}
