"""Functions without a parameter that must not look beyond a record: dropout, attention, losses of class labels.

Dropout masks are the record's own; other random functions are refused. ``nn.MultiheadAttention`` is made of linear
layers. A label that the outputs have no class for is replaced before it reaches a device, where an assertion would end
every run, and its record counts zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.batches import in_classes
from dphypo.dpsgd.book import Book, Handlers
from dphypo.errors import UnsupportedModelError


def _keep(book: Book, values: torch.Tensor, probability: float, *, channels: bool = False) -> torch.Tensor:
    """Zero each number with a probability, and scale up the rest; with ``channels``, whole channels of axis 1."""
    axis = book.axis(values)
    first, *rest = values.movedim(axis.dim, 0).shape
    sizes = [rest[0], *[1] * (len(rest) - 1)] if channels else rest
    drawn = book.masks.uniforms(axis.each * math.prod(sizes)).view(first, *sizes).movedim(0, axis.dim)
    return values * (drawn >= probability).to(values.dtype) / max(1 - probability, 1e-30)


def _dropout(
    book: Book, func: object, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    if not training or p == 0:
        return input
    return _keep(book, input, p, channels=func not in (functional.dropout, torch.dropout))


def _refused(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    name = getattr(func, "__name__", str(func))
    raise UnsupportedModelError(
        f"the model draws random numbers with {name} in its forward pass, and which of them a record gets depends on "
        f"its position in the batch. Use nn.Dropout, which has a mask per record here, or augment="
    )


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
    return _keep(book, kept, dropout_p) @ value


def _labelled(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    given = dict(zip(("input", "target"), args, strict=True)) | kwargs  # PyTorch names all others
    outputs, target = given.pop("input"), given.pop("target")
    if target.is_floating_point():
        return func(*args, **kwargs)
    classes, ignored = outputs.shape[1] if outputs.dim() > 1 else outputs.shape[0], given.get("ignore_index", -100)
    if target is book.targets:
        if book.clean:
            return func(*args, **kwargs)
        book.labels = classes, ignored
    inside, wrong = in_classes(target, classes, ignored)
    if len(wrong) == book.shape.rows:
        book.leave_out(wrong)
    return func(outputs, inside, **given)


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
    functional.multi_head_attention_forward: _multi_head,
    functional.scaled_dot_product_attention: _scaled_dot_product,
    **dict.fromkeys((functional.cross_entropy, functional.nll_loss), _labelled),
}
