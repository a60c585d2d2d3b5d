"""A record's graph over all records and runs of a piece: one flat list of operators at a fixed shape.

``vmap`` over the records and over the runs is traced once, so that nothing of it is left at run time. On a CPU every
run's product of matrices is a call of its own, with the same shapes as if the run were alone.
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
from torch.fx.experimental.proxy_tensor import make_fx

from dphypo.dpsgd import operators, record_graph, rewrites
from dphypo.dpsgd.layers import convolution, kernels
from dphypo.dpsgd.layers.products import product

A = torch.ops.aten


class FlatGraph(NamedTuple):
    """A graph, and the function that calls its operators one after the other."""

    graph: fx.GraphModule
    run: Callable[..., tuple[torch.Tensor, ...]]


def flatten(
    graph: fx.GraphModule,
    trained: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    record: Sequence[torch.Tensor],
    runs: int,
    rows: int,
) -> FlatGraph:
    """The graph of so many runs and rows of each, from tensors that stand for its arguments.

    ``trained`` have a first dimension of runs. ``record`` are the inputs, the target and random numbers of one row.
    What is ``given`` is common to all runs; on a CPU it is expanded, so that each run's products are its own.
    """
    own = 0 if record[0].device.type == "cpu" else None
    common = (None,) * (len(trained) + len(given))
    over_rows = vmap(fx.Interpreter(graph).run, in_dims=(*common, *[0] * len(record)), randomness="error")
    in_dims = (*[0] * len(trained), *[own] * len(given), *[0] * len(record))
    over_runs = vmap(over_rows, in_dims=in_dims, randomness="error")
    with record_graph.tracing() as mode, warnings.catch_warnings(action="ignore"):  # of operators that are looped over
        some: list[torch.Tensor] = [mode.from_tensor(one.detach(), static_shapes=True) for one in trained]
        some += [_fake(mode, one, () if own is None else (runs,)) for one in given]
        some += [_fake(mode, one, (runs, rows)) for one in record]
        made = make_fx(over_runs)(*some)
    for node in made.graph.nodes:
        if node.target in (A.view.default, A._unsafe_view.default):
            node.target = A.reshape.default
    rewrites.write_memory(made)
    record_graph.plain(made)
    operators.check_graph(made, frozenset(convolution.EAGER))
    _simplify(made.graph)
    if own == 0:
        _products_by_run(made.graph, runs)
    elif kernels.AVAILABLE:
        _pools_by_kernels(made.graph)
    for node in made.graph.nodes:
        node.target = convolution.EAGER.get(node.target, node.target)
    made.graph.eliminate_dead_code()
    made.graph.lint()
    return FlatGraph(made, _compiled(made))


def _fake(mode: Any, one: torch.Tensor, lead: tuple[int, ...]) -> Any:
    return mode.from_tensor(torch.empty((*lead, *one.shape), dtype=one.dtype, device=one.device), static_shapes=True)


_TURNS = {A.permute.default, A.transpose.int}
_RESHAPES = {A.reshape.default, A.unsqueeze.default, A.squeeze.dim, A.squeeze.dims, A.expand.default}


def _keeps_order(node: Any, source: Any) -> bool:
    """Whether a view is a reshape: dimensions of size one may move."""
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
    """Drop views of views and nodes that were there before: small networks spend their time on them."""
    known: dict[Any, Any] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        source: Any = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        value = node.meta.get("val")
        if source is not None and _keeps_order(node, source) and value.numel() == source.meta["val"].numel():
            while source.target is A.reshape.default:
                source = source.args[0]
            node.target, node.args, node.kwargs = A.reshape.default, (source, list(value.shape)), {}
        same = node.target is A.reshape.default and value.shape == source.meta["val"].shape
        turned = node.target is A.transpose.int and source.target is node.target
        if turned and {*source.args[1:]} == {*node.args[1:]}:
            source, same = source.args[0], True
        same = same or (node.target is A.mul.Scalar and node.args[1] == 1 and value.dtype == source.meta["val"].dtype)
        key = (node.target, str(node.args), str(node.kwargs))
        before = source if same else known.setdefault(key, node)
        if before is not node:
            node.replace_all_uses_with(before)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _products_by_run(graph: Any, runs: int) -> None:
    """Replace products of all runs, whose rows are records, by one product for each run, with its bias."""
    for node in list(graph.nodes):
        if node.target is A.bmm.default and node.meta["val"].shape[0] == runs:
            node.target = product
            _add_bias(graph, node)
        elif node.target is A.mm.default and node.meta["val"].shape[0] % runs == 0:
            left, right = node.args
            node.target, node.args = _common_product, (left, right, runs)


def _pools_by_kernels(graph: Any) -> None:
    """Replace PyTorch's largest numbers of windows, whose derivative has no fixed order of sums on a GPU."""
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


def _add_bias(graph: Any, node: Any) -> None:
    """Let a product add what is added to it, if that is one row for each run."""
    users = list(node.users)
    while len(users) == 1 and users[0].target is A.reshape.default:
        users = list(users[0].users)
    if len(users) != 1 or users[0].target is not A.add.Tensor or users[0].kwargs:
        return
    (total,) = users
    made, value = total.meta["val"], node.meta["val"]
    for bias in total.args:
        shape: Any = bias.meta["val"].shape if isinstance(bias, fx.Node) else ()
        row = len(shape) == made.dim() and shape[0] == made.shape[0] == len(value) and shape[-1] == value.shape[2]
        if row and made.shape[-1] == value.shape[2] and made.numel() == value.numel() and set(shape[1:-1]) <= {1}:
            with graph.inserting_before(total):
                shift = graph.call_function(A.reshape.default, (bias, [len(value), 1, value.shape[2]]))
                sums = graph.call_function(product, (*node.args, shift))
                result = graph.call_function(A.reshape.default, (sums, list(made.shape)))
            sums.meta["val"], result.meta["val"] = value, made
            total.replace_all_uses_with(result)
            graph.erase_node(total)
            return


def _common_product(left: torch.Tensor, right: torch.Tensor, runs: int) -> torch.Tensor:
    """left · right, where the rows are those of several runs."""
    return product(left.reshape(runs, -1, left.shape[1]), right.expand(runs, *right.shape)).flatten(0, 1)


def _compiled(graph: fx.GraphModule) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A function that calls the operators of a graph one after the other, and forgets what it needs no more."""
    names: dict[fx.Node, str] = {}
    world: dict[str, Any] = {}
    lines, arguments = [], []
    last = {one: node for node in graph.graph.nodes for one in node.all_input_nodes}

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
            arguments.append(names[node])
        elif node.op == "get_attr":
            names[node] = name(getattr(graph, node.target))
        elif node.op == "output":
            lines.append(f"return {text(tuple(node.args[0]))}")
        else:
            function = node.target._op if isinstance(node.target, OpOverload) else node.target
            given = [*map(text, node.args), *(f"{key}={text(value)}" for key, value in node.kwargs.items())]
            lines.append(f"{names[node]} = {name(function)}({', '.join(given)})")
        done = [names[one] for one in node.all_input_nodes if last[one] is node and one.op != "get_attr"]
        if done and node.op != "output":
            lines.append(f"del {', '.join(done)}")
    source = f"def run({', '.join(arguments)}):\n    " + "\n    ".join(lines)
    exec(compile(source, "<graph>", "exec"), world)
    run: Callable[..., tuple[torch.Tensor, ...]] = world["run"]
    return run
