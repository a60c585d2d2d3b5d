"""Losses of class labels: a label that the outputs have no class for puts its record outside the domain.

It is replaced before it reaches a device, where an assertion would end every run, and the record counts zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers


def _labelled(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    given = dict(zip(("input", "target"), args, strict=False)) | kwargs
    outputs, target = given["input"], given["target"]
    if target.is_floating_point() or len(args) > 2:
        return func(*args, **kwargs)
    classes, ignored = outputs.shape[1] if outputs.dim() > 1 else outputs.shape[0], kwargs.get("ignore_index", -100)
    if target is book.targets:
        if book.clean:
            return func(*args, **kwargs)
        book.labels = classes, ignored
    inside = target.clamp(0, classes - 1)
    wrong = (inside != target) & (target != ignored)
    if len(wrong) == book.shape.rows:
        book.leave_out(wrong if wrong.dim() == 1 else wrong.flatten(1).any(1))
    rest = {name: value for name, value in kwargs.items() if name not in ("input", "target")}
    return func(outputs, torch.where(wrong, inside, target), **rest)


HANDLERS: Handlers = {functional.cross_entropy: _labelled, functional.nll_loss: _labelled}
