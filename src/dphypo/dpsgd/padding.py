"""Models of ``transformers`` ask whether any record of a batch has padding, and choose a kernel by the answer.

Both kernels give the same result, up to rounding: one record with padding would change the last bits of all others. The
answer is always that there may be padding, for which the kernel is right whatever the records are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MASKS = frozenset({"transformers.masking_utils", "transformers.modeling_attn_mask_utils"})


def asks_for_padding(func: Callable[..., Any], depth: int = 2) -> bool:
    """Whether a function of PyTorch is asked by ``transformers`` if a batch has no padding."""
    return func is torch.Tensor.__bool__ and sys._getframe(depth).f_globals.get("__name__") in _MASKS


class SomePadding(TorchFunctionMode):
    """Answers that a batch may have padding, whatever the records are."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return False if asks_for_padding(func) else func(*args, **(kwargs or {}))
