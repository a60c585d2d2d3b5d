"""Attention: ``nn.MultiheadAttention`` is made of linear layers, and the dropout of its weights is the record's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers
from dphypo.dpsgd.layers import dropout


def _multi_head(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the function's own body under the book: its first line, which asks for overrides, sees none.

    Its last linear layer takes positions and rows as one dimension, the rows last.
    """
    module: Any = functional
    asked = module.has_torch_function
    module.has_torch_function, book.in_attention = lambda *_: False, True
    try:
        with book:
            return func(*args, **kwargs)
    finally:
        module.has_torch_function, book.in_attention = asked, False


def _scaled_dot_product(
    book: Book,
    func: Callable[..., Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p == 0:
        more = {"enable_gqa": True} if enable_gqa else {}  # older versions of PyTorch do not take it
        return func(query, key, value, attn_mask, 0.0, is_causal, scale=scale, **more)
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~causal, -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    nothing = scores.isneginf().all(-1, keepdim=True)  # a position that may look at none counts zero, as in PyTorch
    kept = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
    return dropout.keep(book, kept, dropout_p) @ value


HANDLERS: Handlers = {
    functional.multi_head_attention_forward: _multi_head,
    functional.scaled_dot_product_attention: _scaled_dot_product,
}
