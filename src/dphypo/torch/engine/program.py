"""A model and a loss, ready to be trained: the graph of one record's gradient, and passes over pieces of records.

A record's graph over all records and runs of a piece is one flat list of operators at a fixed shape. ``vmap`` over the
records and over the runs is traced once, so that nothing of it is left at run time. On a CPU every run's product of
matrices is a call of its own, with the same shapes as if the run were alone.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._ops import OpOverload
from torch.func import vmap

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import batch_rows, capture, factors, kernels, layers, operators, trainable
from dphypo.torch.engine.batch_rows import Batch, Loss
from dphypo.torch.engine.capture import Augment, RecordGraph, retraced, without_values
from dphypo.torch.engine.clipped_sum import Layout, RecordGradients, Shape
from dphypo.torch.engine.device import products
from dphypo.torch.engine.factors import Part
from dphypo.torch.engine.layers import product, product_by_run, steady_product
from dphypo.training.poisson_draws import MULTIPLE

A = torch.ops.aten


class FlatGraph(NamedTuple):
    """A graph, and what calls its operators one after the other: ``bind(*trained, *given)(*rows)``.

    What is trained has a first dimension of runs, and may be changed in place between calls.
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
    """The graph of so many runs and rows of each, from tensors that stand for its arguments.

    ``trained`` have a first dimension of runs. ``record`` are the inputs, the target and random numbers of one row.
    What is ``given`` is common to all runs and is held once. On a CPU each run's products are its own: there all but
    tables, in which records are looked up, is expanded.
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
    with warnings.catch_warnings(action="ignore"):  # of operators that are looped over
        made = retraced(graph, over_both, some)
    capture.put_on(made, device)
    capture.plain(made)
    operators.check_graph(made, frozenset(layers.EAGER))
    _simplify(made.graph)
    if by_run:
        _by_columns(made.graph)
        _products_by_run(made.graph, runs)
        _simplify(made.graph)
    else:
        if kernels.AVAILABLE:
            _pools_by_kernels(made.graph)
        _steady_products(made.graph, runs, rows)
        _simplify(made.graph)
    for node in made.graph.nodes:
        node.target = layers.EAGER.get(node.target, node.target)
    made.graph.eliminate_dead_code()
    made.graph.lint()
    compiled = _compiled(made, len(trained), len(trained) + len(given))

    def bind(*held: torch.Tensor) -> Callable[..., tuple[torch.Tensor, ...]]:
        own, shared = held[: len(trained)], held[len(trained) :]
        each = (one.expand((*lead, *one.shape)) for one, lead in zip(shared, leads, strict=True))
        return compiled(*own, *each)  # type: ignore[no-any-return]

    return FlatGraph(made, bind)


def _is_table(node: fx.Node) -> bool:
    """Whether nothing but look-ups uses a tensor: they copy numbers as they are, however many there are."""
    return all(
        user.target in _LOOKUPS and user.all_input_nodes.count(node) == 1 and user.args[0] is node
        for user in node.users
    )


_LOOKUPS = {A.embedding.default, A.index_select.default, A.index.Tensor}


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
    """Let an operator on each number work on what its arguments are reshaped from, where all have one shape there."""
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


_FEW = 64


def _by_columns(graph: Any) -> None:
    """Replace the derivative of a log-softmax over a few numbers, whose loops over short rows are slow."""
    for node in graph.find_nodes(op="call_function", target=A._log_softmax_backward_data.default):
        slopes, logs, dim, kind = node.args
        value = node.meta["val"]
        whole = logs.target is A._log_softmax.default and not logs.args[2] and kind == value.dtype == torch.float32
        if whole and dim == logs.args[1] == value.dim() - 1 and value.shape[-1] <= _FEW:
            node.target, node.args = _log_softmax_back, (slopes, logs.args[0])


def _log_softmax_back(slopes: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The derivative of a log-softmax over the last dimension: g − softmax(x)·Σg, with the records side by side."""
    if torch.get_num_threads() > 1:  # threads share the records out in ranges, at whose ends bits differ
        made: torch.Tensor = A._log_softmax_backward_data(
            slopes, values.log_softmax(-1), values.dim() - 1, values.dtype
        )
        return made
    shares = torch.softmax(values.reshape(-1, values.shape[-1]).t(), 0).t().view(values.shape)
    return torch.addcmul(slopes, shares, slopes.sum(-1, keepdim=True), value=-1)


def _products_by_run(graph: Any, runs: int) -> None:
    """Replace products of all runs, whose rows are records, by one product for each run, with its bias."""
    for node in list(graph.nodes):
        if node.target is A.bmm.default and node.meta["val"].shape[0] == runs:
            node.target = product
            _by_run(graph, _with_bias(graph, node))
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


def _with_bias(graph: Any, node: Any) -> Any:
    """A product, or one in its place that adds what is added to it, if that is one row for each run."""
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
            with graph.inserting_before(total):
                shift = graph.call_function(A.reshape.default, (bias, sizes))
                sums = graph.call_function(node.target, (*node.args, shift))
                result = graph.call_function(A.reshape.default, (sums, list(made.shape)))
            shift.meta["val"] = bias.meta["val"].reshape(sizes)
            sums.meta["val"], result.meta["val"] = value, made
            total.replace_all_uses_with(result)
            graph.erase_node(total)
            return sums
    return node


def _by_run(graph: Any, node: Any) -> None:
    """Give a product its matrices and biases run by run: of parameters they are views, which are made once."""
    if _dtype(node) not in (torch.float32, torch.float64):
        return
    left, *others = node.args
    with graph.inserting_before(node):
        node.args = (left, *(graph.call_function(torch.unbind, (one,)) for one in others))
    node.target = product_by_run()


def _steady_products(graph: Any, runs: int, rows: int) -> None:
    """On a GPU: let products of all records be such that a record's place changes no bit."""
    for node in list(graph.nodes):
        if node.target not in (A.mm.default, A.bmm.default):
            continue
        value = node.meta["val"]
        records = rows if value.dim() == 3 else runs * rows
        if (value.dim() == 2 or len(value) == runs) and value.shape[-2] % records == 0:
            node.target = steady_product(records)
            _with_bias(graph, node)


def _common_product(left: torch.Tensor, right: torch.Tensor, runs: int) -> torch.Tensor:
    """left · right, where the rows are those of several runs."""
    return product(left.reshape(runs, -1, left.shape[1]), right.expand(runs, *right.shape)).flatten(0, 1)


_VIEWS = {*_TURNS, *_RESHAPES, A.t.default, A.select.int, torch.unbind}


def _compiled(graph: fx.GraphModule, trained: int, held: int) -> Callable[..., Any]:
    """What calls the operators of a graph one after the other, and forgets what it needs no more.

    Views of the first ``held`` arguments are made once. Of those the first ``trained`` change in place: a reshape of
    one that is a copy is made at every call.
    """
    names: dict[fx.Node, str] = {}
    world: dict[str, Any] = {}
    once: list[str] = []
    lines: list[str] = []
    arguments: list[str] = []
    last = {one: node for node in graph.graph.nodes for one in node.all_input_nodes}
    kept: dict[fx.Node, bool] = {}  # what is made once, and whether it is of what changes

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
    """PyTorch's own function of an operator, where it takes the same arguments: its call costs half as much.

    It is not looked up in ``torch``, where Python may have replaced it.
    """
    name = target.__name__.partition(".")[0]
    binding: Callable[..., Any] = getattr(torch._C._VariableFunctions, name) if name in _QUICK else target._op
    return binding


def _may_copy(node: Any, source: Any) -> bool:
    """Whether a reshape copies: all else that makes views does not."""
    if node.target is not A.reshape.default:
        return False
    view = node.target(source.meta["val"], *node.args[1:])
    return not view._is_view()


_DRAWS, _MANY = 3, 2**20  # weights at which places are compared; of how many numbers one is enough


def precision() -> tuple[Any, ...]:
    """What decides, besides a shape, how a device computes: the precision of products, and how many threads."""
    return *(one.fp32_precision for one in products()), torch.get_num_threads()


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What is the same for all runs of one architecture.

    Args:
        model: what holds the frozen parameters and the buffers, which every run of a group uses as they are.
        loss, example, autocast, views, augment: as in :meth:`of`.
        layout: where the trainable parameters lie in a row of numbers.
        record: the graph of one record; its outputs are what the ``parts`` of the gradient are made of.
        terms: how many terms the longest sum of one record's gradient has.
        elements: how many numbers the parts of one record's gradient hold.
        alone: whether records go through the graph one by one.
        found: whether they must at a shape (:meth:`on`), and whether its runs are as alone (:meth:`alike`).
        flat: the graphs of shapes that were asked for.
        scores: graphs of this architecture in evaluation mode, which whoever scores it keeps here.
    """

    model: nn.Module
    loss: Loss
    layout: Layout
    record: RecordGraph
    parts: tuple[Part, ...]
    terms: int
    elements: int
    example: Batch
    autocast: torch.dtype | None = None
    views: int = 1
    augment: Augment | None = None
    alone: bool = False
    found: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    flat: dict[tuple[int, int], FlatGraph] = field(default_factory=dict)
    scores: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: Loss,
        example: Batch,
        *,
        autocast: torch.dtype | None = None,
        views: int = 1,
        augment: Augment | None = None,
    ) -> Program:
        """Capture a model; :class:`UnsupportedModelError` says what cannot be captured, and where.

        Args:
            model: an untrained model on its device. It is copied.
            loss: a function of (outputs, targets) that gives one value per record.
            example: inputs and targets of one record, [1, ...] each, on the device. Their values are not used.
            autocast: the type of forward and backward passes, torch.bfloat16; None for that of the model.
            views: how many views of a record are averaged before clipping.
            augment: ``augment(inputs, uniforms)`` gives a view of each row; ``uniforms(n)`` gives [rows, n] random
                numbers of [0, 1). It is captured with the model, for one row.
        """
        trainable.refuse_layers(model)
        code = trainable.code_of(model)
        record, parts = trainable.captured(code, loss, example, autocast=autocast, augment=augment)
        changed = autocast is not None or augment is not None
        trainable.refuse_other_gradients(code, loss, example, record, parts, changed=changed)
        layout = Layout.of(code)
        zeros = [
            torch.zeros((1, 1, *one.shape), dtype=one.dtype, device=example[0].device) for one in outputs(record.graph)
        ]
        tried = factors.Gradients(layout, parts)(zeros, Shape(1, 1))
        numbers = sum(factor.numel() for one in tried for factor in one.factors) + sum(one.terms**2 for one in tried)
        terms = max(one.terms for one in tried)
        return cls(code, loss, layout, record, parts, terms, numbers, example, autocast, views, augment)

    @property
    def random(self) -> bool:
        """Whether a pass uses random numbers."""
        return bool(self.record.uniforms)

    def sum_terms(self, piece: int, count: int) -> int:
        """How many terms the longest sum over a piece of so many records has; pieces are added as whole numbers."""
        return piece * self.terms * self.views + len(self.parts)

    def on(self, rows: torch.Tensor, shape: Shape) -> Program:
        """The program in the faster way in which, at this shape, a record's place changes no bit.

        All records at once, or one at a time. It is found out once for each shape, precision and number of threads,
        which decide how a device computes, at random weights: initial ones may be zeros, which round nothing. Pieces
        that are no multiple of 32 records go one at a time: a record's address in them depends on its place. On a CPU
        it is found out for one run, with which :meth:`alike` compares the runs of a group.
        """
        if not rows.is_cuda:
            rows, shape = rows[:1], dataclasses.replace(shape, runs=1)
        key = (shape, *precision())
        for alone in (False, True):
            way = dataclasses.replace(self, alone=alone)
            if self.found.get(key) is alone:
                return way
            if key in self.found or (shape.records % MULTIPLE and not alone):
                continue
            draws = 1 if shape.rows * self.elements >= _MANY else _DRAWS
            tried = (trainable.random_weights(self.layout, rows, seed) for seed in range(draws))
            if all(trainable.same_places(way, some, shape) for some in tried):
                self.found[key] = alone
                return way
        raise UnsupportedModelError(
            "a record's gradient changes in its last bits with its place, even if each record is differentiated alone: "
            "this device does not compute the same twice, and one bit can flip a decision of the model, which no noise "
            "covers. Train on another device"
        )

    def alike(self, rows: torch.Tensor, shape: Shape) -> bool:
        """Whether on a CPU every run of a group contributes the same bits as alone; it is found out once, too."""
        key = ("alike", self.alone, shape, *precision())
        if key not in self.found:
            tried = trainable.random_weights(self.layout, rows, 0)
            self.found[key] = trainable.same_alone(self, tried, shape)
        return self.found[key]

    def bound(self, rows: torch.Tensor, shape: Shape) -> Pass:
        """Passes of several runs whose parameters are ``rows``, which may change between passes."""
        return Pass(self, rows, shape)

    def __reduce__(self) -> Any:
        """It is captured again in another process, which may compute otherwise."""
        options: dict[str, Any] = {"autocast": self.autocast, "views": self.views, "augment": self.augment}
        return partial(Program.of, **options), (self.model, self.loss, self.example)


class Pass:
    """Passes of one shape: from records to the parts of their gradients.

    ``held`` replaces the tensors that runs share, which are those of the program's model.
    """

    def __init__(
        self, program: Program, rows: torch.Tensor, shape: Shape, held: Sequence[torch.Tensor] | None = None
    ) -> None:
        self.program, self.shape = program, shape
        layout, record = program.layout, program.record
        trained = [layout.values(rows, place) for place in range(len(layout.names))]
        self.held = trainable.given_by(program.model, record) if held is None else held
        key = (shape.runs, 1 if program.alone else shape.records * shape.views)
        if key not in program.flat:
            one = [part[0] for part in program.example]
            one += [torch.empty(size, device=rows.device) for size in record.uniforms]
            program.flat[key] = flatten(record.graph, trained, self.held, one, *key)
        self._gradients = factors.Gradients(layout, program.parts)
        self._sizes = [(shape.runs, shape.rows // shape.runs, *part.shape[1:]) for part in program.example]
        self.graph, bind = program.flat[key]
        self._run = bind(*trained, *self.held)

    def parts(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None = None,
    ) -> tuple[list[RecordGradients], torch.Tensor]:
        """The per-record gradients of a piece, and which of its records are outside the domain, [runs, records].

        Args:
            inputs, targets: [runs × records, ...], or [runs × records × views, ...] if the views of a record differ.
            keys: of the random numbers, [runs, records × views].
            weights: of the views of a record, [runs, records, views]; None for their mean. A view of weight zero
                repeats another one of its record.
        """
        shape, program = self.shape, self.program
        rows = []
        for part, size in zip((inputs, targets), self._sizes, strict=True):
            each = part.repeat_interleave(shape.rows // len(part), 0) if len(part) < shape.rows else part
            rows.append(each.reshape(size))
        rows += [
            batch_rows.uniforms(keys, call, math.prod(size)).reshape(*keys.shape, *size)
            for call, size in enumerate(program.record.uniforms, 1)
        ]
        *outputs, outside = self._alone(rows) if program.alone else self._run(*rows)
        if weights is not None or shape.views > 1:
            outside = outside.reshape(shape.runs, shape.records, shape.views)
            outside = (outside if weights is None else outside & (weights != 0)).any(2)
        return self._gradients(outputs, shape, weights), outside

    def _alone(self, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """One row after the other, each at an address of its own."""
        places = range(rows[0].shape[1])
        each = [self._run(*(part[:, at : at + 1].clone() for part in rows)) for at in places]
        return [torch.cat(list(some), 1) for some in zip(*each, strict=True)]


def outputs(graph: fx.GraphModule) -> list[torch.Tensor]:
    """What a record's graph gives, without values, but for the last output."""
    (end,) = (node for node in graph.graph.nodes if node.op == "output")
    return [one.meta["val"] for one in end.args[0]][:-1]
