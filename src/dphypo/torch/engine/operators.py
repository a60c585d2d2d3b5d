"""Which operators a captured graph may contain.

The engine trains a graph of one record's gradient, batched by ``vmap`` over records and over runs. A record's
contribution is a function of that record alone if every operator is local under ``vmap``, raises no exception because
of a value, reads only memory that was written, and draws nothing at random. ``rewrites.py`` changes a one-record graph
so that the last three hold. :func:`check_graph` refuses every operator that is not on a closed list. Each operator of
the list has a test in ``tests/engine/test_engine_operators.py``: it batches the operator with records that are huge,
infinite, NaN or out of range, and looks for a change in another record's bits.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from dphypo.errors import UnsupportedModelError

A, CPU = torch.ops.aten, torch.device("cpu")

_NAMES = """
abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac isnan
isinf lgamma log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt tan tanh
trunc nan_to_num celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid_forward logit mish relu silu
softplus softshrink hardshrink threshold elu_backward gelu_backward glu_backward hardsigmoid_backward hardswish_backward
hardtanh_backward leaky_relu_backward log_sigmoid_backward logit_backward sigmoid_backward silu_backward
softplus_backward softshrink_backward hardshrink_backward tanh_backward threshold_backward

add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar div.Tensor_mode
div.Scalar_mode floor_divide remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar
pow.Tensor_Scalar pow.Scalar pow.Tensor_Tensor maximum minimum fmax fmin atan2 hypot copysign.Tensor xlogy.Tensor
logaddexp logaddexp2 lerp.Scalar lerp.Tensor addcmul addcdiv clamp clamp.Tensor clamp_min clamp_max clamp_min.Tensor
clamp_max.Tensor bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor
bitwise_xor.Scalar logical_and logical_or logical_xor eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar
le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar where.self masked_fill.Scalar

sum sum.dim_IntList mean mean.dim prod prod.dim_int amax amin max max.dim min min.dim argmax argmin any any.dim any.dims
all all.dim all.dims var.correction var_mean.correction std.correction linalg_vector_norm norm.ScalarOpt_dim norm.Scalar
logsumexp cumsum cumprod cummax cummin logcumsumexp nansum sort sort.stable topk _softmax _softmax_backward_data
_log_softmax _log_softmax_backward_data _safe_softmax

reshape view _unsafe_view expand permute transpose.int t squeeze squeeze.dim squeeze.dims unsqueeze slice.Tensor
slice_backward slice_scatter select.int select_backward select_scatter diagonal diagonal_backward diagonal_scatter
diag_embed cat stack split.Tensor split_with_sizes unsafe_split.Tensor unbind.int repeat flip roll tril triu unfold
constant_pad_nd clone detach alias _to_copy copy lift_fresh_copy pixel_shuffle pixel_unshuffle reflection_pad1d
reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward replication_pad1d replication_pad1d_backward
replication_pad2d replication_pad2d_backward im2col col2im

zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange arange.start arange.start_step eye
eye.m scalar_tensor linspace

mm bmm addmm baddbmm mv addmv convolution convolution_backward native_layer_norm native_layer_norm_backward
native_group_norm native_group_norm_backward max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d
avg_pool2d_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
adaptive_max_pool2d adaptive_max_pool2d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
upsample_nearest2d_backward upsample_linear1d upsample_linear1d_backward upsample_bilinear2d
upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward grid_sampler_2d grid_sampler_2d_backward

nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward embedding embedding_dense_backward gather
scatter.src scatter.value scatter_add index.Tensor _unsafe_index.Tensor index_put _unsafe_index_put index_select
index_add index_copy bucketize.Tensor searchsorted.Tensor
"""
ALLOWED: frozenset[OpOverload] = frozenset(
    getattr(getattr(A, name.partition(".")[0]), name.partition(".")[2] or "default") for name in _NAMES.split()
)
"""The closed list. Add an operator together with its test."""

BY_ADDRESS = "reads memory by address, where other records may lie: use slices, reshape or unfold"
_REMEDIES = {
    "item _local_scalar_dense _assert_scalar _assert_async is_nonzero equal allclose": (
        "decides by the values of a record, which a captured graph cannot: use torch.where, or a product with a mask"
    ),
    "nonzero unique unique_consecutive _unique2 masked_select nonzero_static bincount": (
        "gives a result whose size depends on a record's values: use torch.where or a mask of fixed size"
    ),
    "as_strided as_strided_scatter as_strided_copy set_ resize_": BY_ADDRESS,
    "_is_any_true _is_all_true": "looks at all records of a batch at once: use x.any() or x.all()",
    "native_batch_norm cudnn_batch_norm _native_batch_norm_legit _batch_norm_with_update": (
        "normalises over the records of a batch: use nn.GroupNorm, or call eval() on the layer"
    ),
    "linalg_cholesky_ex cholesky linalg_lstsq linalg_svd _linalg_svd _linalg_eigh linalg_eig linalg_inv_ex det "
    "_linalg_solve_ex linalg_lu_factor_ex _linalg_check_errors _linalg_det": (
        "can fail for the values of one record: compute it outside the model, or use an iteration of products"
    ),
}
_MUTATES = (
    "changes a tensor in place that outlives the record: a parameter, a buffer, an input or a constant. "
    "Compute a new tensor instead"
)
_DEFAULT = "is not on the list of operators that are known to treat records separately: express it by other operators"


def where(node: fx.Node) -> str:
    """The user's file and line that a node comes from, followed by ": "; empty if they are unknown."""
    trace = node.meta.get("stack_trace") or ""
    found = [line for line in re.findall(r'File "([^"]+)", line (\d+)', trace) if "/torch/" not in line[0]]
    return f"{found[-1][0]}:{found[-1][1]}: " if found else ""


def check_graph(gm: fx.GraphModule, ours: frozenset[Any] = frozenset()) -> None:
    """Refuse a graph that contains anything but operators of the list.

    Args:
        gm: a graph of one record, after :func:`make_total` and :func:`key_randomness`, or a flat graph.
        ours: operators of the engine, which are allowed too.
    """
    refuse_parts(gm)
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.op != "call_function" or not (
            node.target is operator.getitem or node.target in ALLOWED or node.target in ours
        ):
            name = name_of(node.target)
            remedy = next((text for names, text in _REMEDIES.items() if name.split(".")[0] in names.split()), _DEFAULT)
            mutates = isinstance(node.target, OpOverload) and node.target._schema.is_mutable
            raise refusal(node, _MUTATES if mutates else remedy)


def refuse_parts(gm: fx.GraphModule) -> None:
    """Refuse a traced graph that holds objects other than tensors."""
    for node in gm.graph.find_nodes(op="get_attr"):
        found = getattr(gm, str(node.target))
        if isinstance(found, torch.Generator):
            why = "has a state of its own: draw without it, as the seed of a run says"
            raise refusal(node, why, "torch.Generator")
        if not isinstance(found, torch.Tensor):
            raise refusal(node, "holds a part of the model that no gradient passes: call it outside", "subgraph")


def constants(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors that a graph itself holds: whoever publishes the model declares them public."""
    return {str(node.target): getattr(gm, str(node.target)) for node in gm.graph.find_nodes(op="get_attr")}


def shaped(target: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The result of an operator for tensors without values."""
    return target(*args, **{name: "meta" if name == "device" else one for name, one in kwargs.items()})


def called(graph: fx.Graph, target: Any, args: Any, kwargs: Any) -> fx.Node:
    """A new node at the graph's insertion point, with the shape and type of its value."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = shaped(target, *fx.node.map_arg((args, kwargs), lambda one: one.meta["val"]))
    return node


def insert(before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A new node before another."""
    with before.graph.inserting_before(before):
        return called(before.graph, target, args, kwargs)


def held(gm: fx.GraphModule, tensor: torch.Tensor) -> str:
    """Store a tensor in a graph; return its name there."""
    name = next(name for name in (f"_constant{number}" for number in itertools.count()) if not hasattr(gm, name))
    gm.register_buffer(name, tensor)
    return name


def check_constants(tensors: Mapping[str, torch.Tensor], records: int) -> None:
    """Refuse a constant that may hold the training data: one with as many rows or columns as records are declared.

    Args:
        tensors: buffers of the model and constants of its graph, by name. Frozen parameters are declared public.
        records: the declared number. How many there are is private.
    """
    for name, tensor in tensors.items():
        shape, places = tuple(tensor.shape), torch.arange(tensor.numel(), device=tensor.device)
        if records > 1 and records in (*shape[:1], *shape[-1:]) and not torch.equal(tensor.flatten(), places):
            raise UnsupportedModelError(
                f"the model keeps the tensor {name} of shape {shape}, which is as long as the {records} declared "
                "records: constants of a model are published with it. If it is public, make it a frozen parameter, "
                "nn.Parameter(tensor, requires_grad=False); if it holds records, remove it"
            )


def check_kernels(gm: fx.GraphModule) -> None:
    """Refuse to execute a graph if Python code would run for its operators: replaced kernels and active modes."""
    modes: list[Any] = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    modes = [*modes, *torch.overrides._get_current_function_mode_stack()]  # type: ignore[no-untyped-call]
    if modes:
        raise UnsupportedModelError(
            f"the mode {type(modes[0]).__name__} is active, so Python code would see every operator on the records: "
            "leave its with block before you train or score"
        )
    for target in {node.target for node in gm.graph.nodes if isinstance(node.target, OpOverload)}:
        if target.namespace == "aten":
            foreign = _foreign(torch._C._dispatch_dump(target._name))
            if foreign:
                raise UnsupportedModelError(
                    f"the kernel of {name_of(target)} was replaced at {foreign}, so Python code would run in training: "
                    "remove the torch.library.Library that replaces it"
                )


def _foreign(dump: str) -> str | None:
    """The place where a kernel was registered that is not PyTorch's own; None if there is none."""
    root = re.search(r"^debug: registered at (.*?)(?:/build)?/aten/", dump, re.MULTILINE)
    own = (torch.__path__[0], root.group(1) if root else torch.__path__[0])
    places = re.findall(r"^\w+(?:\[alias\])?: registered at (.*?:\d+) ::", dump, re.MULTILINE)
    return next((place for place in places if not place.startswith(own)), None)


def name_of(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")


def refusal(node: fx.Node, why: str, name: str | None = None) -> UnsupportedModelError:
    """The error for a node that a graph may not contain."""
    return UnsupportedModelError(f"{where(node)}the operator {name or name_of(node.target)} {why}")
