"""Largest numbers of windows: PyTorch's own, and on a GPU kernels that are some times faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book, Handlers
from dphypo.dpsgd.layers import kernels


def _max_pool(book: Book, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    given = dict(zip(names, args, strict=False)) | kwargs
    kernel = _pair(given["kernel_size"])
    stride = kernel if given.get("stride") in (None, [], ()) else _pair(given["stride"])
    plain = _pair(given.get("padding", 0)) == (0, 0) and _pair(given.get("dilation", 1)) == (1, 1)
    pictures = given["input"]
    usable = kernels.AVAILABLE and pictures.is_cuda and pictures.dim() == 4 and kernel[0] * kernel[1] < 128
    other = given.get("ceil_mode") or given.get("return_indices")
    if book.axes is None or not usable or not plain or other:  # vmap takes PyTorch's own
        return func(*args, **kwargs)
    return kernels.Pool.apply(pictures, kernel, stride)  # type: ignore[no-untyped-call]


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values[0], values[-1]


HANDLERS: Handlers = dict.fromkeys((functional.max_pool2d, torch.max_pool2d), _max_pool)
