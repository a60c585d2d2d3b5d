"""The graph of one record over all records and runs of a piece: one flat list of operators at a fixed shape.

``vmap`` over the records and over the runs is traced once, so nothing of it is left when the list is executed. The list
is then simplified, and its products of matrices replaced by ones in which a record's place and the other runs change no
bit (``layers.py``). On a CPU every run's product is a separate call, with the same shapes as if the run were alone.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._ops import OpOverload
from torch.func import vmap

from dphypo.torch.engine import capture, kernels, layers, operators
from dphypo.torch.engine.capture import retraced, without_values
from dphypo.torch.engine.layers import product, product_by_run, steady_product
from dphypo.torch.engine.operators import insert

A = torch.ops.aten
_TURNS = {A.permute.default, A.transpose.int}
_RESHAPES = {A.reshape.default, A.unsqueeze.default, A.squeeze.dim, A.squeeze.dims, A.expand.default}
_VIEWS = {*_TURNS, *_RESHAPES, A.t.default, A.select.int, torch.unbind}
_LOOKUPS = {A.embedding.default, A.index_select.default, A.index.Tensor}
_FEW = 64  # numbers of a row for which a log-softmax is slow on a CPU


class FlatGraph(NamedTuple):
    """A graph, and a function that executes it: ``bind(*trained, *given)(*rows)``.

    Trained tensors have a first dimension of runs, and may change in place between calls.
    """

    graph: fx.GraphModule
    bind: Callable[..., Callable[..., tuple[torch.Tensor, ...]]]


def flatten(
    graph: fx.GraphModule,
    trained: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    record: Sequence[torch.Tensor],
    runs: int,
    rows: int,
) -> FlatGraph:
    """The graph of ``runs`` runs with ``rows`` rows each.

    Args:
        graph: the graph of one record.
        trained: the trained tensors, with a first dimension of runs.
        given: the tensors that all runs share. On a CPU, where each run has its own products, they are expanded; tables
            in which records are looked up are not.
        record: the inputs, the target and the random numbers of one row.
        runs, rows: how many.
    """
    device = record[0].device
    by_run = device.type == "cpu"
    places = graph.graph.find_nodes(op="placeholder")[len(trained) : len(trained) + len(given)]
    leads = [(runs,) if by_run and not _is_table(node) else () for node in places]
    over_rows = (*[None] * (len(trained) + len(given)), *[0] * len(record))
    over_runs = (*[0] * len(trained), *(0 if lead else None for lead in leads), *[0] * len(record))

    def over_both(function: Callable[..., Any]) -> Callable[..., Any]:
        return vmap(vmap(function, over_rows, randomness="error"), over_runs, randomness="error")

    some = [without_values(one) for one in trained]
    some += [without_values(one, *lead) for one, lead in zip(given, leads, strict=True)]
    some += [without_values(one, runs, rows) for one in record]
    with warnings.catch_warnings(action="ignore"):  # about operators that vmap loops over
        flat = retraced(graph, over_both, some)
    capture.put_on(flat, device)
    capture.fold(flat)
    operators.check_graph(flat, frozenset(layers.EAGER))
    _simplify(flat.graph)
    if by_run:
        _by_columns(flat.graph)
        _products_by_run(flat.graph, runs)
    else:
        if kernels.AVAILABLE:
            _pools_by_kernels(flat.graph)
        _steady_products(flat.graph, runs, rows)
    _simplify(flat.graph)
    for node in flat.graph.nodes:
        node.target = layers.EAGER.get(node.target, node.target)
    flat.graph.eliminate_dead_code()
    flat.graph.lint()
    compiled = _compiled(flat, len(trained), len(trained) + len(given))

    def bind(*held: torch.Tensor) -> Callable[..., tuple[torch.Tensor, ...]]:
        own, shared = held[: len(trained)], held[len(trained) :]
        each = (one.expand((*lead, *one.shape)) for one, lead in zip(shared, leads, strict=True))
        return compiled(*own, *each)  # type: ignore[no-any-return]

    return FlatGraph(flat, bind)


def _is_table(node: fx.Node) -> bool:
    """Whether only look-ups use a tensor: they copy numbers, and give the same bits for any number of rows."""
    return all(
        user.target in _LOOKUPS and user.all_input_nodes.count(node) == 1 and user.args[0] is node
        for user in node.users
    )


def _keeps_order(node: Any, source: Any) -> bool:
    """Whether a view is a reshape: only dimensions of size one may move."""
    if node.target not in _TURNS:
        return node.target in _RESHAPES
    sizes = source.meta["val"].shape
    order = list(range(len(sizes)))
    if node.target is A.permute.default:
        order = [place % len(sizes) for place in node.args[1]]
    else:
        one, two = (place % len(sizes) for place in node.args[1:])
        order[one], order[two] = two, one
    moved = [place for place in order if sizes[place] != 1]
    return moved == sorted(moved)


def _simplify(graph: Any) -> None:
    """Drop views of views and repeated nodes, on which small networks spend much of their time."""
    known: dict[Any, Any] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        _reshape_after(graph, node)
        source: Any = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        value = node.meta.get("val")
        if source is not None and _keeps_order(node, source) and value.numel() == source.meta["val"].numel():
            while source.target is A.reshape.default:
                source = source.args[0]
            node.target, node.args, node.kwargs = A.reshape.default, (source, list(value.shape)), {}
        if node.target is A.any.dim and value.numel() == source.meta["val"].numel() and _dtype(source) == torch.bool:
            node.target, node.args, node.kwargs = A.reshape.default, (source, list(value.shape)), {}
        same = node.target is A.reshape.default and value.shape == source.meta["val"].shape
        turned = node.target is A.transpose.int and source.target is node.target
        if turned and {*source.args[1:]} == {*node.args[1:]}:
            source, same = source.args[0], True
        times = node.target in (A.mul.Scalar, A.mul.Tensor) and not isinstance(node.args[1], fx.Node)
        same = same or (times and node.args[1] == 1 and value.dtype == source.meta["val"].dtype)
        key = (node.target, str(node.args), str(node.kwargs))
        before = source if same else known.setdefault(key, node)
        if before is not node:
            node.replace_all_uses_with(before)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _dtype(node: Any) -> torch.dtype:
    found: torch.dtype = node.meta["val"].dtype
    return found


def _reshape_after(graph: Any, node: Any) -> None:
    """Move reshapes from the arguments of an elementwise operator to its result, if they have one shape before."""
    value, given = node.meta.get("val"), node.all_input_nodes
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()) or not given:
        return
    shapes = {tuple(one.args[0].meta["val"].shape) if one.target is A.reshape.default else None for one in given}
    if len(shapes) != 1 or None in shapes or any(one.meta["val"].shape != value.shape for one in given):
        return
    (shape,) = shapes
    node.args, node.kwargs = fx.node.map_arg((node.args, node.kwargs), lambda one: one.args[0])
    with graph.inserting_after(node):
        result = graph.call_function(A.reshape.default, (node, list(value.shape)))
    node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
    result.meta["val"], node.meta["val"] = value, value.reshape(shape)


def _by_columns(graph: Any) -> None:
    """Replace the derivative of a log-softmax over few numbers, whose loops over short rows are slow."""
    for node in graph.find_nodes(op="call_function", target=A._log_softmax_backward_data.default):
        slopes, logs, dim, kind = node.args
        value = node.meta["val"]
        whole = logs.target is A._log_softmax.default and not logs.args[2] and kind == value.dtype == torch.float32
        if whole and dim == logs.args[1] == value.dim() - 1 and value.shape[-1] <= _FEW:
            node.target, node.args = _log_softmax_back, (slopes, logs.args[0])


def _log_softmax_back(slopes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The derivative of a log-softmax over the last dimension: g − softmax(x)·Σg, with the records side by side."""
    if torch.get_num_threads() > 1:  # threads take ranges of the records, at whose ends bits differ
        made: torch.Tensor = A._log_softmax_backward_data(
            slopes, values.log_softmax(-1), values.dim() - 1, values.dtype
        )
        return made
    shares = torch.softmax(values.reshape(-1, values.shape[-1]).t(), 0).t().view(values.shape)
    return torch.addcmul(slopes, shares, slopes.sum(-1, keepdim=True), value=-1)


def _products_by_run(graph: Any, runs: int) -> None:
    """Replace a product over all runs by one product for each run, with its bias."""
    for node in list(graph.nodes):
        if node.target is A.bmm.default and node.meta["val"].shape[0] == runs:
            node.target = product
            _by_run(graph, _with_bias(graph, node))
        elif node.target is A.mm.default and node.meta["val"].shape[0] % runs == 0:
            left, right = node.args
            node.target, node.args = _common_product, (left, right, runs)


def _pools_by_kernels(graph: Any) -> None:
    """Replace PyTorch's maxima over windows: on a GPU, their derivative adds up in no fixed order."""
    for back in graph.find_nodes(op="call_function", target=A.max_pool2d_with_indices_backward.default):
        slopes, pictures, kernel, stride, padding, dilation, ceil, which = back.args
        source = which
        while source.target is A.reshape.default:
            source = source.args[0]
        node = source.args[0] if source.target is operator.getitem else None
        plain = [*padding] == [0, 0] and [*dilation] == [1, 1] and not ceil and math.prod(kernel) < 128
        if not plain or node is None or pictures.meta["val"].dim() != 4:
            continue
        stride = stride or kernel
        if node.target is A.max_pool2d_with_indices.default:
            node.target, node.args, node.kwargs = kernels.pool, (node.args[0], tuple(kernel), tuple(stride)), {}
        sizes = list(pictures.meta["val"].shape[2:])
        back.target, back.args = kernels.unpool, (slopes, which, sizes, tuple(kernel), tuple(stride))


def _with_bias(graph: Any, node: Any) -> Any:
    """Replace a product to which one row is added for each run by one that adds this row; the node in its place."""
    users = list(node.users)
    while len(users) == 1 and users[0].target is A.reshape.default:
        users = list(users[0].users)
    if len(users) != 1 or users[0].target is not A.add.Tensor or users[0].kwargs:
        return node
    (total,) = users
    made, value = total.meta["val"], node.meta["val"]
    sizes = [len(value), 1, value.shape[2]] if value.dim() == 3 else [value.shape[1]]
    for bias in total.args:
        shape: Any = bias.meta["val"].shape if isinstance(bias, fx.Node) else ()
        own = value.dim() == 2 or (len(shape) == made.dim() and shape[0] == made.shape[0] == len(value))
        row = shape[-1:] == made.shape[-1:] == value.shape[-1:] and math.prod(shape) == math.prod(sizes)
        if own and row and made.numel() == value.numel() and _dtype(bias) == value.dtype:
            shift = insert(total, A.reshape.default, bias, sizes)
            with graph.inserting_before(total):
                sums = graph.call_function(node.target, (*node.args, shift))
            sums.meta["val"] = value
            total.replace_all_uses_with(insert(total, A.reshape.default, sums, list(made.shape)))
            graph.erase_node(total)
            return sums
    return node


def _by_run(graph: Any, node: Any) -> None:
    """Split the matrices and biases of a product by run: for parameters these are views, which are made once."""
    if _dtype(node) not in (torch.float32, torch.float64):
        return
    left, *others = node.args
    with graph.inserting_before(node):
        node.args = (left, *(graph.call_function(torch.unbind, (one,)) for one in others))
    node.target = product_by_run()


def _steady_products(graph: Any, runs: int, rows: int) -> None:
    """On a GPU, replace products over all records by ones in which a record's place changes no bit."""
    for node in list(graph.nodes):
        if node.target not in (A.mm.default, A.bmm.default):
            continue
        value = node.meta["val"]
        records = rows if value.dim() == 3 else runs * rows
        if (value.dim() == 2 or len(value) == runs) and value.shape[-2] % records == 0:
            node.target = steady_product(records)
            _with_bias(graph, node)


def _common_product(left: torch.Tensor, right: torch.Tensor, runs: int) -> torch.Tensor:
    """left · right, where the rows of ``left`` belong to several runs."""
    return product(left.reshape(runs, -1, left.shape[1]), right.expand(runs, *right.shape)).flatten(0, 1)


def _compiled(graph: fx.GraphModule, trained: int, held: int) -> Callable[..., Any]:
    """A Python function ``bind(*held)`` whose result executes the operators of a graph, one after the other.

    A value is deleted after its last use. Views of the first ``held`` arguments are made once, in ``bind``. The first
    ``trained`` of these change in place: a reshape of one that copies it is repeated at every call.
    """
    names: dict[fx.Node, str] = {}
    world: dict[str, Any] = {}
    once: list[str] = []
    lines: list[str] = []
    arguments: list[str] = []
    last = {one: node for node in graph.graph.nodes for one in node.all_input_nodes}
    kept: dict[fx.Node, bool] = {}  # what is made once, and whether it is a view of a trained tensor

    def name(value: Any) -> str:
        found = f"c{len(world)}"
        world[found] = value
        return found

    def text(value: Any) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, tuple | list):
            inner = ", ".join(map(text, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
        return repr(value) if isinstance(value, bool | int | str) or value is None else name(value)

    for place, node in enumerate(graph.graph.nodes):
        names[node] = f"v{place}"
        if node.op == "placeholder":
            if len(arguments) < held:
                kept[node] = len(arguments) < trained
            arguments.append(names[node])
        elif node.op == "get_attr":
            names[node] = name(getattr(graph, node.target))
        elif node.op == "output":
            lines.append(f"return {text(tuple(node.args[0]))}")
        else:
            function = _binding(node.target) if isinstance(node.target, OpOverload) else node.target
            given = [*map(text, node.args), *(f"{key}={text(value)}" for key, value in node.kwargs.items())]
            source = node.args[0] if node.args else None
            if node.target in _VIEWS and source in kept and not (kept[source] and _may_copy(node, source)):
                kept[node] = kept[source]
            (once if node in kept else lines).append(f"{names[node]} = {name(function)}({', '.join(given)})")
        done = [names[one] for one in node.all_input_nodes if last[one] is node and names[one][0] == "v"]
        done = [one for one in done if one not in {names[view] for view in kept}]
        if done and node.op != "output":
            lines.append(f"del {', '.join(done)}")
    source = "\n    ".join([f"def bind({', '.join(arguments[:held])}):", *once, "def run(*rows):"])
    source += "\n        " + "\n        ".join([f"{', '.join([*arguments[held:], ''])} = rows", "del rows", *lines])
    exec(compile(source + "\n    return run", "<graph>", "exec"), world)
    bind: Callable[..., Any] = world["bind"]
    return bind


_QUICK = {
    *("reshape", "relu", "clamp", "eq", "ne", "lt", "le", "gt", "ge", "masked_fill", "add", "sub", "mul", "div"),
    *("transpose", "permute", "sum", "where", "select", "unsqueeze", "neg", "tanh", "sigmoid", "exp", "cat"),
}


def _binding(target: OpOverload) -> Callable[..., Any]:
    """PyTorch's own function for an operator, where it takes the same arguments: calling it costs half as much.

    It is not looked up in ``torch``, where Python code may have replaced it.
    """
    name = target.__name__.partition(".")[0]
    binding: Callable[..., Any] = getattr(torch._C._VariableFunctions, name) if name in _QUICK else target._op
    return binding


def _may_copy(node: Any, source: Any) -> bool:
    """Whether a node copies its source: only a reshape may."""
    if node.target is not A.reshape.default:
        return False
    view = node.target(source.meta["val"], *node.args[1:])
    return not view._is_view()
