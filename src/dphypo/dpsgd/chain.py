"""Chains: linear layers, activations and the cross entropy, one after the other, without automatic differentiation.

Small networks spend most of a step in Python and in the bookkeeping of gradients. A model whose forward pass was seen
to be a chain of the functions below, and nothing else, is computed by these lines instead of its module's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from dphypo.dpsgd.book import Axis, Book, Note
from dphypo.dpsgd.layers.linear import Linear

_aten = torch.ops.aten
_ROWS = Axis(0)

Backward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Seen(NamedTuple):
    """A call of PyTorch in a forward pass."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


class Link(NamedTuple):
    """One function: y = forward(x), and the gradient of x from that of y, by backward(gradient, x, y)."""

    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Backward


_ACTIVATIONS: dict[Callable[..., Any], Link] = {
    functional.relu: Link(torch.relu, lambda gradient, x, y: _aten.threshold_backward(gradient, y, 0)),
    torch.tanh: Link(torch.tanh, lambda gradient, x, y: _aten.tanh_backward(gradient, y)),
    torch.sigmoid: Link(torch.sigmoid, lambda gradient, x, y: _aten.sigmoid_backward(gradient, y)),
    torch.Tensor.flatten: Link(lambda x: x.flatten(1), lambda gradient, x, y: gradient.view(x.shape)),
}
_SAME = {
    torch.relu: functional.relu,
    torch.Tensor.relu: functional.relu,
    torch.Tensor.tanh: torch.tanh,
    functional.tanh: torch.tanh,
    torch.Tensor.sigmoid: torch.sigmoid,
    functional.sigmoid: torch.sigmoid,
    torch.flatten: torch.Tensor.flatten,
}


# The arguments of a cross entropy that is one.
_PLAIN: dict[str, Any] = dict.fromkeys(("weight", "size_average", "reduce"), None)
_PLAIN |= {"ignore_index": -100, "reduction": "none", "label_smoothing": 0.0}


class Chain:
    """The links of a model, in their order; a linear layer is the call itself."""

    def __init__(self, links: Sequence[Link | Linear], ignored: int) -> None:
        self._links, self._ignored = links, ignored
        self._classes: torch.Tensor | None = None
        self._first = [isinstance(link, Linear) for link in links].index(True)

    @classmethod
    def of(cls, tape: Sequence[Seen], book: Book, inputs: torch.Tensor, losses: torch.Tensor) -> Chain | None:
        """The chain of a forward pass from its inputs to the losses; None if it is something else."""
        links: list[Link | Linear] = []
        value: Any = inputs
        for func, args, kwargs, result in tape:
            if not isinstance(result, torch.Tensor):
                continue  # a shape or a type was asked for
            if not args or args[0] is not value:
                return None
            same = _SAME.get(func, func)
            if func is functional.cross_entropy:
                ignored = kwargs.get("ignore_index", -100)
                plain = _PLAIN | kwargs == _PLAIN | {"ignore_index": ignored} and len(args) == 2 and value.dim() == 2
                whole = (
                    any(isinstance(link, Linear) for link in links)
                    and args[1].dim() == 1
                    and args[1] is book.targets
                    and result is losses
                )
                return cls(links, ignored) if plain and whole else None
            if func is functional.linear and value.dim() == 2 and not kwargs:
                weight, bias = (book.place(given) for given in (*args[1:], None)[:2])
                if weight is None or (len(args) > 2 and args[2] is not None and bias is None):
                    return None
                links.append(Linear(weight, bias))
            elif same in _ACTIVATIONS and (same is not torch.Tensor.flatten or args[1:] in ((1,), (1, -1))):
                links.append(_ACTIVATIONS[same])
            else:
                return None
            value = result
        return None

    def note(self, book: Book, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Note the inputs and the output gradients of all linear layers, of the losses averaged over views.

        Labels without a class are left out, as in ``layers/labels.py``.
        """
        values = [inputs]
        for link in self._links:
            values.append(
                link.forward(book, values[-1], _ROWS) if isinstance(link, Linear) else link.forward(values[-1])
            )
        if not book.clean:
            book.leave_out((targets.clamp(0, values[-1].shape[1] - 1) != targets) & (targets != self._ignored))
        gradient = self._entropy_gradient(values[-1], targets, book.start)
        for at in range(len(self._links) - 1, self._first - 1, -1):
            link, x = self._links[at], values[at]
            if isinstance(link, Linear):
                book.note(link, Note(x, gradient, _ROWS))
                if at > self._first:
                    gradient = link.backward(book, x, gradient, _ROWS)
            else:
                gradient = link.backward(gradient, x, values[at + 1])

    def _entropy_gradient(self, outputs: torch.Tensor, targets: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """softmax(outputs) − one-hot(targets), times the weight of each row; rows last, where it is quicker."""
        turned = outputs.t().contiguous()
        turned.sub_(turned.amax(0)).exp_()
        turned.div_(turned.sum(0))
        if self._classes is None:
            self._classes = torch.arange(len(turned), device=turned.device)[:, None]
        turned.sub_((self._classes == targets).to(turned.dtype)).mul_(start * (targets != self._ignored))
        return turned.t().contiguous()
