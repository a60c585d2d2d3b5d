"""Book-keeping: watch a forward pass of several runs at once, and note what per-record gradients are made of.

The rows of all runs go through one module together. A call of PyTorch that takes a trainable parameter is replaced: it
computes every run's rows with that run's parameter, and notes its inputs and, in the backward pass, the gradient of its
outputs. From the two follow the norms of the records' gradients and their weighted sums (``layers``). Everything else
acts on each row alone and is left to PyTorch. The module's own parameters serve as names only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dphypo.dpsgd.masks import Masks
from dphypo.dpsgd.shapes import Shape
from dphypo.dpsgd.stack import Layout, Slot

if TYPE_CHECKING:
    from dphypo.dpsgd.chain import Pass


class UnknownUse(Exception):  # noqa: N818 - not an error: the model is differentiated in another way
    """A trainable parameter is used in a way that no formula here covers."""


class Axis(NamedTuple):
    """Where a tensor holds its rows.

    Args:
        dim: the dimension.
        each: how many entries of that dimension one row has.
        last: whether the entries come first and the rows last, [each, rows]; by default it is [rows, each].
    """

    dim: int
    each: int = 1
    last: bool = False

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """The values with the rows in front."""
        moved = values if self.dim == 0 else values.movedim(self.dim, 0)
        return moved.reshape(self.each, -1, *moved.shape[1:]).transpose(0, 1) if self.last else moved

    def back(self, values: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`first`."""
        moved = values.transpose(0, 1).flatten(0, 1) if self.last else values
        return moved if self.dim == 0 else moved.movedim(0, self.dim)


COMMON = Axis(-1)
"""Nowhere: one tensor for all rows, such as the numbers of positions."""


class Call(Protocol):
    """A call with a trainable parameter. Calls with equal keys are uses of the same parameters."""

    @property
    def key(self) -> tuple[Any, ...]: ...

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        """The outputs of all runs."""
        ...

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        """The gradient of the inputs."""
        ...

    def parts(self, book: Book, notes: Sequence[Note]) -> list[Part]:
        """What the gradients of the parameters are, from all calls of this key."""
        ...


class Note(NamedTuple):
    """What one call saw: its inputs, and the gradient of its outputs."""

    inputs: torch.Tensor
    gradient: torch.Tensor
    axis: Axis


class Sums:
    """Sums over records of every run, [runs, width] in double precision; views of them are made once."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = torch.zeros(rows.shape, dtype=torch.float64, device=rows.device)
        self._views: dict[tuple[int, ...], torch.Tensor] = {}
        self._runs: dict[tuple[int, ...], Sequence[torch.Tensor]] = {}

    def at(self, slot: Slot, *shape: int) -> torch.Tensor:
        """A slot as [runs, *shape]."""
        key = (*slot, *shape)
        if key not in self._views:
            self._views[key] = slot.of(self.rows).view(len(self.rows), *shape)
        return self._views[key]

    def each(self, slot: Slot, *shape: int) -> Sequence[torch.Tensor]:
        """The same, run by run."""
        key = (*slot, *shape)
        if key not in self._runs:
            self._runs[key] = self.at(slot, *shape).unbind()
        return self._runs[key]


@dataclass(frozen=True, eq=False)
class Part:
    """The gradients of a weight and its bias, or of a part of a weight, record by record.

    Args:
        slots: which numbers of a row. Norms of parts with a common slot add up, squares of the others' do.
        terms: how many terms the longest sum of a record has.
        square: [runs, records], an upper bound on the squared norm of each record's gradient.
        spread: [runs, records], A: the sum of the norms of what the gradient is summed from; None if that is the norm.
        factors: [runs, records, ...] each, what ``add`` sums: records with equal bits in them add the same.
        add: ``add(weights, sums)`` adds Σ weights · gradient to the rows of sums, in double precision; once, since it
            works in place. Records of weight zero add zero, whatever their numbers are.
    """

    slots: tuple[Slot, ...]
    terms: int
    square: torch.Tensor
    spread: torch.Tensor | None
    factors: tuple[torch.Tensor, ...]
    add: Callable[[torch.Tensor, Sums], None]


Handlers = dict[Callable[..., Any], Callable[..., Any]]
"""What replaces a function of PyTorch: it takes the book, the function, and the function's own arguments."""


class Book(TorchFunctionMode):
    """Forward and backward passes of several runs.

    Args:
        layout, rows: the parameters of all runs.
        shape: how many rows there are.
        parameters: the module's own trainable parameters, which stand for those of the runs.
        handlers: what replaces a function of PyTorch.
        axes: for each watched call in its order, where its tensor holds the rows; None while this is being found out.
    """

    def __init__(
        self,
        layout: Layout,
        rows: torch.Tensor,
        shape: Shape,
        parameters: Sequence[nn.Parameter],
        handlers: Handlers,
        axes: Sequence[Axis] | None,
    ) -> None:
        super().__init__()
        self.layout, self.shape, self.handlers, self.axes = layout, shape, handlers, axes
        self._places = {id(parameter): place for place, parameter in enumerate(parameters)}
        self.slots = [layout.values(rows, place) for place in range(len(layout.names))]
        self.matrices: dict[tuple[int, bool], list[torch.Tensor]] = {}
        self.in_attention = False
        self.chained: Pass | None = None  # where a chain is computed
        self.clean = False  # whether labels outside the domain have been left out before
        self.start = torch.full((shape.rows,), 1 / shape.views, dtype=rows.dtype, device=rows.device)
        self._anchor = torch.zeros((), device=rows.device, requires_grad=True)
        self.begin(Masks(torch.zeros(shape.rows, dtype=torch.int64, device=rows.device)))

    def begin(self, masks: Masks, targets: torch.Tensor | None = None) -> None:
        """Start a pass, with random bits for dropout, and the targets that the loss will see."""
        self.masks, self.targets = masks, targets
        self.labels: tuple[int, int] | None = None
        self.notes: dict[tuple[Any, ...], tuple[Call, list[Note]]] = {}
        self.outside: torch.Tensor | None = None
        self.found: list[list[Axis]] = []
        self.tape: list[tuple[Any, ...]] = []
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = self._called(func, args, kwargs or {})
        if self.axes is None:
            self.tape.append((func, args, kwargs or {}, result))
        return result

    def _called(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handler = self.handlers.get(func)
        if handler is not None:
            return handler(self, func, *args, **kwargs)
        if self._mentioned((*args, *kwargs.values())) and not _asks_metadata(func):
            raise UnknownUse(func)
        return func(*args, **kwargs)

    def _mentioned(self, values: Iterable[Any]) -> bool:
        return any(
            id(value) in self._places or (isinstance(value, list | tuple) and self._mentioned(value))
            for value in values
        )

    def place(self, value: Any) -> int | None:
        """The place of a trainable parameter; None for anything else."""
        return self._places.get(id(value))

    def axis(self, tensor: torch.Tensor, *, rows_last: bool = False, common: bool = False) -> Axis:
        """Where the tensor of the next watched call holds its rows.

        ``rows_last`` if they come after the positions; ``common`` if the tensor may be one for all rows.
        """
        self.calls += 1
        if self.axes is not None:
            return self.axes[self.calls - 1]
        sizes, rows = tensor.shape, self.shape.rows
        possible = [
            Axis(dim, size // rows, rows_last and size > rows)
            for dim, size in enumerate(sizes)
            if size and size % rows == 0
        ]
        if not possible and not common:
            raise UnknownUse("no dimension holds the records")
        self.found.append([*possible, COMMON] if common else possible)
        return self.found[-1][0]

    def tap(self, call: Call, inputs: torch.Tensor, axis: Axis | None = None) -> torch.Tensor:
        """The outputs of a call; its inputs and the gradient of its outputs are noted in the backward pass."""
        axis = self.axis(inputs) if axis is None else axis
        result: torch.Tensor = _Tap.apply(inputs, self._anchor, self, call, axis)  # type: ignore[no-untyped-call]
        return result

    def note(self, call: Call, note: Note) -> None:
        self.notes.setdefault(call.key, (call, []))[1].append(note)

    def leave_out(self, rows: torch.Tensor) -> None:
        """Rows that are outside the domain: they count zero."""
        self.outside = rows if self.outside is None else self.outside | rows

    def differentiate(self, losses: torch.Tensor) -> list[Part]:
        """The parts of every parameter's gradients, of the records' losses averaged over their views."""
        torch.autograd.grad(losses, self._anchor, self.start.to(losses.dtype), allow_unused=True)
        return self.parts()

    def parts(self) -> list[Part]:
        """The parts of every parameter's gradients, from the notes."""
        return [part for call, notes in self.notes.values() for part in call.parts(self, notes)]


class _Tap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, anchor: torch.Tensor, book: Book, call: Call, axis: Axis
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs)  # its version is checked, so that a write in between is noticed
        ctx.call = book, call, axis
        return call.forward(book, inputs, axis)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        book, call, axis = ctx.call
        (inputs,) = ctx.saved_tensors
        book.note(call, Note(inputs.detach(), gradient, axis))
        wanted = ctx.needs_input_grad[0]
        return call.backward(book, inputs, gradient, axis) if wanted else None, None, None, None, None


# What may be asked of a parameter without using its values: properties and methods.
_METADATA = frozenset(
    {"shape", "dtype", "device", "requires_grad", "ndim", "layout", "is_cuda", "is_cpu", "is_nested", "is_sparse"}
    | {"is_quantized", "is_mkldnn", "is_leaf", "is_meta", "dim", "size", "numel", "is_floating_point", "is_complex"}
)


def _asks_metadata(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    if name == "__get__":  # of a property
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    return name in _METADATA
