"""Notices what may look across the records of a batch: a model, a loss or an augmentation, by its operators.

One record must not decide what others give. ``if (x > 50).any(): ...`` does, and so does ``x / x.max()``, whatever the
records of a trial are. So operators are looked at, not values, in a pass over made-up records whose number divides no
size of the model. What comes from a record is followed by the memory it lies in. Noticed is an operator

- whose result has lost the dimension of the records: a sum, a maximum, one record picked out;
- whose result has it twice: a comparison of all pairs of records;
- that runs along this dimension: a sort, a cumulative sum, a softmax;
- that turns values into Python numbers, or into sizes.

The backward pass is watched, too: hooks, and functions with a derivative of one's own. Not noticed is what does
something else in larger batches than the made-up ones, and what no operator of PyTorch does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dphypo.dpsgd.device import asks_for_padding, called_for_masks

_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_READ = {"numpy", "tolist", "__array__", "__dlpack__", "to_dlpack", "tensor_split"}
_READ |= {"_pack_padded_sequence", "nested_tensor", "_nested_tensor_from_mask_left_aligned"}
_ONLY_RAISE = {"one_hot", "gaussian_nll_loss"}  # they look whether values are in range
_ALONG = {"cumsum", "cumprod", "_cummax_helper", "_cummin_helper", "logcumsumexp", "_logcumsumexp", "sort", "argsort"}
_ALONG |= {"_softmax", "_log_softmax", "softmax", "log_softmax"}


def looks_across(use: Callable[..., torch.Tensor], *records: torch.Tensor, backward: bool = True) -> bool:
    """Whether a function of a batch may look across its records, also in its backward pass. What raises may.

    >>> rows = torch.rand(31, 2)
    >>> looks_across(torch.nn.Linear(2, 2).requires_grad_(False), rows), looks_across(lambda x: x / x.max(), rows)
    (False, True)
    """
    with watched(len(records[0])) as watch, torch.set_grad_enabled(backward):
        try:
            watch.starts += [part.detach().requires_grad_(backward and part.is_floating_point()) for part in records]
            given = [part.clone() for part in watch.starts]  # which a pass may write to
            watch.follow(given)
            results = use(*given)
            if results.requires_grad:
                weights, starts = torch.ones_like(results), [part for part in watch.starts if part.requires_grad]
                watch.follow([weights])
                torch.autograd.grad(results, starts, weights, allow_unused=True)
        except Exception:
            return True
    return watch.found


@contextlib.contextmanager
def watched(rows: int) -> Iterator[_Operators]:
    """Watch passes over batches of so many records."""
    operators = _Operators(rows)
    with operators, _Functions(operators):
        yield operators


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices operators that look across records, or turn values of records into numbers and sizes."""

    def __init__(self, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found, self.starts = False, list[torch.Tensor]()
        self._rows, self._followed = rows, dict[int, torch.UntypedStorage]()  # kept: no address is used again

    def follow(self, values: Iterable[object]) -> None:
        """Take what lies in the memory of these tensors for values of records."""
        for storage in (value.untyped_storage() for value in values if isinstance(value, torch.Tensor)):
            self._followed[storage._cdata] = storage

    def of_records(self, values: object) -> list[torch.Tensor]:
        """Those of some tensors that hold values of records."""
        some = (value for value in tree_leaves(values) if isinstance(value, torch.Tensor))
        return [value for value in some if value.untyped_storage()._cdata in self._followed]

    def _dimensions(self, values: Iterable[torch.Tensor]) -> int:
        """In how many dimensions a tensor holds records, at the most."""
        return max((sum(size % self._rows == 0 for size in value.shape if size) for value in values), default=0)

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        given, name = self.of_records((args, named)), func.overloadpacket.__name__
        result = func(*args, **named)
        if not given or name.startswith("new_") or name.endswith("_like"):  # which ask for sizes alone
            return result
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        written = [
            value
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.follow([*made, *tree_leaves(written)])
        if func is torch.ops.aten.index.Tensor:
            self.found |= any(part.dtype in (torch.bool, torch.uint8) for part in self.of_records(args[1]))
        else:
            self.found |= not _DEPENDS.isdisjoint(func.tags)
        before, after = self._dimensions(given), self._dimensions(made)
        self.found |= after > before or (after == 0 and any(value.numel() for value in made))
        if name in _ALONG:
            places = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | named
            self.found |= args[0].dim() > 0 and args[0].shape[places.get("dim", -1)] % self._rows == 0
        return result


class _Functions(TorchFunctionMode):
    """Notices functions that read values without an operator, and leaves out those whose operators only raise."""

    def __init__(self, operators: _Operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if asks_for_padding(func):
            return False  # for all batches
        operators, name, named = self._operators, getattr(func, "__name__", ""), kwargs or {}
        before, masks = operators.found, called_for_masks()
        operators.found |= name in _READ and bool(operators.of_records((args, named)))
        result = func(*args, **named)
        # one_hot alone takes its size from the values
        if masks or (name in _ONLY_RAISE and len(args) + len(named) > 1):
            operators.found = before
        if func is torch.nn.functional.embedding and torch.is_grad_enabled() and operators.of_records(result):
            operators.starts.append(result.detach().requires_grad_())  # where the backward pass of tokens ends
            result = operators.starts[-1].clone()
            operators.follow([result])
        return result
