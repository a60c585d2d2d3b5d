"""Dropout with masks of the record's own; other random functions are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers
from dphypo.errors import UnfitModelError


def keep(book: Book, values: torch.Tensor, probability: float, *, channels: int | None = None) -> torch.Tensor:
    """Zero each number with a probability, and scale up the rest; with ``channels``, whole channels of that axis."""
    axis = book.axis(values)
    first, *rest = values.movedim(axis.dim, 0).shape
    sizes = rest if channels is None else [rest[channels - 1], *[1] * (len(rest) - channels)]
    drawn = book.masks.uniforms(axis.each * math.prod(sizes)).view(first, *sizes).movedim(0, axis.dim)
    return values * (drawn >= probability).to(values.dtype) / max(1 - probability, 1e-30)


def _dropout(
    book: Book,
    func: Callable[..., Any],
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> torch.Tensor:
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    return keep(book, input, p, channels=None if func in (functional.dropout, torch.dropout) else 1)


def _refused(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    name = getattr(func, "__name__", str(func))
    raise UnfitModelError(
        f"the model draws random numbers with {name} in its forward pass: which of them a record gets depends on its "
        f"place in the batch. Use nn.Dropout, whose masks are the record's own here, or augment="
    )


_RANDOM = (
    *(torch.rand, torch.rand_like, torch.randn, torch.randn_like, torch.randint, torch.randint_like, torch.randperm),
    *(torch.bernoulli, torch.normal, torch.poisson, torch.multinomial, torch.rrelu, torch.alpha_dropout),
    *(functional.alpha_dropout, functional.feature_alpha_dropout, functional.rrelu, functional.gumbel_softmax),
    *(torch.Tensor.bernoulli, torch.Tensor.bernoulli_, torch.Tensor.normal_, torch.Tensor.uniform_),
    *(torch.Tensor.random_, torch.Tensor.exponential_, torch.Tensor.multinomial),
)

HANDLERS: Handlers = {
    **dict.fromkeys((functional.dropout, torch.dropout), _dropout),
    **dict.fromkeys((functional.dropout1d, functional.dropout2d, functional.dropout3d), _dropout),
    **dict.fromkeys(_RANDOM, _refused),
}
