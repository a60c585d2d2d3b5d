"""Convolutions in one and two dimensions: linear layers on the patches of a picture, one position a place.

They are operators of their own in graphs, on pictures [runs, rows, channels, height, width] without padding and one
kernel a run, because PyTorch makes grouped convolutions of many runs, which are slow. On a CPU every run's convolution
is a call of its own; on a GPU it is a product of patches, by kernels that are some times faster than PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from dphypo.dpsgd.layers import kernels
from dphypo.dpsgd.layers.products import batched, cat

A = torch.ops.aten
Pair = tuple[int, int]


def pair(value: Sequence[int], height: int) -> Pair:
    """Two numbers for both dimensions; a line is a picture of some height."""
    return (value[0] if len(value) == 2 else height, value[-1])


def convolve(
    pictures: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The outputs of every run; ``weight`` is [runs, outputs, channels, height, width]."""
    if not pictures.is_cuda:
        shifts: Sequence[torch.Tensor | None] = [None] * len(weight) if bias is None else bias.unbind()
        each = [
            functional.conv2d(one, kernel, shift, tuple(stride), 0, tuple(dilation), groups)
            for one, kernel, shift in zip(pictures.unbind(), weight.unbind(), shifts, strict=True)
        ]
        return each[0][None] if len(each) == 1 else torch.stack(each)
    runs, rows = pictures.shape[:2]
    columns, height = patches(pictures.flatten(0, 1), weight.shape[-2:], stride, dilation, groups)
    size = columns[0].shape[1]
    shifts = [None] * groups if bias is None else bias.chunk(groups, 1)
    pieces = [
        batched(one.reshape(runs, -1, one.shape[-1]), kernel.transpose(1, 2), shift)
        for one, kernel, shift in zip(columns, weight.flatten(2).chunk(groups, 1), shifts, strict=True)
    ]
    made = cat(pieces, -1).reshape(runs, rows, height, size // height, -1)
    return made.permute(0, 1, 4, 2, 3).clone(memory_format=torch.contiguous_format)


def convolve_back(
    slopes: torch.Tensor,
    pictures: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of the pictures from that of the outputs."""
    weight = weight.to(slopes.dtype)
    if slopes.is_cuda:
        return _folded(slopes, pictures, weight, stride, dilation, groups).to(pictures.dtype)
    each = [
        A.convolution_backward(
            *(one, seen.to(one.dtype), kernel, None, stride, (0, 0), dilation, False, (0, 0), groups),
            (True, False, False),
        )[0]
        for one, seen, kernel in zip(slopes.unbind(), pictures.unbind(), weight.unbind(), strict=True)
    ]
    return (each[0][None] if len(each) == 1 else torch.stack(each)).to(pictures.dtype)


def patches(
    pictures: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> tuple[list[torch.Tensor], int]:
    """[rows, places, channels × kernel] for each group, and how many places are below each other."""
    if pictures.is_cuda and _plain(dilation, groups):
        sides = zip(pictures.shape[2:], kernel, stride, strict=True)
        places = [(whole - size) // step + 1 for whole, size, step in sides]
        return [kernels.unfold(pictures, places, kernel, stride)], places[0]
    found = pictures
    for dim, (size, step, gap) in enumerate(zip(kernel, stride, dilation, strict=True)):
        found = found.unfold(2 + dim, (size - 1) * gap + 1, step)[..., ::gap]
    height = found.shape[2]
    return [
        one.permute(0, 2, 3, 1, 4, 5).reshape(len(pictures), -1, one.shape[1] * kernel[0] * kernel[1])
        for one in found.chunk(groups, 1)
    ], height


def _plain(dilation: Sequence[int], groups: int) -> bool:
    """Whether there are kernels for it."""
    return kernels.AVAILABLE and groups == 1 and tuple(dilation) == (1, 1)


def _folded(
    slopes: torch.Tensor,
    pictures: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """The gradient of the pictures from those of the patches."""
    runs, rows = slopes.shape[:2]
    kernel, gradient = tuple(weight.shape[-2:]), slopes.flatten(0, 1)
    if _plain(dilation, groups):
        given = gradient.flatten(2).transpose(1, 2).reshape(runs, -1, gradient.shape[1])
        matrix = weight.permute(0, 1, 3, 4, 2).flatten(2)  # channels last
        sizes = (runs * rows, *pictures.shape[2:])
        made = kernels.fold(torch.bmm(given, matrix), sizes, gradient.shape[2:], kernel, stride)
        return made.view(pictures.shape)
    pieces = [
        batched(one.transpose(1, 2).reshape(runs, -1, one.shape[1]), matrix).reshape(runs * rows, -1, matrix.shape[-1])
        for one, matrix in zip(gradient.flatten(2).chunk(groups, 1), weight.flatten(2).chunk(groups, 1), strict=True)
    ]
    columns = cat(pieces, -1).transpose(1, 2)
    size = tuple(pictures.shape[3:])
    made = functional.fold(columns, size, kernel, tuple(dilation), 0, tuple(stride))
    return made.view(pictures.shape)


_library: Any = torch.library.Library("dphypo", "DEF")  # type: ignore[no-untyped-call]
_OPTIONS = "int[] stride, int[] dilation, int groups"
_library.define(f"convolve(Tensor pictures, Tensor weight, Tensor? bias, {_OPTIONS}) -> Tensor")
_library.define(f"convolve_back(Tensor slopes, Tensor pictures, Tensor weight, {_OPTIONS}) -> Tensor")


def _shape(pictures: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, dilation: Any, groups: int) -> Any:
    """The outputs of :func:`convolve`, without values."""
    sides = zip(pictures.shape[3:], weight.shape[3:], stride, dilation, strict=True)
    places = [(whole - (size - 1) * gap - 1) // step + 1 for whole, size, step, gap in sides]
    return pictures.new_empty((*pictures.shape[:2], weight.shape[1], *places))


def _batch_rule(count: int, op: Any) -> Callable[..., Any]:
    """The rule for a batch of calls: pictures become rows where the weight is common, and runs where it is not."""

    def rule(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[torch.Tensor, int]:
        size, shared = info.batch_size, dims[count] is None and (count == 2 or dims[2] is None)
        tensors: list[Any] = [
            None if one is None else one.unsqueeze(0).expand(size, *one.shape) if dim is None else one.movedim(dim, 0)
            for one, dim in zip(args[:3], dims[:3], strict=True)
        ]
        options = args[3:]
        if not shared:
            made = op(*(None if one is None else one.flatten(0, 1) for one in tensors), *options)
            return made.unflatten(0, (size, -1)), 0
        rows = [one.transpose(0, 1).flatten(1, 2) for one in tensors[:count]]
        made = op(*rows, *args[count:3], *options)
        return made.unflatten(1, (size, -1)), 1

    return rule


CONVOLVE, BACK = torch.ops.dphypo.convolve.default, torch.ops.dphypo.convolve_back.default
for _name, _function in (("convolve", convolve), ("convolve_back", convolve_back)):
    torch.library.impl(_library, _name, "CompositeExplicitAutograd")(_function)
torch.library.register_fake("dphypo::convolve", _shape, lib=_library)
torch.library.register_fake(
    "dphypo::convolve_back", lambda slopes, pictures, *_: torch.empty_like(pictures), lib=_library
)
torch.library.register_vmap("dphypo::convolve", _batch_rule(1, CONVOLVE), lib=_library)
torch.library.register_vmap("dphypo::convolve_back", _batch_rule(2, BACK), lib=_library)
EAGER: dict[Any, Callable[..., torch.Tensor]] = {CONVOLVE: convolve, BACK: convolve_back}
"""What the operators compute, without a dispatcher."""


def lower(graph: fx.GraphModule) -> None:
    """Replace PyTorch's convolutions in a record's graph by these operators; weight gradients were taken out before."""
    for node in list(graph.graph.nodes):
        if node.target is A.convolution.default and _known(node.args[6], node.args[1]):
            _lower_forward(graph.graph, node)
        elif node.target is A.convolution_backward.default and _known(node.args[7], node.args[2]):
            _lower_backward(graph.graph, node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _known(transposed: bool, weight: Any) -> bool:
    return not transposed and weight.meta["val"].dim() in (3, 4)


def _picture(graph: fx.Graph, node: Any, padding: Sequence[int]) -> fx.Node:
    """[1, 1, channels, height, width], with its padding."""
    if node.meta["val"].dim() == 3:
        node = graph.call_function(A.unsqueeze.default, (node, 2))
    edges = pair(padding, 0)
    if any(edges):
        node = graph.call_function(A.constant_pad_nd.default, (node, [edges[1], edges[1], edges[0], edges[0]]))
    return graph.call_function(A.unsqueeze.default, (node, 0))


def _kernel(graph: fx.Graph, weight: Any) -> fx.Node:
    if weight.meta["val"].dim() == 3:
        weight = graph.call_function(A.unsqueeze.default, (weight, 2))
    return graph.call_function(A.unsqueeze.default, (weight, 0))


def _lower_forward(graph: fx.Graph, node: Any) -> None:
    inputs, weight, bias, stride, padding, dilation, _, _, groups = node.args
    with graph.inserting_before(node):
        shift = None if bias is None else graph.call_function(A.unsqueeze.default, (bias, 0))
        given = (_picture(graph, inputs, padding), _kernel(graph, weight), shift)
        made = graph.call_function(CONVOLVE, (*given, pair(stride, 1), pair(dilation, 1), groups))
        result = graph.call_function(A.reshape.default, (made, list(node.meta["val"].shape)))
    result.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(result)


def _lower_backward(graph: fx.Graph, node: Any) -> None:
    slopes, inputs, weight, _, stride, padding, dilation, _, _, groups, _ = node.args
    users = {user.args[1]: user for user in node.users}
    value = inputs.meta["val"]
    with graph.inserting_before(node):
        if 0 in users:
            given = (_picture(graph, slopes, (0,)), _picture(graph, inputs, padding), _kernel(graph, weight))
            made = graph.call_function(BACK, (*given, pair(stride, 1), pair(dilation, 1), groups))
            sizes = pair(value.shape[2:], 1)
            for dim, (edge, size) in enumerate(zip(pair(padding, 0), sizes, strict=True)):
                if edge:
                    made = graph.call_function(A.slice.Tensor, (made, 3 + dim, edge, edge + size))
            result = graph.call_function(A.reshape.default, (made, list(value.shape)))
            result.meta["val"] = value
            users[0].replace_all_uses_with(result)
        if 2 in users:
            places = [0, *range(2, slopes.meta["val"].dim())]
            total = graph.call_function(A.sum.dim_IntList, (slopes, places))
            total.meta["val"] = users[2].meta["val"]
            users[2].replace_all_uses_with(total)
    node.update_arg(10, [False, 1 in users and bool(users[1].users), False])
