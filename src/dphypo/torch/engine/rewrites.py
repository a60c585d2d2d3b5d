"""Rewrites the graph of one record so that no value raises an exception, and random numbers are its inputs.

:func:`make_total` and :func:`key_randomness` change a graph of ``aten`` overloads in place. Its nodes have
``meta["val"]``, as ``make_fx`` and ``functionalize`` set it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from dphypo.torch.engine.operators import BY_ADDRESS, CPU, called, held, refusal, shaped

A = torch.ops.aten


def _weight_norm_backward(
    upstream: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The derivatives of w = g·v/|v| with respect to v and g; norms are over all dimensions but one."""
    along = (upstream * v).sum([place for place in range(v.dim()) if place != dim], keepdim=True) / norms
    return g / norms * (upstream - v * along / norms), along


def _masked_fill(value: torch.Tensor, mask: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, other.to(value.dtype), value)


_KNOWN = get_decompositions(
    [
        *(A.native_batch_norm, A.native_batch_norm_backward, A._native_batch_norm_legit),
        *(A._native_batch_norm_legit_no_training, A.dot, A.index_fill, A._prelu_kernel, A._prelu_kernel_backward),
        *(A.binary_cross_entropy, A.binary_cross_entropy_backward, A.binary_cross_entropy_with_logits),
        *(A.mse_loss, A.mse_loss_backward, A.smooth_l1_loss, A.smooth_l1_loss_backward, A.huber_loss),
        *(A.huber_loss_backward, A.soft_margin_loss, A.soft_margin_loss_backward, A.mish_backward),
        *(A.unfold_backward, A._weight_norm_interface),
    ]
)
DECOMPOSED: dict[Any, Callable[..., Any]] = {
    **_KNOWN,
    A._weight_norm_interface_backward.default: _weight_norm_backward,
    A.masked_fill.Tensor: _masked_fill,
}
"""Operators to decompose: they raise because of values, or have no rule for some uses under ``vmap``."""


class _Editor:
    """Inserts operators into a graph before the node that is being rewritten, and knows the shape of their results."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm, self.graph = gm, gm.graph
        self.outside: list[fx.Node] = []
        self._clamped: dict[tuple[fx.Node, int, int, int | None], fx.Node] = {}
        self._node: Any = None
        self._trace: str | None = None

    def at(self, node: fx.Node) -> Any:
        self._node, self._trace = node, node.meta.get("stack_trace")
        return self.graph.inserting_before(node)

    def value(self, node: Any) -> Any:
        return node.meta["val"]

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = called(self.graph, target, args, kwargs)
        if self._trace:
            node.meta["stack_trace"] = self._trace
        return node

    def constant(self, tensor: torch.Tensor) -> fx.Node:
        node = self.graph.get_attr(held(self.gm, tensor))
        node.meta["val"] = torch.empty_like(tensor, device="meta")
        return node

    def fits(self, wrong: fx.Node) -> None:
        """Mark records for which any element is true as outside."""
        self.outside.append(self.call(A.any.default, wrong) if self.value(wrong).dim() else wrong)

    def clamp(self, index: fx.Node, low: int, size: int, ignored: int | None = None) -> fx.Node:
        """An index whose values are clamped to [low, size), or are ``ignored``."""
        key = (index, low, size, ignored)
        if size < 1 and self.value(index).numel():  # kernels would write before their memory
            raise refusal(self._node, "looks up in a dimension of size 0, which no index is in")
        if key not in self._clamped:
            clamped = self.call(A.clamp.default, index, low, size - 1)
            if ignored is not None and not 0 <= ignored < size:
                clamped = self.call(A.masked_fill.Scalar, clamped, self.call(A.eq.Scalar, index, ignored), ignored)
            self.fits(self.call(A.ne.Tensor, index, clamped))
            self._clamped[key] = clamped
        return self._clamped[key]


Rule = Callable[[_Editor, fx.Node], "fx.Node | None"]
"""Changes a node's arguments, or returns the node that replaces it."""


def make_total(gm: fx.GraphModule) -> None:
    """Rewrite a one-record graph so that no value raises an exception, and add the output "outside".

    Indices, negative ones included, are clamped to what the operator accepts; divisors of integers and floats that
    become integers are moved into their range. Views by strides become look-ups. The added last output, a boolean
    scalar, is true for a record that had a value outside; its other outputs mean nothing, and its weight is 0.
    """
    edit = _Editor(gm)
    for node in list(gm.graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is not None:
            with edit.at(node):
                new = rule(edit, node)
            if new is not None:
                node.replace_all_uses_with(new)
                gm.graph.erase_node(node)
    output: Any = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        if not edit.outside:
            edit.outside.append(edit.call(A.full.default, [], False, dtype=torch.bool, device=CPU))
        outside = edit.outside[0]
        for one in edit.outside[1:]:
            outside = edit.call(A.logical_or.default, outside, one)
    output.args = ((*output.args[0], outside),)
    _finish(gm)


_BY_ADDRESS = {
    getattr(torch.Tensor, name)
    for name in ("data_ptr", "untyped_storage", "storage", "apply_", "numpy", "__array__", "__dlpack__")
}


class Capture(TorchFunctionMode):
    """During capture, refuse code that asks for the memory of a value: there is none, and the process would end.

    Also captures models that drop a layer if ``torch.rand([]) < 0.0``: a draw from [0, 1) is never below zero.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_ADDRESS and isinstance(args[0], FakeTensor) and not _asked_by_torch():
            no_memory(func.__name__)
        if func in (torch.Tensor.__lt__, torch.Tensor.lt, torch.lt):
            value, limit = args
            if value in self._drawn and not isinstance(limit, torch.Tensor) and limit <= 0:
                return False
        found = func(*args, **(kwargs or {}))
        if func is torch.rand:
            self._drawn[found] = True
        return found


def no_memory(name: str) -> None:
    """Raise an error for code that asks for the memory of a value."""
    raise RuntimeError(f"{name} reads a tensor's memory, or gives its data pointer: there is none at capture")


def _asked_by_torch() -> bool:
    """Whether PyTorch itself, and not the model, calls a function that a mode sees."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_name in ("__torch_function__", "handle_torch_function", "__dlpack__", "from_dlpack"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"


def key_randomness(gm: fx.GraphModule) -> list[tuple[int, ...]]:
    """Replace random operators by functions of uniform numbers, which become the last placeholders.

    Returns the shapes of these placeholders, in order: float32 numbers of [0, 1), which the engine derives from the
    run, the step, the record and the placeholder's number.
    """
    edit, shapes = _Editor(gm), list[tuple[int, ...]]()
    last = [node for node in gm.graph.nodes if node.op == "placeholder"][-1]
    for node in list(gm.graph.nodes):
        if not isinstance(node.target, OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
            continue
        if not node.users:
            gm.graph.erase_node(node)
            continue
        rule = _RANDOM.get(node.target)
        if rule is None:
            raise refusal(node, "draws in a way that has no keyed form: use torch.rand or dropout")
        value = node.meta["val"]
        value = value[0] if isinstance(value, (tuple, list)) else value
        with gm.graph.inserting_after(last):
            last = gm.graph.placeholder(f"uniforms_{len(shapes)}")
        last.meta["val"] = value.new_empty(value.shape, dtype=torch.float32)
        shapes.append(tuple(value.shape))
        with edit.at(node):
            new = rule(edit, node, last)
        if isinstance(new, tuple):
            for user in list(node.users):
                user.replace_all_uses_with(new[user.args[1]])
                gm.graph.erase_node(user)
        else:
            node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
    _finish(gm)
    return shapes


def _finish(gm: fx.GraphModule) -> None:
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()


def _indexed(place: int, size: Callable[[_Editor, fx.Node], int], negative: bool = False) -> Rule:
    """The rule of an operator whose argument at ``place`` is an index below ``size``, or ``negative``, from the end."""

    def rule(edit: _Editor, node: fx.Node) -> None:
        limit = size(edit, node)
        node.update_arg(place, edit.clamp(node.args[place], -limit if negative else 0, limit))  # type: ignore[arg-type]

    return rule


def _scattered(edit: _Editor, node: fx.Node) -> None:
    """The rule of an embedding's derivative; ``vmap`` would write zeros into the row of ``padding_idx`` in place."""
    upstream, index, rows, padding, scaled = node.args
    if scaled:
        raise refusal(node, "counts how often a record uses a row: omit scale_grad_by_freq")
    limit: Any = rows
    index = edit.clamp(index, 0, limit)  # type: ignore[arg-type]
    if isinstance(padding, int) and padding >= 0:
        unused = edit.call(A.unsqueeze.default, edit.call(A.eq.Scalar, index, padding), -1)
        upstream = edit.call(A.masked_fill.Scalar, upstream, unused, 0)
    node.args = (upstream, index, rows, -1, False)


def _along(edit: _Editor, node: fx.Node) -> int:
    """The size of a node's first argument in the dimension that its second argument names."""
    value = edit.value(node.args[0])
    return int(value.shape[node.args[1]]) if value.dim() else 1


def _by_tensors(edit: _Editor, node: fx.Node) -> fx.Node | None:
    """The rule of ``index`` and ``index_put``: each index belongs to a dimension; a mask may only choose one value."""
    value, indices = edit.value(node.args[0]), list(node.args[1])  # type: ignore[arg-type]
    masks = [one for one in indices if one is not None and edit.value(one).dtype in (torch.bool, torch.uint8)]
    if masks:
        return _by_mask(edit, node, indices)
    for dimension, index in enumerate(indices):
        if index is not None:
            size = int(value.shape[dimension])
            indices[dimension] = edit.clamp(index, -size, size)
    node.update_arg(1, indices)
    return None


def _by_mask(edit: _Editor, node: fx.Node, indices: list[Any]) -> fx.Node:
    accumulate = len(node.args) > 3 and node.args[3]
    if len(node.args) < 3 or len(indices) != 1 or accumulate or edit.value(node.args[2]).numel() != 1:
        why = "chooses elements by a mask, so the size of its result depends on a record's values"
        raise refusal(node, f"{why}: use torch.where or masked_fill")
    value, mask = edit.value(node.args[0]), indices[0]
    for _ in range(value.dim() - edit.value(mask).dim()):
        mask = edit.call(A.unsqueeze.default, mask, -1)
    chosen = edit.call(A.reshape.default, node.args[2], [])
    return edit.call(A.where.self, edit.call(A.ne.Scalar, mask, 0), chosen, node.args[0])


def _labels(edit: _Editor, node: fx.Node) -> None:
    """The rule of ``nll_loss``: a target is a class, or the label that is ignored."""
    backward = node.target in (A.nll_loss_backward.default, A.nll_loss2d_backward.default)
    scores, place = (node.args[1], 2) if backward else (node.args[0], 1)
    shape = edit.value(scores).shape
    classes = int(shape[0] if len(shape) == 1 else shape[1])
    ignored = node.args[place + 3]
    node.update_arg(place, edit.clamp(node.args[place], 0, classes, ignored))  # type: ignore[arg-type]


def _divided(edit: _Editor, node: fx.Node) -> None:
    """The rule of division: an integer divided by zero, or the smallest one by −1, stops the process."""
    upper, lower = node.args[:2]
    if edit.value(node).dtype.is_floating_point or (not isinstance(lower, fx.Node) and lower != -1):
        return
    wrong = []
    if isinstance(upper, fx.Node) and (kind := edit.value(upper).dtype).is_signed:
        wrong.append(edit.call(A.eq.Scalar, upper, torch.iinfo(kind).min))
    if isinstance(lower, fx.Node):
        both = [edit.call(A.logical_and.default, one, edit.call(A.eq.Scalar, lower, -1)) for one in wrong]
        wrong = [edit.call(A.logical_or.default, edit.call(A.eq.Scalar, lower, 0), one) for one in both]
        wrong = wrong or [edit.call(A.eq.Scalar, lower, 0)]
    for one in wrong:
        edit.fits(one)
        shape = list(edit.value(one).shape)
        if isinstance(lower, fx.Node):
            node.update_arg(1, edit.call(A.masked_fill.Scalar, edit.call(A.expand.default, lower, shape), one, 1))
        else:
            node.update_arg(0, edit.call(A.masked_fill.Scalar, upper, one, 0))


def _converted(edit: _Editor, node: fx.Node) -> None:
    """The rule of a conversion: a float that no integer holds becomes the nearest one, the same in every place."""
    if not isinstance(node.args[0], fx.Node):  # a number, under vmap
        return
    kind, to = edit.value(node.args[0]).dtype, edit.value(node).dtype
    if not kind.is_floating_point or to.is_floating_point or to.is_complex or to == torch.bool:
        return
    least, most = max(torch.iinfo(to).min, -(2**62)), min(torch.iinfo(to).max, 2**62)  # floats, in double precision
    number = edit.call(A._to_copy.default, node.args[0], dtype=torch.float64)
    number = edit.call(A.nan_to_num.default, number, 0.0, float(most), float(least))
    node.update_arg(0, edit.call(A.clamp.default, number, float(least), float(most)))


def _copied(edit: _Editor, node: fx.Node) -> fx.Node:
    old, new = edit.value(node.args[0]), node.args[1]
    if edit.value(new).dtype != old.dtype:
        new = edit.call(A._to_copy.default, new, dtype=old.dtype)
        with edit.graph.inserting_before(new):
            _converted(edit, new)
    return edit.call(A.clone.default, edit.call(A.expand.default, new, list(old.shape)))


def _filled(edit: _Editor, node: fx.Node) -> fx.Node:
    if isinstance(node.args[1], fx.Node):
        return _copied(edit, node)
    return edit.call(A.full_like.default, node.args[0], node.args[1])


def _ends(edit: _Editor, node: fx.Node) -> None:
    """``slice_scatter`` under ``vmap`` counts to the end of the slice, which may be the largest integer."""
    given: tuple[Any, ...] = node.args
    into, source, dimension, start, end, step = tuple(given) + (0, None, None, 1)[len(given) - 2 :]
    start, end, _ = slice(start, end).indices(edit.value(into).shape[dimension])
    node.args = (into, source, dimension, start, end, step)


def _strided(edit: _Editor, node: fx.Node) -> fx.Node:
    """The rule of a view by strides: a look-up by a constant index, computed from the strides at capture."""
    scatter = node.target is A.as_strided_scatter.default
    old = edit.value(node.args[0])
    given: tuple[Any, ...] = node.args[2 if scatter else 1 :]
    sizes, strides, *offset = given
    start = offset[0] if offset and offset[0] is not None else old.storage_offset()
    here, there = _addresses(old.shape, old.stride(), old.storage_offset()), _addresses(sizes, strides, start)
    found = torch.full((int(torch.cat([here, there]).max()) + 1,), -1)
    found[here] = torch.arange(len(here))
    index = found[there]
    if bool((index < 0).any()) or (scatter and not (_distinct(index) and _distinct(here))):
        raise refusal(node, BY_ADDRESS)
    line = edit.call(A.reshape.default, node.args[0], [-1])
    places = edit.constant(index)
    if not scatter:
        return edit.call(A.reshape.default, edit.call(A.index_select.default, line, 0, places), list(sizes))
    source = edit.call(A.reshape.default, node.args[1], [-1])
    return edit.call(A.reshape.default, edit.call(A.index_copy.default, line, 0, places, source), list(old.shape))


def _distinct(numbers: torch.Tensor) -> bool:
    return len(set(numbers.tolist())) == len(numbers)


def _addresses(sizes: Any, strides: Any, start: int) -> torch.Tensor:
    place = torch.full((), int(start))
    for size, stride in zip(sizes, strides, strict=True):
        place = place[..., None] + torch.arange(size) * stride
    return place.reshape(-1)


def _dropped(edit: _Editor, node: fx.Node) -> None:
    edit.graph.erase_node(node)


def _searched(edit: _Editor, node: fx.Node) -> None:
    if node.kwargs.get("sorter") is not None:
        raise refusal(node, "raises if a sorter is no permutation: sort with torch.gather before")


def _rolled(edit: _Editor, node: fx.Node) -> Any:
    """The rule of ``roll``: under ``vmap`` a single number of each record would roll over the records."""
    return None if edit.value(node).dim() else node.args[0]


_OTHER_SHAPES = "is given other shapes than its forward pass has, and would read other memory: let PyTorch call it"


def _pooled(edit: _Editor, node: fx.Node) -> None:
    """The rule of the derivative of a maximum over windows, if its places are not those of the forward pass."""
    place = len(node.args) - 1
    index, (*lead, height, width) = node.args[place], edit.value(node.args[1]).shape
    slopes = edit.value(node.args[0]).shape
    if slopes != edit.value(index).shape or [*slopes[:-2]] != lead:
        raise refusal(node, _OTHER_SHAPES)
    planes = torch.Size((height, width))
    source: Any = index.args[0] if isinstance(index, fx.Node) and index.target is operator.getitem else None
    pooled = getattr(source, "target", None) in (A.max_pool2d_with_indices.default, A.adaptive_max_pool2d.default)
    if not pooled or edit.value(source.args[0]).shape[-2:] != planes:
        node.update_arg(place, edit.clamp(index, 0, int(planes.numel())))  # type: ignore[arg-type]


def _derivative(forward: Callable[..., Iterable[tuple[torch.Tensor, torch.Tensor]]]) -> Rule:
    """The rule of a derivative whose kernel does not check shapes: where they differ, it reads memory of other records.

    ``forward`` gives arguments of the derivative, each with what the forward pass gives in its place.
    """

    def rule(edit: _Editor, node: fx.Node) -> None:
        given = fx.node.map_arg(node.args, edit.value)
        try:
            alike = all(one.shape == made.shape for one, made in forward(*given))
        except Exception:  # of shapes that no forward pass has
            alike = False
        if not alike:
            raise refusal(node, _OTHER_SHAPES)

    return rule


def _of_softmax(slopes: Any, made: Any, *_: Any) -> Any:
    return [(slopes, made)]


def _of_norm(slopes: Any, value: Any, sizes: Any, mean: Any, scale: Any, weight: Any, bias: Any, _: Any) -> Any:
    made = shaped(A.native_layer_norm.default, (value, sizes, weight, bias, 1e-5), {})
    return zip((slopes, mean, scale), made, strict=True)


def _of(target: OpOverload) -> Callable[..., Any]:
    return lambda slopes, *given: [(slopes, shaped(target, given, {}))]


def _of_convolution(slopes: Any, pictures: Any, weight: Any, _: Any, *more: Any) -> Any:
    return [(slopes, shaped(A.convolution.default, (pictures, weight, None, *more[:-1]), {}))]


def _of_average(slopes: Any, pictures: Any) -> Any:
    return [(slopes, shaped(A._adaptive_avg_pool2d.default, (pictures, slopes.shape[-2:]), {}))]


def _of_grid(slopes: Any, pictures: Any, grid: Any, *more: Any) -> Any:
    return [(slopes, shaped(A.grid_sampler_2d.default, (pictures, grid, *more[:-1]), {}))]


_RULES: dict[Any, Any] = {
    A._softmax_backward_data.default: _derivative(_of_softmax),
    A._log_softmax_backward_data.default: _derivative(_of_softmax),
    A.native_layer_norm_backward.default: _derivative(_of_norm),
    A.reflection_pad1d_backward.default: _derivative(_of(A.reflection_pad1d.default)),
    A.reflection_pad2d_backward.default: _derivative(_of(A.reflection_pad2d.default)),
    A.replication_pad1d_backward.default: _derivative(_of(A.replication_pad1d.default)),
    A.replication_pad2d_backward.default: _derivative(_of(A.replication_pad2d.default)),
    A.convolution_backward.default: _derivative(_of_convolution),
    A.avg_pool2d_backward.default: _derivative(_of(A.avg_pool2d.default)),
    A.avg_pool3d_backward.default: _derivative(_of(A.avg_pool3d.default)),
    A._adaptive_avg_pool2d_backward.default: _derivative(_of_average),
    A.grid_sampler_2d_backward.default: _derivative(_of_grid),
    A.embedding.default: _indexed(1, lambda edit, node: len(edit.value(node.args[0]))),
    A.embedding_dense_backward.default: _scattered,
    A.gather.default: _indexed(2, _along),
    A.scatter.src: _indexed(2, _along),
    A.scatter.value: _indexed(2, _along),
    A.scatter_add.default: _indexed(2, _along),
    A.index_select.default: _indexed(2, _along),
    A.index_add.default: _indexed(2, _along),
    A.index_copy.default: _indexed(2, _along),
    A.index.Tensor: _by_tensors,
    A._unsafe_index.Tensor: _by_tensors,
    A.index_put.default: _by_tensors,
    A._unsafe_index_put.default: _by_tensors,
    A.nll_loss_forward.default: _labels,
    A.nll_loss_backward.default: _labels,
    A.nll_loss2d_forward.default: _labels,
    A.nll_loss2d_backward.default: _labels,
    A.max_pool2d_with_indices_backward.default: _pooled,
    A.adaptive_max_pool2d_backward.default: _pooled,
    A.searchsorted.Tensor: _searched,
    A.roll.default: _rolled,
    A.div.Tensor_mode: _divided,
    A.floor_divide.default: _divided,
    A.remainder.Tensor: _divided,
    A.remainder.Scalar_Tensor: _divided,
    A.fmod.Tensor: _divided,
    A.div.Scalar_mode: _divided,
    A.remainder.Scalar: _divided,
    A.fmod.Scalar: _divided,
    A._to_copy.default: _converted,
    A.copy.default: _copied,
    A.fill.Scalar: _filled,
    A.fill.Tensor: _filled,
    A.slice_scatter.default: _ends,
    A.as_strided.default: _strided,
    A.as_strided_scatter.default: _strided,
    A._assert_tensor_metadata.default: _dropped,
}


def _uniform(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    """Uniform numbers of the node's type, which stay below 1 when they are rounded to it."""
    kind = edit.value(node).dtype
    if kind in (torch.float16, torch.bfloat16):
        uniforms = edit.call(A.clamp_max.default, uniforms, 1 - torch.finfo(kind).eps)
    return uniforms if kind == torch.float32 else edit.call(A._to_copy.default, uniforms, dtype=kind)


def _between(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    given: tuple[Any, ...] = node.args[1:]
    low, high = tuple(given) + (0.0, 1.0)[len(given) :]
    wide = edit.call(A.mul.Scalar, _uniform(edit, node, uniforms), high - low)
    return edit.call(A.add.Scalar, wide, low)


def _gaussian(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    """Normal numbers by the inverse of their distribution function, at the middle of each step of the uniform ones."""
    middle = edit.call(A.clamp.default, edit.call(A.add.Scalar, uniforms, 2.0**-25), 2.0**-25, 1 - 2.0**-24)
    centred = edit.call(A.sub.Scalar, edit.call(A.mul.Scalar, middle, 2.0), 1.0)
    normal = edit.call(A.mul.Scalar, edit.call(A.erfinv.default, centred), 2.0**0.5)
    kind = edit.value(node).dtype
    return normal if kind == torch.float32 else edit.call(A._to_copy.default, normal, dtype=kind)


def _located(first: int) -> Callable[[_Editor, fx.Node, fx.Node], fx.Node]:
    """Normal numbers whose mean and deviation are the node's arguments from ``first`` on."""

    def rule(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
        given: tuple[Any, ...] = node.args[first : first + 2]
        mean, deviation = tuple(given) + (0.0, 1.0)[len(given) :]
        numbers = _gaussian(edit, node, uniforms)
        numbers = edit.call(A.mul.Tensor if isinstance(deviation, fx.Node) else A.mul.Scalar, numbers, deviation)
        return edit.call(A.add.Tensor if isinstance(mean, fx.Node) else A.add.Scalar, numbers, mean)

    return rule


def _exponential(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    rate = node.args[1] if len(node.args) > 1 else 1.0
    lost = edit.call(A.log1p.default, edit.call(A.neg.default, _uniform(edit, node, uniforms)))
    return edit.call(A.div.Scalar, edit.call(A.neg.default, lost), rate)


def _coin(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    chance = node.args[1] if len(node.args) > 1 else node.args[0]
    fell = edit.call(A.lt.Tensor if isinstance(chance, fx.Node) else A.lt.Scalar, uniforms, chance)
    return edit.call(A._to_copy.default, fell, dtype=edit.value(node).dtype)


def _dropout(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> tuple[fx.Node, fx.Node]:
    value, chance, training = node.args
    chance = float(chance) if training or training is None else 0.0  # type: ignore[arg-type]
    mask = edit.call(A.ge.Scalar, uniforms, chance)
    kept = edit.call(A.mul.Tensor, value, edit.call(A._to_copy.default, mask, dtype=edit.value(value).dtype))
    return edit.call(A.mul.Scalar, kept, 1 / (1 - chance) if chance < 1 else 0.0), mask


def _whole(low: int, high: int) -> Callable[[_Editor, fx.Node, fx.Node], fx.Node]:
    """Integers from the argument at ``low``, or 0 if that is negative, up to the one at ``high``."""

    def rule(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
        given: tuple[Any, ...] = node.args
        least, most = 0 if low < 0 else given[low], given[high]
        steps = edit.call(A.mul.Scalar, edit.call(A._to_copy.default, uniforms, dtype=torch.float64), most - least)
        numbers = edit.call(A.add.Scalar, edit.call(A.floor.default, steps), least)
        return edit.call(A._to_copy.default, numbers, dtype=edit.value(node).dtype)

    return rule


def _shuffled(edit: _Editor, node: fx.Node, uniforms: fx.Node) -> fx.Node:
    ordered = edit.call(A.sort.stable, uniforms, stable=True, dim=0)
    return edit.call(operator.getitem, ordered, 1)


_RANDOM: dict[Any, Any] = {
    A.rand.default: _uniform,
    A.rand_like.default: _uniform,
    A.uniform.default: _between,
    A.randn.default: _gaussian,
    A.randn_like.default: _gaussian,
    A.normal_functional.default: _located(1),
    A.normal.Tensor_float: _located(0),
    A.normal.float_Tensor: _located(0),
    A.normal.Tensor_Tensor: _located(0),
    A.normal.float_float: _located(0),
    A.exponential.default: _exponential,
    A.bernoulli.p: _coin,
    A.bernoulli.default: _coin,
    A.native_dropout.default: _dropout,
    A.randint.default: _whole(-1, 0),
    A.randint.low: _whole(0, 1),
    A.randint_like.default: _whole(-1, 1),
    A.randint_like.low_dtype: _whole(1, 2),
    A.randperm.default: _shuffled,
}
