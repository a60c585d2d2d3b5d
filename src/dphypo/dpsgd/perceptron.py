"""Perceptrons: linear layers, activations and the cross entropy in a row, without automatic differentiation.

Small networks spend most of a step in Python and in the bookkeeping of gradients. A model whose forward pass was seen
to be a row of the functions below, and nothing else, is computed by these lines instead of its module's, on a CPU.
The records of a run are the columns of its matrices, so that their places change no bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Book
from dphypo.dpsgd.layers.products import finite_, squared, without_tiny_
from dphypo.dpsgd.stack import Sums
from dphypo.dpsgd.step import RecordGradients
from dphypo.dpsgd.sum_on_grid import UNIT

_aten = torch.ops.aten


class Activation(NamedTuple):
    """y = forward(x) in place, and the gradient of x from y and the gradient of y, backward(given, y), in place."""

    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


_RELU = Activation(torch.relu_, lambda given, y: _aten.threshold_backward.grad_input(given, y, 0, grad_input=given))
_TANH = Activation(torch.tanh_, lambda given, y: _aten.tanh_backward.grad_input(given, y, grad_input=given))
_SIGMOID = Activation(torch.sigmoid_, lambda given, y: _aten.sigmoid_backward.grad_input(given, y, grad_input=given))
_ACTIVATIONS: dict[Callable[..., Any], Activation] = {
    **dict.fromkeys((functional.relu, torch.relu, torch.Tensor.relu), _RELU),
    **dict.fromkeys((functional.tanh, torch.tanh, torch.Tensor.tanh), _TANH),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, torch.Tensor.sigmoid), _SIGMOID),
}


class Layer(NamedTuple):
    """The places of W and b in Wx + b, and what is applied to it."""

    weight: int
    bias: int | None
    activation: Activation | None = None


class Perceptron(NamedTuple):
    """The layers of a model, in their order, and how many classes the last one tells apart."""

    layers: tuple[Layer, ...]
    classes: int

    @classmethod
    def of(cls, book: Book, inputs: torch.Tensor, losses: torch.Tensor) -> Perceptron | None:
        """The forward pass on a book's tape, from its inputs to the losses; None if it is no perceptron's."""
        layers: list[Layer] = []
        value: Any = inputs
        for func, args, kwargs, result in book.tape:
            if not isinstance(result, torch.Tensor):
                continue  # a shape or a type was asked for
            if not args or args[0] is not value:
                return None
            if func is functional.cross_entropy:
                whole = len(args) == 2 and args[1] is book.targets and result is losses and len(layers) > 0
                labels = whole and value.dim() == 2 and len(args[1].shape) == 1
                return cls(tuple(layers), value.shape[1]) if labels and _plain(kwargs, value.shape[1]) else None
            if func is functional.linear and value.dim() == 2 and not kwargs:
                weight, bias = (book.place(given) for given in (*args[1:], None)[:2])
                if weight is None or (len(args) > 2 and args[2] is not None and bias is None):
                    return None
                if {weight, bias} & {place for layer in layers for place in layer[:2] if place is not None}:
                    return None  # norms of a parameter that is used twice add up, not their squares
                layers.append(Layer(weight, bias))
            elif func in _ACTIVATIONS and layers and layers[-1].activation is None:
                layers[-1] = Layer(*layers[-1][:2], activation=_ACTIVATIONS[func])
            elif func not in (torch.flatten, torch.Tensor.flatten) or layers or args[1:] not in ((1,), (1, -1)):
                return None
            value = result
        return None


def _plain(options: dict[str, Any], classes: int) -> bool:
    """Whether a cross entropy has no options, but for a label to ignore that is no class."""
    usual: dict[str, Any] = dict.fromkeys(("weight", "size_average", "reduce"), None)
    usual |= {"ignore_index": options.get("ignore_index", -100), "reduction": "none", "label_smoothing": 0.0}
    return usual | options == usual and usual["ignore_index"] not in range(classes)


class _Link:
    """A layer of all runs, and run by run; ``values`` are outputs and their gradients, [2, runs, width, records]."""

    def __init__(
        self, layer: Layer, book: Book, values: torch.Tensor, wide: torch.Tensor, squares: torch.Tensor
    ) -> None:
        weights = book.slots[layer.weight]
        self.activation, self.sizes = layer.activation, tuple(weights.shape[1:])
        self.slots = [book.layout.slot(place) for place in layer[:2] if place is not None]
        biases = weights.new_zeros((len(weights), 1)) if layer.bias is None else book.slots[layer.bias]
        self.biases, self.weights, self.turned = (
            part.unbind() for part in (biases[..., None], weights, weights.transpose(1, 2))
        )
        (self.outputs, self.gradients), (self.seen, self.given) = values.unbind(), squares.unbind()
        self.each_output, self.each_gradient = self.outputs.unbind(), self.gradients.unbind()
        self.rows, self.columns = wide[0].transpose(1, 2).unbind(), wide[1].unbind()


class Pass:
    """Passes of one shape through a perceptron, all runs at once. What one gives holds until the next."""

    def __init__(self, model: Perceptron, book: Book) -> None:
        runs, records = book.shape.runs, book.shape.records
        ends = list(itertools.accumulate(book.layout.shapes[layer.weight][0] for layer in model.layers))
        self._values = book.slots[0].new_empty((2, runs, ends[-1], records))
        self._wide, self._squares = (torch.empty_like(self._values, dtype=torch.float64) for _ in range(2))
        buffers = (self._values, self._wide, self._squares)
        self._parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self._links = [
            _Link(layer, book, *(buffer[:, :, part] for buffer in buffers))
            for layer, part in zip(model.layers, self._parts, strict=True)
        ]
        self._inputs = self._wide.new_empty((runs, records, self._links[0].sizes[1]))
        self._book, self._classes = book, torch.arange(model.classes)[:, None]
        both = [part for link in self._links for part in (link.gradients, link.outputs)][:-1]
        self._factors = (self._inputs, *(part.transpose(1, 2) for part in both))
        self._slots = tuple(slot for link in self._links for slot in link.slots)
        longest = max(sum(link.sizes) for link in self._links)
        self._margin = 1 + 2 * (longest + 4 * len(ends) + 16) * UNIT

    def part(self, inputs: torch.Tensor, targets: torch.Tensor) -> RecordGradients:
        """The gradients of all parameters; labels without a class are left out, as in ``layers/functions.py``."""
        if not self._book.clean:
            self._book.leave_out((targets < 0) | (targets >= len(self._classes)))
        seen = inputs.reshape(self._inputs.shape)
        each: Sequence[torch.Tensor] = seen.transpose(1, 2).unbind()
        for link in self._links:
            for bias, weight, x, into in zip(link.biases, link.weights, each, link.each_output, strict=True):
                torch.addmm(bias, weight, x, out=into)
            if link.activation is not None:
                link.activation.forward(link.outputs)
            each = link.each_output
        hit = self._classes == targets.view(len(seen), 1, -1)
        torch.add(link.outputs.softmax(1), hit, alpha=-1, out=link.gradients)
        for link, before in zip(self._links[::-1], [*self._links[-2::-1], None], strict=True):
            if link.activation is not None:
                link.activation.backward(link.gradients, link.outputs)
            if before is not None:
                for weight, given, into in zip(link.turned, link.each_gradient, before.each_gradient, strict=True):
                    torch.mm(weight, given, out=into)
        self._inputs.copy_(seen)
        self._wide.copy_(self._values)
        if self._values.dtype == torch.float64:
            without_tiny_(self._inputs), without_tiny_(self._wide)
        return RecordGradients(self._slots, 1, self._square(), None, self._factors, self._add)

    def _square(self) -> torch.Tensor:
        """‖a‖²‖g‖² of every layer or, with a bias, (‖a‖² + 1)‖g‖², added up: nothing cancels."""
        torch.mul(self._wide, self._wide, out=self._squares)
        seen, squares = squared(self._inputs), []
        for link in self._links:
            given = link.given.sum(1)
            squares.append(given * seen if len(link.slots) == 1 else torch.addcmul(given, given, seen))
            seen = link.seen.sum(1)
        return functools.reduce(torch.Tensor.add_, squares).mul_(self._margin)

    def _add(self, weights: torch.Tensor, sums: Sums) -> None:
        gradients = self._wide[1].mul_(weights[:, None])
        finite_(self._wide)
        biases, rows = gradients.sum(2), finite_(self._inputs).unbind()
        for link, part in zip(self._links, self._parts, strict=True):
            for into, given, seen in zip(sums.each(link.slots[0], *link.sizes), link.columns, rows, strict=True):
                into.addmm_(given, seen)
            for slot in link.slots[1:]:
                sums.at(slot, slot.size).add_(biases[:, part])
            rows = link.rows
