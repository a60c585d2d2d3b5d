"""Does a model decide by the values of a batch? Then one record may change how all others are computed.

``if mask.all(): ...`` takes another path for all records because of one. Such a model is tried on made-up records, and
functions of PyTorch that turn values into Python numbers or into sizes are noticed. What compiled code decides inside
is not seen, and neither is a function that is called on a numpy array.

What models of ``transformers`` ask of their masks has one answer for all batches (``dpsgd/device.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dphypo.dpsgd.device import asks_for_padding

_NUMBERS = (
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
    "item",
    "tolist",
    "numpy",
    "is_nonzero",
    "equal",
    "allclose",
    "_nested_tensor_from_mask_left_aligned",
)
_SIZES = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "_pack_padded_sequence")
_READERS = frozenset({*_NUMBERS, *_SIZES})


@torch.no_grad()
def reads_values(model: nn.Module, inputs: torch.Tensor) -> bool:
    """Whether the model turns values of a batch into Python numbers, or into sizes.

    >>> reads_values(nn.Linear(2, 2), torch.zeros(3, 2))
    False
    """
    watch = _Watch()
    with watch:
        model(inputs)
    return watch.found


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if (name in _READERS or (name == "__getitem__" and _is_mask(args[1]))) and not asks_for_padding(func):
            self.found = True
        return func(*args, **(kwargs or {}))


def _is_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in parts)
