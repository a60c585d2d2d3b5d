"""Book-keeping: watch a forward pass of several runs at once, and note what per-record gradients are made of.

The rows of all runs go through one module together. A call of PyTorch that takes a trainable parameter is replaced: it
computes every run's rows with that run's parameter, and notes its inputs and, in the backward pass, the gradient of its
outputs. From the two follow the norms of the records' gradients and their weighted sums (``layers``). Everything else
acts on each row alone and is left to PyTorch. The module's own parameters serve as names only.

Dropout masks and the random numbers of augmentations are a record's own: keyed by run, step, call, the record's number
and view, so that they do not depend on who else is in the batch. They are no noise, and come from SplitMix64, a hash of
64 bits. A record that is added in front of others changes their numbers: it changes nothing that is released because
masks of all numbers are alike, which takes these words as ideal, as those of the noise are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dphypo.dpsgd.device import asks_for_padding
from dphypo.dpsgd.stack import Layout, Shape
from dphypo.dpsgd.step import RecordGradients

if TYPE_CHECKING:
    from dphypo.dpsgd.perceptron import Pass

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class UnknownUse(Exception):  # noqa: N818 - not an error: the model is differentiated in another way
    """A trainable parameter is used in a way that no formula here covers."""


class Axis(NamedTuple):
    """The dimension of a tensor that holds its rows, with some entries each: [rows, each]; [each, rows] if ``last``."""

    dim: int
    each: int = 1
    last: bool = False

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """The values with the rows in front."""
        moved = values if self.dim == 0 else values.movedim(self.dim, 0)
        return moved.reshape(self.each, -1, *moved.shape[1:]).transpose(0, 1) if self.last else moved

    def split(self, values: torch.Tensor, *sizes: int) -> torch.Tensor:
        """[*sizes, features], such as [runs, records, −1, features]: views of a record count as positions of it."""
        return self.first(values).reshape(*sizes, values.shape[-1])

    def back(self, values: torch.Tensor) -> torch.Tensor:
        """The inverse of :meth:`first`."""
        moved = values.transpose(0, 1).flatten(0, 1) if self.last else values
        return moved if self.dim == 0 else moved.movedim(0, self.dim)


COMMON = Axis(-1)
"""Nowhere: one tensor for all rows, such as the numbers of positions."""


class Call(Protocol):
    """A call with a trainable parameter. Equal calls are uses of the same parameters in the same way."""

    def forward(self, book: Book, inputs: torch.Tensor, axis: Axis) -> torch.Tensor:
        """The outputs of all runs."""

    def backward(self, book: Book, inputs: torch.Tensor, gradient: torch.Tensor, axis: Axis) -> torch.Tensor:
        """The gradient of the inputs."""

    def parts(self, book: Book, notes: Sequence[Note]) -> list[RecordGradients]:
        """What the gradients of the parameters are, from all calls that are equal to this one."""


class Note(NamedTuple):
    """What one call saw: its inputs, and the gradient of its outputs."""

    inputs: torch.Tensor
    gradient: torch.Tensor
    axis: Axis


def mix(values: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function, on words held as int64.

    >>> mix(torch.tensor([_GOLDEN])).item() % 2**64 == 0xE220A8397B1DCDAF
    True
    """
    values = (values ^ ((values >> 30) & 0x3FFFFFFFF)) * _FIRST
    values = (values ^ ((values >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return values ^ ((values >> 31) & 0x1FFFFFFFF)


class Masks:
    """The random bits of one step: ``keys`` holds a word for each row, ``calls`` is how often bits were drawn."""

    def __init__(self, keys: torch.Tensor, calls: int = 0) -> None:
        self.keys, self.calls = keys, calls

    @classmethod
    def of(cls, run_keys: torch.Tensor, step: int | torch.Tensor, records: torch.Tensor, views: int) -> Masks:
        """The bits of a step; ``run_keys`` is [runs, 1], ``records`` holds numbers, [runs, records of a piece]."""
        steps = torch.as_tensor(step, dtype=torch.int64, device=records.device)
        keys = mix(mix(run_keys + steps * _GOLDEN) ^ (records + 1))
        if views > 1:
            keys = mix(keys[..., None] + torch.arange(views, device=keys.device) * _GOLDEN)
        return cls(keys.reshape(-1))

    def uniforms(self, each: int) -> torch.Tensor:
        """[rows, each] fresh numbers of [0, 1): multiples of 2⁻²⁴."""
        self.calls += 1
        start = mix(self.keys ^ (self.calls * _GOLDEN % 2**62))
        count = torch.arange(1, each + 1, device=start.device) * _GOLDEN
        return ((mix(start[:, None] + count) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


Handlers = dict[Callable[..., Any], Callable[..., Any]]
"""What replaces a function of PyTorch: it takes the book, the function, and the function's own arguments."""


class Book(TorchFunctionMode):
    """Forward and backward passes of several runs, whose parameters are ``rows``.

    ``parameters`` are the module's own, which stand for those of the runs. ``axes`` says where the tensors of watched
    calls, in their order, hold the rows; None while this is being found out.
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
        self.perceptron: Pass | None = None  # where the model is one
        self.clean = False  # whether labels outside the domain have been left out before
        self.start = torch.full((shape.rows,), 1 / shape.views, dtype=rows.dtype, device=rows.device)
        self._anchor = torch.zeros((), device=rows.device, requires_grad=True)
        self.begin(Masks(torch.zeros(shape.rows, dtype=torch.int64, device=rows.device)))

    def begin(self, masks: Masks, targets: torch.Tensor | None = None, weights: torch.Tensor | None = None) -> None:
        """Start a pass, with random bits for dropout, the targets that the loss will see, and the weights of views."""
        self.masks, self.targets, self.weights = masks, targets, weights
        self.labels: tuple[int, int] | None = None
        self.notes: dict[Call, list[Note]] = {}
        self.outside: torch.Tensor | None = None
        self.found: list[list[Axis]] = []
        self.tape: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []  # calls and their results
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if (handler := self.handlers.get(func)) is not None:
            result = handler(self, func, *args, **named)
        elif asks_for_padding(func):
            result = False
        else:
            result = func(*args, **named) if _asks_metadata(func) else self.otherwise(func, args, named)
        if self.axes is None:
            self.tape.append((func, args, named, result))
        return result

    def otherwise(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that no formula covers: it may not take a trainable parameter."""
        if self._mentioned((*args, *kwargs.values())):
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
        """Where the tensor of the next watched call holds its rows; ``common`` if it may be one tensor for all."""
        self.calls += 1
        if self.axes is not None:
            return self.axes[self.calls - 1]
        rows = self.shape.rows
        sizes = [(dim, size) for dim, size in enumerate(tensor.shape) if size and size % rows == 0]
        possible = [Axis(dim, size // rows, rows_last and size > rows) for dim, size in sizes]
        if not possible and not common:
            raise UnknownUse("no dimension holds the records")
        self.found.append([*possible, COMMON] if common else possible)
        return self.found[-1][0]

    def tap(self, call: Call, inputs: torch.Tensor, axis: Axis | None = None) -> torch.Tensor:
        """The outputs of a call; its inputs and the gradient of its outputs are noted in the backward pass."""
        axis = self.axis(inputs) if axis is None else axis
        result: torch.Tensor = _Tap.apply(inputs, self._anchor, self, call, axis)  # type: ignore[no-untyped-call]
        return result

    def leave_out(self, rows: torch.Tensor) -> None:
        """Rows that are outside the domain: they count zero."""
        self.outside = rows if self.outside is None else self.outside | rows

    def differentiate(self, losses: torch.Tensor) -> list[RecordGradients]:
        """The parts of every parameter's gradients, of the records' losses averaged over their views."""
        start = self.start if self.weights is None else self.weights.reshape(-1)
        torch.autograd.grad(losses, self._anchor, start.to(losses.dtype), allow_unused=True)
        return [part for call, notes in self.notes.items() for part in call.parts(self, notes)]


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
        book.notes.setdefault(call, []).append(Note(inputs.detach(), gradient, axis))
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
