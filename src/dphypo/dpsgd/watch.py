"""Notices what may look across the records of a batch: a model, a loss or an augmentation, by its operators.

One record must not decide what others give. ``if (x > 50).any(): ...`` does, and so does ``x / x.max()``, whatever the
records of a trial are. So operators are looked at, one by one, in a pass over made-up records whose number divides no
size of the model. What comes from a record is followed by the memory it lies in. Noticed is an operator

- whose result has lost the dimension of the records: a sum, a maximum, one record picked out;
- whose result has it twice: a comparison of all pairs of records;
- that turns values into Python numbers, or into sizes;
- that gives records another result if one other record is turned (:meth:`_Operators._keeps_apart`): a sort or a scan
  along the records, a scatter to places that a record names.

The backward pass is watched, too: hooks, and functions with a derivative of one's own. Not noticed is what does
something else in larger batches than the made-up ones, or rarely; and what no operator of PyTorch does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from dphypo.dpsgd.device import asks_for_padding, called_for_masks

_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_READ = {"numpy", "tolist", "__array__", "__dlpack__", "to_dlpack", "tensor_split"}
_READ |= {"_pack_padded_sequence", "nested_tensor", "_nested_tensor_from_mask_left_aligned"}
_ONLY_RAISE = {"one_hot", "gaussian_nll_loss"}  # they look whether values are in range


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
        self._rows, self._tried = rows, set[tuple[Any, ...]]()
        self._followed: dict[int, torch.UntypedStorage] = {}  # kept, so that no address is used again

    def follow(self, values: Iterable[object]) -> None:
        """Take what lies in the memory of these tensors for values of records."""
        for value in values:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                storage = value.untyped_storage()
                self._followed[storage.data_ptr()] = storage
            else:  # nobody can say where it lies
                self.found |= isinstance(value, torch.Tensor)

    def of_records(self, values: object) -> list[torch.Tensor]:
        """Those of some tensors that hold values of records."""
        some = (one for one in tree_leaves(values) if isinstance(one, torch.Tensor) and one.layout is torch.strided)
        return [one for one in some if one.numel() and one.untyped_storage().data_ptr() in self._followed]

    def _dimensions(self, value: torch.Tensor) -> list[int]:
        """The dimensions in which a tensor may hold records."""
        return [place for place, size in enumerate(value.shape) if size and size % self._rows == 0]

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        values, form = tree_flatten((tuple(args), kwargs or {}))
        given, name = self.of_records(values), func.overloadpacket.__name__
        sizes_alone = func.namespace == "aten" and (name.startswith("new_") or name.endswith("_like"))
        if not given or sizes_alone:
            return func(*args, **(kwargs or {}))
        before = [_copied(value) for value in values]  # the operator may write to them
        result = func(*args, **(kwargs or {}))
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        written = tree_leaves(args[0]) if name.endswith("_") else []
        self.follow([*made, *written])
        if func is torch.ops.aten.index.Tensor:
            self.found |= any(part.dtype in (torch.bool, torch.uint8) for part in self.of_records(args[1]))
        else:
            self.found |= not _DEPENDS.isdisjoint(func.tags)
        then, now = (max((len(self._dimensions(one)) for one in some), default=0) for some in (given, made))
        self.found |= now > then or (now == 0 and any(value.numel() for value in made))
        if torch.Tag.pointwise not in func.tags and torch.Tag.nondeterministic_seeded not in func.tags:
            of_records = {id(value) for value in given if len(self._dimensions(value)) == 1}
            held = tuple(place for place, value in enumerate(values) if id(value) in of_records)
            shapes = [(one.shape, one.dtype) if isinstance(one, torch.Tensor) else one for one in values]
            key, places = (func, held, str(shapes)), [one for one in values if _is_whole(one)]
            if not self.found and (key not in self._tried or len(places) > len(self.of_records(places))):
                self._tried.add(key)  # once for layers of one shape, unless they name places
                self.found = not self._keeps_apart(func, before, form, held)
        return result

    def _keeps_apart(self, func: Any, values: list[Any], form: Any, held: Sequence[int]) -> bool:
        """Whether records keep their results where another one is turned: flags inverted, numbers made large."""

        def results(values: Sequence[Any]) -> list[torch.Tensor] | None:
            args, named = tree_unflatten([_copied(value) for value in values], form)
            try:
                return [value for value in tree_leaves(func(*args, **named)) if isinstance(value, torch.Tensor)]
            except Exception:  # an operator may refuse made-up values, and a record that raises is left out
                return None

        def stay(apart: bool) -> bool:
            for odd, (record, sign) in itertools.product((0, 1), ((1, 1.0), (self._rows - 2, -1.0))):
                start = list(values)
                for number, place in enumerate(held):
                    start[place] = _usual(values[place], (number + odd) % 2)
                wanted = results(start)
                for place in held if wanted is not None else ():
                    turned = start[place].clone()
                    row = self._by_record(turned, apart)[record]
                    row.copy_(_turned(row, sign))
                    found = results([*start[:place], turned, *start[place + 1 :]])
                    pairs = zip(wanted or (), found or (), strict=found is not None)
                    if not all(self._agree(one, two, record, apart) for one, two in pairs):
                        return False
            return True

        return stay(apart=False) or stay(apart=True)

    def _by_record(self, value: torch.Tensor, apart: bool) -> torch.Tensor:
        """A view with the records first; several values of one lie side by side, or ``apart``."""
        (place,) = self._dimensions(value)
        value = value.movedim(place, 0)
        each = len(value) // self._rows
        sizes = (each, self._rows) if apart else (self._rows, each)
        split = value.view(*sizes, *value.shape[1:])
        return split.transpose(0, 1) if apart else split

    def _agree(self, this: torch.Tensor, that: torch.Tensor, record: int, apart: bool) -> bool:
        """Whether two results agree for all records but one."""
        if len(self._dimensions(this)) != 1:
            return True
        others = torch.arange(self._rows, device=this.device) != record
        one, two = (self._by_record(value, apart)[others] for value in (this, that))
        if not one.is_floating_point() and not one.is_complex():
            return torch.equal(one, two)
        return torch.allclose(one, two, rtol=1e-4, atol=1e-6, equal_nan=True)


def _is_whole(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _usual(value: torch.Tensor, whole: int) -> torch.Tensor:
    """What an operator is tried on: numbers as they are, one whole number for all, flags at random."""
    if value.dtype is torch.bool:
        return torch.rand(value.shape, device=value.device) < 0.5
    return value if value.is_floating_point() or value.is_complex() else torch.full_like(value, whole)


def _turned(value: torch.Tensor, sign: float) -> torch.Tensor:
    if value.dtype is torch.bool:
        return ~value
    return sign * (value.abs() * 1e3 + 7) if value.is_floating_point() or value.is_complex() else 1 - value


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
        classes = named.get("num_classes", args[1] if len(args) > 1 else -1) if name == "one_hot" else 0
        if masks or (name in _ONLY_RAISE and classes >= 0):  # one_hot may take its size from the values
            operators.found = before
        if (
            isinstance(result, torch.Tensor)
            and result.is_floating_point()
            and torch.is_grad_enabled()
            and not result.requires_grad
            and any(isinstance(one, torch.nn.Parameter) for one in tree_leaves((args, named)))
            and operators.of_records(result)
        ):  # of tokens or bytes: here their backward pass ends
            operators.starts.append(result.detach().requires_grad_())
            result = operators.starts[-1].clone()
            operators.follow([result])
        return result
