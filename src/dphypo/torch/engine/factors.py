"""Finds products in the graph of a record's gradient, so that they need not be multiplied out.

The gradient of a linear layer's weight is Σ_l g_l a_lᵀ, a product of two matrices that are smaller than it. For a
convolution it is a product with patches, and for an embedding it adds rows to a table. If an output of the graph is
such a product, the graph returns the factors instead, and ``layers`` computes norms and weighted sums from them. It
does not matter how the model expresses the layer. All other gradients are *held*: computed for each record.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from dphypo.torch.engine import layers
from dphypo.torch.engine.clipped_sum import Layout, RecordGradients, Shape
from dphypo.torch.engine.layers import Singles, held, wide
from dphypo.torch.engine.operators import insert

A = torch.ops.aten
_VIEWS = {A.t.default, A.reshape.default, A.transpose.int, A.permute.default, A.unsqueeze.default}
_VIEWS |= {A.squeeze.dim, A.squeeze.dims, A.squeeze.default, A.select.int, A._to_copy.default}


@dataclass(frozen=True)
class Part:
    """The gradients of a parameter, or a part of them, from some outputs of the graph."""

    weight: int
    outputs: ClassVar[int] = 2
    """How many outputs of the graph it uses; the gradient is linear in the last one."""

    def gradients(self, layout: Layout, given: Sequence[torch.Tensor]) -> list[RecordGradients]:
        """From outputs [runs, records, views, positions, ...]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Held(Part):
    """The gradient itself."""

    outputs: ClassVar[int] = 1

    def gradients(self, layout: Layout, given: Sequence[torch.Tensor]) -> list[RecordGradients]:
        (found,) = given
        found = found.squeeze(2) if found.shape[2] == 1 else wide(found).sum(2)
        return [held(layout.slot(self.weight), found)]


@dataclass(frozen=True)
class Outer(Part):
    """Σ_l g_l a_lᵀ, from a and g, [positions, width] each; Σ_l g_l for the bias."""

    bias: int | None

    def gradients(self, layout: Layout, given: Sequence[torch.Tensor]) -> list[RecordGradients]:
        bias = None if self.bias is None else layout.slot(self.bias)
        inputs, slopes = (one.flatten(2, 3) for one in given)
        return layers.outer(layout.slot(self.weight), bias, inputs, slopes)


@dataclass(frozen=True)
class Patches(Part):
    """The same for the patches of a picture, [channels, height, width] without padding; g has a number per place."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def gradients(self, layout: Layout, given: Sequence[torch.Tensor]) -> list[RecordGradients]:
        pictures, slopes = given
        sizes = pictures.shape[:3]
        seen, _ = layers.patches(pictures.flatten(0, 2), self.kernel, self.stride, self.dilation, self.groups)
        found = slopes.flatten(0, 2).flatten(2).transpose(1, 2).chunk(self.groups, -1)
        parts = []
        for group, (a, g) in enumerate(zip(seen, found, strict=True)):
            a, g = (one.reshape(*sizes[:2], -1, one.shape[-1]) for one in (a, g))
            parts += layers.outer(layout.slot(self.weight, group, self.groups), None, a, g)
        return parts


@dataclass(frozen=True)
class Rows(Part):
    """Rows that are added to a table, from tokens, [positions], and gradients, [positions, width]."""

    def gradients(self, layout: Layout, given: Sequence[torch.Tensor]) -> list[RecordGradients]:
        tokens, slopes = (one.flatten(2, 3) for one in given)
        return [layers.rows(layout.slot(self.weight), tokens, slopes)]


class Gradients:
    """From outputs of a graph, [runs, records × views, ...], to the parts of all gradients."""

    def __init__(self, layout: Layout, parts: Sequence[Part]) -> None:
        self._layout, self._parts = layout, parts
        uses = Counter(part.weight for part in parts)  # of several uses the norms are added, not the squares
        self._alone = [isinstance(part, Outer) and uses[part.weight] == 1 for part in parts]
        self._singles: dict[bool, Singles] = {}

    def __call__(
        self, given: Sequence[torch.Tensor], shape: Shape, weights: torch.Tensor | None = None
    ) -> list[RecordGradients]:
        sizes = (shape.runs, shape.records, shape.views)
        found: list[RecordGradients] = []
        single: dict[bool, list[tuple[Outer, Sequence[torch.Tensor]]]] = {}
        for part, alone in zip(self._parts, self._alone, strict=True):
            some, given = given[: part.outputs], given[part.outputs :]
            if alone and not some[0].is_cuda and shape.views == some[0].shape[2] == 1:
                assert isinstance(part, Outer)
                single.setdefault(part.bias is None, []).append((part, some))
            else:
                split = [one.reshape(*sizes, *one.shape[2:]) for one in some]
                found += part.gradients(self._layout, _weighted(split, weights))
        for plain, group in single.items():
            values = [some[place].reshape(*sizes[:2], -1) for place in (0, 1) for _, some in group]
            if plain not in self._singles:
                slot = self._layout.slot
                slots = [(slot(one.weight), None if one.bias is None else slot(one.bias)) for one, _ in group]
                self._singles[plain] = Singles(slots, values)
            found.append(self._singles[plain](values))
        return found


def _weighted(given: Sequence[torch.Tensor], weights: torch.Tensor | None) -> list[torch.Tensor]:
    """Outputs of a part, [runs, records, views, ...], the last of them times the weights of the views."""
    *others, last = given
    if weights is None:
        views = last.shape[2]
        return [*others, last if views == 1 else last / views]
    return [*others, last * weights.to(last.dtype).view(*weights.shape, *[1] * (last.dim() - 3))]


@dataclass(frozen=True)
class _Product:
    """A gradient that is a product, and the nodes of its factors."""

    part: Callable[[int, int | None], Part]
    key: Any
    a: fx.Node
    g: fx.Node
    positions: int


def split(graph: fx.GraphModule, layout: Layout) -> tuple[Part, ...]:
    """Replace the outputs of a gradient's graph, but for the last, by factors; return the parts that they make."""
    end: Any = graph.graph.output_node()
    *outputs, outside = end.args[0]
    finder = _Finder(end)
    products = {place: found for place, node in enumerate(outputs) if (found := finder.products(node))}
    fused = finder.biases(outputs, products)
    parts: list[Part] = []
    given: list[fx.Node] = []
    for place, node in enumerate(outputs):
        if place in fused.values():
            continue
        groups: dict[Any, list[_Product]] = {}
        for one in products.get(place, ()):
            groups.setdefault((one.key, _shape(one.a)[1:], _shape(one.g)[1:]), []).append(one)
        for some in groups.values():  # uses of one kind become positions of one use
            parts.append(some[0].part(place, fused.get(place)))
            given += [finder.joined([one.a for one in some]), finder.joined([one.g for one in some])]
        if not groups:
            parts.append(Held(place))
            given.append(node)
    end.args = ((*given, outside),)
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return tuple(parts)


class _Finder:
    def __init__(self, end: fx.Node) -> None:
        self._end = end

    def call(self, target: Any, *args: Any) -> fx.Node:
        """A new node at the end of the graph."""
        return insert(self._end, target, *args)

    def joined(self, nodes: list[fx.Node]) -> fx.Node:
        return nodes[0] if len(nodes) == 1 else self.call(A.cat.default, nodes, 0)

    def products(self, node: Any) -> list[_Product]:
        """The products that add up to an output; none if a term is not a product."""
        found: list[_Product] = []
        for one, views in self._summands(node, ()):
            product = self._product(one, views)
            if product is None:
                return []
            found.append(product)
        return found

    def _summands(self, node: Any, views: tuple[fx.Node, ...]) -> Iterator[tuple[fx.Node, tuple[fx.Node, ...]]]:
        while node.op == "call_function" and node.target in _VIEWS and node.meta["val"].dtype.is_floating_point:
            views, node = (node, *views), node.args[0]
        terms = node.args if node.target is A.add.Tensor and not node.kwargs else ()
        if terms and all(isinstance(one, fx.Node) and _shape(one) == _shape(node) for one in terms):
            for one in terms:
                yield from self._summands(one, views)
        else:
            yield node, views

    def _product(self, node: Any, views: Sequence[fx.Node]) -> _Product | None:
        if node.target in (A.mm.default, A.bmm.default):
            return self._of_matrices(node, views)
        if node.target is A.embedding_dense_backward.default and _order(views, node.meta["val"].shape) == "same":
            return self._of_rows(node)
        if node.target is operator.getitem and node.args[1] == 1:
            return self._of_convolution(node.args[0], views)
        return None

    def _of_matrices(self, node: Any, views: Sequence[fx.Node]) -> _Product | None:
        left, right = node.args
        if node.target is A.bmm.default and node.meta["val"].shape[0] != 1:
            return None
        order = _order(views, node.meta["val"].shape)
        if order is None:
            return None
        if node.target is A.bmm.default:
            left, right = (self.call(A.select.int, one, 0, 0) for one in (left, right))
        positions = right.meta["val"].shape[0]
        turned = self.call(A.t.default, left)
        a, g = (right, turned) if order == "same" else (turned, right)
        return _Product(Outer, Outer, a, g, positions)

    def _of_rows(self, node: Any) -> _Product | None:
        slopes, tokens, _, padding, by_frequency = node.args
        if by_frequency:
            return None
        width = slopes.meta["val"].shape[-1]
        count = math.prod(tokens.meta["val"].shape)
        tokens, slopes = (
            self.call(A.reshape.default, tokens, [count]),
            self.call(A.reshape.default, slopes, [count, width]),
        )
        if padding >= 0:
            other = self.call(A.unsqueeze.default, self.call(A.eq.Scalar, tokens, padding), 1)
            slopes = self.call(A.masked_fill.Scalar, slopes, other, 0.0)
        return _Product(lambda weight, _: Rows(weight), Rows, tokens, slopes, count)

    def _of_convolution(self, node: Any, views: Sequence[fx.Node]) -> _Product | None:
        if node.target is not A.convolution_backward.default:
            return None
        slopes, pictures, weight, _, stride, padding, dilation, turned, _, groups, _ = node.args
        shape = weight.meta["val"].shape
        several = pictures.meta["val"].shape[0] != 1  # frames of a record, whose gradients the graph adds up
        if turned or several or len(shape) not in (3, 4) or _order(views, shape) != "same":
            return None
        pictures, slopes = (self.call(A.select.int, one, 0, 0) for one in (pictures, slopes))
        if len(shape) == 3:
            pictures, slopes = (self.call(A.unsqueeze.default, one, 1) for one in (pictures, slopes))
        edges = layers.pair(padding, 0)
        if any(edges):
            sides = [edges[1], edges[1], edges[0], edges[0]]
            pictures = self.call(A.constant_pad_nd.default, pictures, sides)
        steps, gaps = (layers.pair(one, 1) for one in (stride, dilation))
        kernel = layers.pair(shape[2:], 1)

        def part(weight: int, bias: int | None) -> Part:
            return Patches(weight, kernel, steps, gaps, groups)

        # Pictures of several uses cannot be concatenated: their norms are added.
        return _Product(part, object(), pictures, slopes, math.prod(slopes.meta["val"].shape[1:]))

    def biases(self, outputs: Sequence[fx.Node], products: dict[int, list[_Product]]) -> dict[int, int]:
        """The place of each weight of one position, and that of its bias: their gradients are a part together."""
        taken: dict[int, int] = {}
        for weight, found in products.items():
            if len(found) > 1 or found[0].positions > 1 or found[0].key is not Outer:
                continue
            for place, node in enumerate(outputs):
                if place not in products and place not in taken.values() and _same_numbers(node, found[0].g):
                    taken[weight] = place
                    break
        return taken


def _shape(node: Any) -> Any:
    return node.meta["val"].shape


def _same_numbers(this: fx.Node, that: fx.Node) -> bool:
    """Whether two nodes are views of one node, in the same order. A sum over one position counts as a view."""
    (one, first), (two, second) = _source(this), _source(that)
    return one is two and torch.equal(first, second)


def _source(node: Any) -> tuple[fx.Node, torch.Tensor]:
    """The node of which another one is a view, and the positions of its numbers there."""
    views: list[fx.Node] = []
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        if node.target not in _VIEWS | {A.sum.dim_IntList} or node.target is A._to_copy.default:
            break
        if math.prod(_shape(node.args[0])) != math.prod(_shape(node)):
            break
        views, node = [node, *views], node.args[0]
    return node, _moved(views, node.meta["val"].shape).flatten()


def _moved(views: Sequence[Any], shape: Sequence[int]) -> torch.Tensor:
    """The positions of a view's numbers in its source."""
    seen = torch.arange(math.prod(shape)).reshape(tuple(shape))
    for node in views:
        if node.target is not A._to_copy.default:
            seen = node.target(seen, *node.args[1:], **node.kwargs)
    return seen


def _order(views: Sequence[fx.Node], shape: Sequence[int]) -> str | None:
    """Whether views keep the order of a tensor's numbers ("same") or transpose it ("turned"); None for other views."""
    seen, numbers = _moved(views, shape).flatten(), torch.arange(math.prod(shape))
    if torch.equal(seen, numbers):
        return "same"
    turned = numbers.reshape(tuple(shape)).transpose(-1, -2).flatten() if len(shape) > 1 else numbers
    return "turned" if torch.equal(seen, turned) else None
