"""Every operator that a captured graph may hold treats records and runs separately, whatever the others' values."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine.capture import retraced, trace, without_values
from dphypo.torch.engine.operators import ALLOWED, check_constants, check_graph, check_kernels, constants
from dphypo.torch.engine.rewrites import Capture, key_randomness, make_total

A = torch.ops.aten
RUNS, RECORDS = 2, 4
MOST_ROLES = 24  # of the tensors of an operator, that are tried


@dataclass(frozen=True)
class Values:
    """A tensor: floats ("f"), positive ones ("p"), indices below ``limit`` ("i"), integers ("z") or bools ("b")."""

    kind: str
    shape: tuple[int, ...]
    limit: int = 0

    def draw(self, seed: int, lead: tuple[int, ...]) -> torch.Tensor:
        source, shape = torch.Generator().manual_seed(seed), (*lead, *self.shape)
        if self.kind == "f":
            return torch.randn(shape, generator=source)
        if self.kind == "p":
            return torch.rand(shape, generator=source) * 0.8 + 0.1
        if self.kind == "b":
            return torch.randint(2, shape, generator=source).bool()
        if self.kind == "z":
            return torch.randint(1, 7, shape, generator=source)
        return torch.randint(self.limit, shape, generator=source)

    def others(self, value: torch.Tensor) -> Iterator[torch.Tensor]:
        """What other records may hold instead."""
        if self.kind in "fp":
            yield value * 1e30
            yield -value
            yield torch.full_like(value, torch.nan)
            yield torch.full_like(value, torch.inf)
        elif self.kind == "b":
            yield ~value
            yield torch.ones_like(value)
            yield torch.zeros_like(value)
            yield ~value
        else:
            yield torch.zeros_like(value)
            yield value - 2 * self.limit - 9
            yield torch.full_like(value, 2**40)
            yield torch.full_like(value, torch.iinfo(torch.int64).min)


def f(*shape: int) -> Values:
    return Values("f", shape)


def p(*shape: int) -> Values:
    return Values("p", shape)


def b(*shape: int) -> Values:
    return Values("b", shape)


def z(*shape: int) -> Values:
    return Values("z", shape)


def i(limit: int, *shape: int) -> Values:
    return Values("i", shape, limit)


def many(names: str, *arguments: Any) -> dict[str, list[tuple[Any, ...]]]:
    return {name: [arguments] for name in names.split()}


X, Y = f(3, 4), f(3, 4)
PICTURE = f(1, 4, 6, 6)
CASES: dict[str, list[tuple[Any, ...]]] = {
    **many(
        "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac isnan "
        "isinf lgamma log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt "
        "tan tanh trunc nan_to_num celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid_forward "
        "logit mish relu silu softplus softshrink hardshrink sum mean prod max min any all norm.Scalar nansum argmax "
        "argmin var.correction var_mean.correction std.correction linalg_vector_norm sort detach alias clone squeeze "
        "zeros_like ones_like lift_fresh_copy amax amin _to_copy",
        X,
    ),
    "bitwise_not": [(z(3, 4),), (b(3, 4),)],
    "threshold": [(X, 0.1, 0.0)],
    "_to_copy": [(X, {"dtype": torch.float64}), (X, {"dtype": torch.int64}), (X, {"dtype": torch.uint8}), (b(3),)],
    "elu_backward": [(X, 1.0, 1.0, 1.0, False, Y)],
    **many("gelu_backward silu_backward hardswish_backward hardsigmoid_backward tanh_backward", X, Y),
    "sigmoid_backward": [(X, Y)],
    "logit_backward": [(X, Y)],
    "glu_backward": [(f(3, 2), X, 1)],
    "hardtanh_backward": [(X, Y, -1.0, 1.0)],
    "leaky_relu_backward": [(X, Y, 0.1, False)],
    "log_sigmoid_backward": [(X, Y, f(3, 4))],
    "softplus_backward": [(X, Y, 1.0, 20.0)],
    **many("softshrink_backward hardshrink_backward", X, Y, 0.5),
    "threshold_backward": [(X, Y, 0.0)],
    **many(
        "add.Tensor sub.Tensor mul.Tensor div.Tensor remainder.Tensor fmod.Tensor pow.Tensor_Tensor maximum minimum "
        "fmax fmin atan2 hypot copysign.Tensor xlogy.Tensor logaddexp logaddexp2 clamp_min.Tensor clamp_max.Tensor "
        "logical_and logical_or logical_xor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor "
        "floor_divide",
        X,
        f(4),
    ),
    **many(
        "add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar remainder.Scalar fmod.Scalar pow.Tensor_Scalar "
        "eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar clamp_min clamp_max full_like",
        X,
        1.5,
    ),
    "remainder.Tensor": [(X, f(4)), (z(3, 4), z(4)), (z(), z(4))],
    "fmod.Tensor": [(X, f(4)), (z(3, 4), z(4))],
    "floor_divide": [(X, f(4)), (z(3, 4), z(4))],
    "div.Tensor_mode": [
        (X, f(4), {"rounding_mode": "floor"}),
        (z(3, 4), z(4), {"rounding_mode": "trunc"}),
        (z(3, 4), z(4), {"rounding_mode": "floor"}),
    ],
    "div.Scalar_mode": [(X, 1.5, {"rounding_mode": "floor"}), (z(3), -1, {"rounding_mode": "floor"})],
    "pow.Tensor_Tensor": [(X, f(4)), (z(3, 4), z(4))],
    "pow.Scalar": [(2.0, X)],
    "remainder.Scalar_Tensor": [(7, z(4)), (7.0, f(4))],
    "lerp.Scalar": [(X, Y, 0.3)],
    **many("lerp.Tensor addcmul addcdiv clamp.Tensor", X, Y, f(4)),
    "clamp": [(X, -0.5, 0.5), (z(3), 0, 4)],
    **many("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", z(3, 4), z(4)),
    **many("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", z(3, 4), 3),
    "where.self": [(b(3, 4), X, Y), (b(4), X, f())],
    "masked_fill.Scalar": [(X, b(3, 4), 2.0)],
    **many("sum.dim_IntList mean.dim", X, [1], True),
    "prod.dim_int": [(X, 1, True)],
    **many("any.dim all.dim", b(3, 4), 0),
    **many("any.dims all.dims", b(3, 4), [0, 1]),
    "any": [(b(3, 4),), (b(),)],
    "all": [(b(3, 4),), (b(),)],
    **many("max.dim min.dim", X, 0),
    "argmax": [(X,), (X, 1)],
    "argmin": [(X,), (X, 0)],
    "amax": [(X, [0])],
    "amin": [(X, [1])],
    "linalg_vector_norm": [(X, 2, [1])],
    "norm.ScalarOpt_dim": [(X, 2, [1])],
    **many("cumsum cumprod cummax cummin logcumsumexp", X, 1),
    "logsumexp": [(X, [1])],
    "sort.stable": [(X, {"stable": True, "dim": 0})],
    "topk": [(X, 2)],
    **many("_softmax _log_softmax", X, 1, False),
    "_safe_softmax": [(X, 1)],
    **many("_softmax_backward_data _log_softmax_backward_data", X, Y, 1, torch.float32),
    **many("reshape view _unsafe_view", X, [2, 6]),
    "expand": [(f(1, 4), [3, 4])],
    "permute": [(f(2, 3, 4), [2, 0, 1])],
    "transpose.int": [(X, 0, 1)],
    "t": [(X,)],
    "squeeze": [(f(1, 3),)],
    "squeeze.dim": [(f(1, 3), 0)],
    "squeeze.dims": [(f(1, 3, 1), [0, 2])],
    "unsqueeze": [(X, 1)],
    "slice.Tensor": [(X, 1, 1, 3)],
    "slice_backward": [(f(3, 2), [3, 4], 1, 1, 3, 1)],
    "slice_scatter": [(X, f(3, 3), 1, 1, 2**63 - 1), (X, f(3, 2), 1, -2)],
    "select.int": [(X, 0, 1)],
    "select_backward": [(f(4), [3, 4], 0, 1)],
    "select_scatter": [(X, f(4), 0, 1)],
    "diagonal": [(f(3, 3),)],
    "diagonal_backward": [(f(3), [3, 3], 0, 0, 1)],
    "diagonal_scatter": [(f(3, 3), f(3))],
    "diag_embed": [(X,)],
    "cat": [([X, f(2, 4)],)],
    "stack": [([X, Y], 1)],
    **many("split.Tensor unsafe_split.Tensor", X, 2, 1),
    "split_with_sizes": [(X, [1, 3], 1)],
    "unbind.int": [(X, 1)],
    "repeat": [(X, [2, 1])],
    "flip": [(X, [0])],
    "roll": [(X, [1], [0]), (X, [1])],
    **many("tril triu", X, 1),
    "unfold": [(X, 1, 2, 1)],
    "constant_pad_nd": [(X, [1, 1], 2.0)],
    "copy": [(X, f(4)), (z(3, 4), f(4))],
    "pixel_shuffle": [(PICTURE, 2)],
    "pixel_unshuffle": [(PICTURE, 2)],
    **many("reflection_pad1d replication_pad1d", X, [1, 1]),
    **many("reflection_pad1d_backward replication_pad1d_backward", f(3, 6), X, [1, 1]),
    **many("reflection_pad2d replication_pad2d", PICTURE, [1, 1, 1, 1]),
    **many("reflection_pad2d_backward replication_pad2d_backward", f(1, 4, 8, 8), PICTURE, [1, 1, 1, 1]),
    "im2col": [(PICTURE, [2, 2], [1, 1], [0, 0], [1, 1])],
    "col2im": [(f(1, 16, 25), [6, 6], [2, 2], [1, 1], [0, 0], [1, 1])],
    **many("new_zeros new_ones", X, [2]),
    "new_full": [(X, [2], 3.0)],
    **many("zeros ones", [2, 3]),
    "full": [([2], 1.5)],
    "arange": [(5,)],
    "arange.start": [(1, 5)],
    "arange.start_step": [(1, 9, 2)],
    "eye": [(3,)],
    "eye.m": [(3, 4)],
    "scalar_tensor": [(2.0,)],
    "linspace": [(0.0, 1.0, 5)],
    "mm": [(X, f(4, 5))],
    "bmm": [(f(2, 3, 4), f(2, 4, 5))],
    "addmm": [(f(5), X, f(4, 5))],
    "baddbmm": [(f(2, 3, 5), f(2, 3, 4), f(2, 4, 5))],
    "mv": [(X, f(4))],
    "addmv": [(f(3), X, f(4))],
    "convolution": [
        (PICTURE, f(3, 4, 3, 3), f(3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (PICTURE, f(4, 1, 3, 3), None, [2, 2], [0, 0], [1, 1], False, [0, 0], 4),
        (PICTURE, f(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1),
        (f(1, 4, 6), f(3, 4, 3), f(3), [1], [0], [1], False, [0], 1),
        (f(1, 2, 4, 4, 4), f(3, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1),
    ],
    "convolution_backward": [
        (f(1, 3, 6, 6), PICTURE, f(3, 4, 3, 3), [3], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3),
        (f(1, 4, 2, 2), PICTURE, f(4, 1, 3, 3), [0], [2, 2], [0, 0], [1, 1], False, [0, 0], 4, [True, True, False]),
        (f(1, 3, 4), f(1, 4, 6), f(3, 4, 3), [3], [1], [0], [1], False, [0], 1, [True] * 3),
    ],
    "native_layer_norm": [(X, [4], f(4), f(4), 1e-5), (X, [4], None, None, 1e-5)],
    "native_layer_norm_backward": [(X, Y, [4], f(3, 1), f(3, 1), f(4), f(4), [True] * 3)],
    "native_group_norm": [(PICTURE, f(4), f(4), 1, 4, 36, 2, 1e-5)],
    "native_group_norm_backward": [(PICTURE, PICTURE, f(1, 2), f(1, 2), f(4), 1, 4, 36, 2, [True] * 3)],
    "max_pool2d_with_indices": [(PICTURE, [2, 2])],
    "max_pool2d_with_indices_backward": [
        (f(1, 4, 3, 3), PICTURE, [2, 2], [2, 2], [0, 0], [1, 1], False, i(36, 1, 4, 3, 3))
    ],
    "avg_pool2d": [(PICTURE, [2, 2])],
    "avg_pool2d_backward": [(f(1, 4, 3, 3), PICTURE, [2, 2], [2, 2], [0, 0], False, True, None)],
    "avg_pool3d": [(f(1, 2, 4, 4, 4), [2, 2, 2])],
    "avg_pool3d_backward": [(f(1, 2, 2, 2, 2), f(1, 2, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, False, True, None)],
    "_adaptive_avg_pool2d": [(PICTURE, [2, 2])],
    "_adaptive_avg_pool2d_backward": [(f(1, 4, 2, 2), PICTURE)],
    "adaptive_max_pool2d": [(PICTURE, [2, 2])],
    "adaptive_max_pool2d_backward": [(f(1, 4, 2, 2), PICTURE, i(36, 1, 4, 2, 2))],
    "upsample_nearest1d": [(f(1, 3, 4), [8])],
    "upsample_nearest1d_backward": [(f(1, 3, 8), [8], [1, 3, 4])],
    "upsample_linear1d": [(f(1, 3, 4), [8], False)],
    "upsample_linear1d_backward": [(f(1, 3, 8), [8], [1, 3, 4], False)],
    "upsample_nearest2d": [(PICTURE, [12, 12])],
    "upsample_nearest2d_backward": [(f(1, 4, 12, 12), [12, 12], [1, 4, 6, 6])],
    **many("upsample_bilinear2d upsample_bicubic2d", PICTURE, [12, 12], False),
    **many("upsample_bilinear2d_backward upsample_bicubic2d_backward", f(1, 4, 12, 12), [12, 12], [1, 4, 6, 6], False),
    "grid_sampler_2d": [
        (PICTURE, f(1, 3, 3, 2), 0, 0, False),
        (PICTURE, f(1, 3, 3, 2), 1, 1, True),
        (PICTURE, f(1, 3, 3, 2), 2, 2, True),
    ],
    "grid_sampler_2d_backward": [(f(1, 4, 3, 3), PICTURE, f(1, 3, 3, 2), 0, 0, False, [True, True])],
    "nll_loss_forward": [
        (X, i(4, 3), None, 1, -100),
        (X, i(4, 3), f(4), 0, -100),
        (X, i(4, 3), f(4), 1, 2),
        (f(4), i(4), None, 2, -100),
    ],
    "nll_loss_backward": [(f(3), X, i(4, 3), None, 0, -100, f()), (f(), X, i(4, 3), f(4), 1, 2, f())],
    "nll_loss2d_forward": [(PICTURE, i(4, 1, 6, 6), f(4), 1, -100)],
    "nll_loss2d_backward": [(f(), PICTURE, i(4, 1, 6, 6), f(4), 1, -100, f())],
    "embedding": [(f(5, 3), i(5, 4)), (f(5, 3), i(5, 4), 1)],
    "embedding_dense_backward": [(f(4, 3), i(5, 4), 5, -1, False), (f(4, 3), i(5, 4), 5, 1, False)],
    "gather": [(X, 1, i(4, 3, 2)), (f(), 0, i(1))],
    "scatter.src": [(X, 1, i(4, 3, 2), f(3, 2))],
    "scatter.value": [(X, 1, i(4, 3, 2), 2.0)],
    "scatter_add": [(X, 1, i(4, 3, 2), f(3, 2))],
    "index.Tensor": [(X, [i(3, 2), i(4, 2)]), (X, [None, i(4, 2)]), (f(2, 3, 4), [i(2, 2), None, i(4, 2)])],
    "_unsafe_index.Tensor": [(X, [i(3, 2), i(4, 2)])],
    "index_put": [
        (X, [i(3, 2), i(4, 2)], f(2)),
        (X, [i(3, 2)], f(2, 4), True),
        (X, [None, i(4, 2)], f(3, 2), True),
    ],
    "_unsafe_index_put": [(X, [i(3, 2), i(4, 2)], f(2), True)],
    "index_select": [(X, 1, i(4, 3))],
    "index_add": [(X, 1, i(4, 2), f(3, 2))],
    "index_copy": [(X, 1, i(4, 2), f(3, 2))],
    "bucketize.Tensor": [(X, f(5))],
    "searchsorted.Tensor": [(f(3, 5), X)],
}


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(A, packet), kind or "default")


@dataclass(frozen=True)
class Call:
    """A call of an operator: which of its arguments are tensors, and what it returns."""

    name: str
    arguments: tuple[Any, ...]

    @property
    def tensors(self) -> tuple[Values, ...]:
        leaves = tree_leaves(self.arguments, is_leaf=lambda leaf: isinstance(leaf, Values))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Values)) or (f(2),)

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves, spec = tree_flatten(self.arguments, is_leaf=lambda leaf: isinstance(leaf, Values))
        some = iter(tensors)
        full = tree_unflatten([next(some) if isinstance(leaf, Values) else leaf for leaf in leaves], spec)
        args, kwargs = (full[:-1], full[-1]) if isinstance(full[-1], dict) else (full, {})
        return [one for one in tree_leaves(overload(self.name)(*args, **kwargs)) if isinstance(one, torch.Tensor)]


def groups() -> dict[tuple[Values, ...], list[Call]]:
    """All calls, by their tensors: one graph serves those that take the same."""
    found: dict[tuple[Values, ...], list[Call]] = {}
    for name, cases in CASES.items():
        for arguments in cases:
            call = Call(name, arguments)
            found.setdefault(call.tensors, []).append(call)
    return found


GROUPS = groups()


def traced(function: Callable[..., Any], examples: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The graph of one record, as capture gives it, rewritten and checked."""
    gm = trace(function, *examples)
    make_total(gm)
    check_graph(gm)
    return gm


def forward(calls: Sequence[Call]) -> Callable[..., Any]:
    return lambda *tensors: [one for call in calls for one in call(*tensors)]


def total(call: Call) -> Callable[..., torch.Tensor]:
    """A scalar in which every float that a call returns has a weight of its own."""

    def weighted(*tensors: torch.Tensor) -> torch.Tensor:
        outputs = [one for one in call(*tensors) if one.is_floating_point()]
        weights = [torch.linspace(0.5, 1.5, one.numel()).reshape(one.shape) for one in outputs]
        return sum(((one * each).sum() for one, each in zip(outputs, weights, strict=True)), torch.zeros(()))

    return weighted


def places_of(call: Call) -> tuple[int, ...]:
    """The tensors by which a call can be differentiated."""
    tensors = [one.draw(place, ()) for place, one in enumerate(call.tensors)]
    if not any(one.is_floating_point() for one in call(*tensors)):
        return ()
    floats = [place for place, one in enumerate(call.tensors) if one.kind in "fp"]
    found = []
    for place in floats:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            grad(total(call), place)(*tensors)
            found.append(place)
    return tuple(found)


def backward(calls: Sequence[Call]) -> Callable[..., Any]:
    """The derivatives of each call."""

    wanted = [(total(call), place) for call in calls for place in places_of(call)]

    def gradients(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [grad(function, place)(*tensors) for function, place in wanted]

    return gradients


def flatten(gm: fx.GraphModule, roles: Sequence[str], examples: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The graph over runs and records, flat. A role is "x" of a record, "p" of a run, "c" constant."""

    def over_both(function: Callable[..., Any]) -> Callable[..., Any]:
        inner = vmap(function, in_dims=tuple(0 if role == "x" else None for role in roles), randomness="error")
        return vmap(inner, in_dims=tuple(None if role == "c" else 0 for role in roles), randomness="error")

    with warnings.catch_warnings(action="ignore"):  # of slow rules
        flat = retraced(gm, over_both, [without_values(one) for one in examples])
    flat.graph.eliminate_dead_code()
    flat.recompile()
    check_graph(flat)
    check_kernels(flat)
    return flat


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    nan = one.isnan(), other.isnan()
    return torch.equal(*nan) and torch.equal(one.masked_fill(nan[0], 0), other.masked_fill(nan[1], 0))


LEAD = {"x": (RUNS, RECORDS), "p": (RUNS,), "c": ()}


def first(value: torch.Tensor, role: str) -> torch.Tensor:
    return value[(0,) * len(LEAD[role])]


def separate(gm: fx.GraphModule, names: Sequence[str], tensors: Sequence[Values], roles: Sequence[str]) -> None:
    """The first record's outputs are those that it has alone, to the bit whatever other records and runs hold."""
    base = [one.draw(place, LEAD[role]) for place, (one, role) in enumerate(zip(tensors, roles, strict=True))]
    flat = flatten(gm, roles, base)
    *expected, outside = flat(*base)
    alone = gm(*(first(value, role) for value, role in zip(base, roles, strict=True)))
    assert not outside[0, 0]
    for name, one, other in zip(names, alone[:-1], expected, strict=True):
        near = torch.allclose(one.double(), other[0, 0].double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        assert near, (name, roles, one, other[0, 0])
    for changes in zip(*(one.others(value) for one, value in zip(tensors, base, strict=True)), strict=True):
        for value, change, role in zip(base, changes, roles, strict=True):
            first(change, role).copy_(first(value, role))
        *found, _ = flat(*changes)
        for name, one, other in zip(names, expected, found, strict=True):
            assert same(one[0, 0], other[0, 0]), (name, roles, one[0, 0], other[0, 0])


def separately(tensors: tuple[Values, ...], differentiate: bool, every: bool) -> None:
    calls = GROUPS[tensors]
    examples = [one.draw(place, ()) for place, one in enumerate(tensors)]
    if differentiate:
        calls = [call for call in calls if "backward" not in call.name and call.name != "digamma" and places_of(call)]
        names = [call.name for call in calls for _ in places_of(call)]
    else:
        names = [call.name for call in calls for _ in call(*examples)]
    if not calls:
        return
    gm = traced((backward if differentiate else forward)(calls), examples)
    rest = len(tensors) - 1
    roles = [("x", *"p" * rest)]
    if every:
        roles = [some for some in itertools.product("xpc", repeat=len(tensors)) if "x" in some]
        roles = random.Random(0).sample(roles, min(len(roles), MOST_ROLES))
    for some in roles:
        try:
            separate(gm, names, tensors, some)
        except RuntimeError as error:  # vmap refuses some roles of the derivatives of norms, which no model gives
            if not every or "BatchRulesHelper.h" not in str(error):
                raise


def test_every_operator_has_a_case() -> None:
    names = {overload(name) for name in CASES}
    assert names == ALLOWED, names ^ ALLOWED


@pytest.mark.parametrize("tensors", GROUPS, ids=lambda tensors: GROUPS[tensors][0].name)
def test_operators_treat_records_and_runs_separately(tensors: tuple[Values, ...]) -> None:
    separately(tensors, differentiate=False, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("differentiate", [False, True])
@pytest.mark.parametrize("tensors", GROUPS, ids=lambda tensors: GROUPS[tensors][0].name)
def test_operators_in_all_roles(tensors: tuple[Values, ...], differentiate: bool) -> None:
    separately(tensors, differentiate, every=True)


def graph_of(function: Callable[..., Any], *examples: torch.Tensor) -> fx.GraphModule:
    """A function of one record as a graph, not rewritten."""
    return trace(lambda *tensors: [function(*tensors)], *examples)


def total_of(function: Callable[..., Any], *examples: torch.Tensor) -> fx.GraphModule:
    gm = graph_of(function, *examples)
    make_total(gm)
    check_graph(gm)
    return gm


def test_decomposed_operators_keep_their_values() -> None:
    def all_of(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        norm = torch._weight_norm(x, g, 0)
        return (
            functional.mish(x).sum()
            + norm.sin().sum()
            + (x.unfold(1, 2, 1) ** 2).sum()
            + x[0].dot(x[1])
            + functional.prelu(x, g[:1, 0]).sum()
            + functional.binary_cross_entropy(x.sigmoid(), x.cos() ** 2)
            + functional.huber_loss(x, x.detach() * 2)
            + functional.batch_norm(x, None, None, training=True).sin().sum()
            + x.masked_fill(x > 0, g[0, 0]).sum()
            + functional.soft_margin_loss(x, x.detach().sign())
        )

    x, g = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.rand(3, 1) + 0.5
    gm = traced(lambda *tensors: list(grad(all_of, (0, 1))(*tensors)), [x, g])
    for ours, theirs in zip(gm(x, g), grad(all_of, (0, 1))(x, g), strict=False):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


LINE, TABLE = torch.arange(4.0), torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("look", "inside", "outside"),
    [
        (lambda index: LINE[index], [0, 3, -1, -4], [4, -5, 2**40]),
        (lambda index: functional.embedding(index, TABLE), [0, 3], [4, -1]),
        (lambda index: LINE.gather(0, index), [0, 3], [4, -1]),
        (lambda index: LINE.index_select(0, index), [0, 3], [4, -1]),
        (lambda index: LINE.scatter(0, index, 9.0), [0, 3], [4, -1]),
        (lambda index: LINE.scatter_add(0, index, torch.ones(1)), [0, 3], [4, -1]),
        (lambda index: LINE.index_add(0, index, torch.ones(1)), [0, 3], [4, -1]),
        (lambda index: LINE.index_copy(0, index, torch.ones(1)), [0, 3], [4, -1]),
        (lambda index: LINE.index_fill(0, index, 9.0), [0, 3], [4, -5]),
        (lambda index: LINE.index_put((index,), torch.ones(1)), [0, 3, -4], [4, -5]),
        (lambda index: functional.one_hot(index, 4), [0, 3], []),
        (lambda index: functional.nll_loss(LINE[None], index), [0, 3, -100], [4, -1]),
        (lambda index: functional.cross_entropy(LINE[None], index, ignore_index=-1), [0, 3, -1], [4, -2]),
        (lambda index: 7 // index, [1, -3], [0]),
        (lambda index: 7 % index, [1, -3], [0]),
        (lambda index: torch.fmod(index + 7, index), [1, -3], [0]),
        (lambda index: index // torch.tensor(-1), [1, -3], [torch.iinfo(torch.int64).min]),
        (lambda index: index // -1, [1, -3], [torch.iinfo(torch.int64).min]),
        (lambda index: index % -1, [1, -3], [torch.iinfo(torch.int64).min]),
        (lambda index: index.fmod(-1), [1, -3], [torch.iinfo(torch.int64).min]),
        (lambda index: torch.div(index, -1, rounding_mode="trunc"), [1, -3], [torch.iinfo(torch.int64).min]),
    ],
)
def test_values_outside_are_reported_and_raise_nothing(
    look: Callable[[torch.Tensor], torch.Tensor], inside: list[int], outside: list[int]
) -> None:
    gm = total_of(look, torch.tensor([1]))
    for value in inside:
        found, wrong = gm(torch.tensor([value]))
        assert torch.equal(found, look(torch.tensor([value]))) or bool(found.isnan().all())
        assert not wrong
    for value in outside:
        assert gm(torch.tensor([value]))[-1]


@pytest.mark.parametrize("adaptive", [False, True])
def test_places_of_a_larger_picture_stay_in_a_smaller_one(adaptive: bool) -> None:
    """The derivative of a pooling writes where places point, which a record's values decide: into other records."""
    aten = torch.ops.aten

    def back(picture: torch.Tensor) -> torch.Tensor:
        small, slopes = picture[..., :2, :2].clone(), torch.ones(1, 1, 2, 2)
        if adaptive:
            return aten.adaptive_max_pool2d_backward(slopes, small, aten.adaptive_max_pool2d(picture, [2, 2])[1])  # type: ignore[no-any-return]
        where = aten.max_pool2d_with_indices(picture, [2, 2], [2, 2])[1]
        return aten.max_pool2d_with_indices_backward(slopes, small, [1, 1], [1, 1], [0, 0], [1, 1], False, where)  # type: ignore[no-any-return]

    gm = total_of(back, torch.zeros(1, 1, 4, 4))
    for place, outside in ((0, False), (3, True)):  # of each window; the last has the last place of the larger picture
        picture = torch.zeros(1, 1, 4, 4)
        picture[..., place // 2 :: 2, place % 2 :: 2] = 1.0
        found, wrong = gm(picture)
        assert found.sum() == 4.0
        assert bool(wrong) or not outside


ONES, MASK = torch.ones(1, 1, 1, 1), [True, True, True]
ZEROS, ROWS = torch.zeros(1, 8, 4, 4), torch.zeros(8, 4)
PLACES, COLUMN = torch.zeros(1, 1, 1, 1, dtype=torch.int64), torch.zeros(8, 1)
OTHER_SHAPES: dict[str, tuple[Any, ...]] = {
    "_softmax_backward_data": (ROWS, COLUMN, 1, torch.float32),
    "_log_softmax_backward_data": (ROWS, COLUMN, 1, torch.float32),
    "native_layer_norm_backward": (COLUMN[:1], ROWS, [4], COLUMN, COLUMN, None, None, MASK),
    "native_layer_norm_backward of one mean": (ROWS, ROWS, [4], COLUMN[:1], COLUMN, None, None, MASK),
    "native_layer_norm_backward of one scale": (ROWS, ROWS, [4], COLUMN, COLUMN[:1], None, None, MASK),
    "reflection_pad1d_backward": (torch.ones(1, 6), ROWS, [1, 1]),
    "reflection_pad2d_backward": (torch.ones(1, 1, 6, 6), ZEROS, [1, 1, 1, 1]),
    "replication_pad1d_backward": (torch.ones(1, 6), ROWS, [1, 1]),
    "replication_pad2d_backward": (torch.ones(1, 1, 6, 6), ZEROS, [1, 1, 1, 1]),
    "convolution_backward": (
        *(torch.ones(0, 2, 4, 4), ZEROS, torch.ones(2, 8, 1, 1)),
        *(None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]),
    ),
    "avg_pool2d_backward": (torch.ones(2, 8, 2, 2), ZEROS, [2, 2], [2, 2], [0, 0], False, True, None),
    "_adaptive_avg_pool2d_backward": (ONES, ZEROS),
    "adaptive_max_pool2d_backward": (ONES, ZEROS, PLACES),
    "max_pool2d_with_indices_backward": (ONES, ZEROS, [4, 4], [4, 4], [0, 0], [1, 1], False, PLACES),
    "grid_sampler_2d_backward": (ONES, ZEROS, torch.zeros(1, 1, 1, 2), 0, 0, False, MASK[:2]),
}


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_a_derivative_of_other_shapes_is_refused(name: str) -> None:
    """Kernels do not check: they read the memory of other records, of which one moved a step by 15 C."""
    given = OTHER_SHAPES[name]
    places = [place for place, one in enumerate(given) if isinstance(one, torch.Tensor)]

    def called(*tensors: torch.Tensor) -> Any:
        arguments = list(given)
        for place, one in zip(places, tensors, strict=True):
            arguments[place] = one
        made = overload(name.partition(" ")[0])(*arguments)
        return made if isinstance(made, torch.Tensor) else made[0]

    with pytest.raises(UnsupportedModelError, match=r"would read other memory|(?i:expect|shape|size)"):
        total_of(called, *(given[place] for place in places))


def test_a_number_that_rolls_stays_with_its_record() -> None:
    """Under ``vmap`` it rolled over the records: one of them moved a step by 3 C."""
    gm = total_of(lambda value: value.roll(1), torch.zeros(()))
    found, _ = vmap(gm)(torch.arange(4.0))
    assert torch.equal(found, torch.arange(4.0))


def test_a_look_up_among_no_classes_is_refused() -> None:
    """Its derivative wrote before its memory."""
    target, total = torch.zeros(3, dtype=torch.int64), torch.ones(())

    def slopes(given: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return A.nll_loss_backward(given, scores, target, None, 0, -100, total)  # type: ignore[no-any-return]

    with pytest.raises(UnsupportedModelError, match="dimension of size 0"):
        total_of(slopes, torch.ones(3), torch.zeros(3, 0))


def test_a_number_may_be_converted_within_vmap() -> None:
    gm = total_of(lambda x: torch.vmap(torch.vmap(lambda one: one.tanh() * 2))(x), torch.rand(2, 3))
    assert torch.equal(gm(torch.ones(2, 3))[0], torch.ones(2, 3).tanh() * 2)


def test_a_probability_outside_raises_nothing() -> None:
    gm = total_of(lambda x: functional.binary_cross_entropy(x, torch.ones(2)), torch.rand(2))
    assert gm(torch.tensor([0.5, 0.5]))[0] == torch.log(torch.tensor(2.0))
    gm(torch.tensor([2.0, torch.nan]))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_floats_that_no_integer_holds_become_the_same_integer_in_every_place(kind: torch.dtype) -> None:
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 2.0**31, -7.5, 3.7])
    gm = total_of(lambda x: x.to(kind), odd.repeat(9))
    found, wrong = gm(odd.repeat(9))
    assert not wrong
    assert torch.equal(found, found[: len(odd)].repeat(9))
    assert found[0] == 0
    assert found[7] == 3


def test_memory_that_was_never_written_is_zero() -> None:
    def uses(x: torch.Tensor) -> torch.Tensor:
        return x + torch.empty(3) + torch.empty_like(x) + x.new_empty(3) + torch.empty_strided((3,), (2,))

    gm = total_of(uses, torch.ones(3))
    assert torch.equal(gm(torch.ones(3))[0], torch.ones(3))


def test_views_by_strides_become_look_ups() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 3), (1, 2), 1) * 2

    gm = total_of(shifted, torch.zeros(4, 3))
    assert not any("strided" in str(node.target) for node in gm.graph.nodes)
    x = torch.arange(12.0).reshape(4, 3)
    assert torch.equal(gm(x)[0], shifted(x))


def test_a_refusal_names_the_line_of_the_model() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((3,), (1,), 40) + 1

    with pytest.raises(UnsupportedModelError, match=r"operators.py:\d+: the operator as_strided reads memory"):
        total_of(forward, torch.zeros(3))


def test_a_mask_that_chooses_one_value_is_a_where() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[x > 0] = torch.tensor(5.0)
        return y

    gm = total_of(masked, torch.zeros(4))
    x = torch.tensor([1.0, -1.0, 2.0, torch.nan])
    assert torch.equal(gm(x)[0][:3], torch.tensor([5.0, -1.0, 5.0]))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch._is_any_true(x > 0), "_is_any_true looks at all records"),
        (lambda x: torch._is_all_true(x > 0), "_is_all_true looks at all records"),
        (lambda x: torch.linalg.cholesky(x), "can fail for the values"),
        (lambda x: torch.histc(x, 4), "histc is not on the list"),
        (lambda x: x.add_(1) * 2, "copy_ changes a tensor in place"),
        (lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 3])), "not on the list"),
        (lambda x: x * torch.rand(4, generator=torch.Generator()), "draw without it, as the seed of a run says"),
    ],
)
def test_operators_off_the_list_are_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        total_of(function, torch.eye(4))


def test_a_custom_operator_is_refused() -> None:
    @torch.library.custom_op("dphypo_test::centre", mutates_args=())
    def centre(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)

    centre.register_fake(torch.empty_like)
    with pytest.raises(UnsupportedModelError, match=r"dphypo_test\.centre is not on the list"):
        total_of(centre, torch.ones(3))


@pytest.mark.parametrize(
    ("draw", "low", "high", "mean", "deviation"),
    [
        (lambda x: functional.dropout(x + 1, 0.25), 0, 4 / 3, 1, 3**-0.5),
        (lambda x: functional.dropout(x + 1, 0.0), 1, 1, 1, 0),
        (lambda x: functional.dropout(x + 1, 1.0), 0, 0, 0, 0),
        (lambda x: torch.native_dropout(x + 1, 0.25, True)[0], 0, 4 / 3, 1, 3**-0.5),
        (lambda x: torch.rand_like(x), 0, 1, 0.5, 12**-0.5),
        (lambda x: torch.rand(x.shape), 0, 1, 0.5, 12**-0.5),
        (lambda x: torch.empty_like(x).uniform_(2, 4), 2, 4, 3, 3**-0.5),
        (lambda x: torch.randn_like(x), -6, 6, 0, 1),
        (lambda x: torch.normal(x + 3, 2.0), -9, 15, 3, 2),
        (lambda x: torch.empty_like(x).normal_(3, 2), -9, 15, 3, 2),
        (lambda x: torch.empty_like(x).exponential_(2.0), 0, 9, 0.5, 0.5),
        (lambda x: torch.bernoulli(x + 0.5), 0, 1, 0.5, 0.5),
        (lambda x: torch.bernoulli(x, 0.5), 0, 1, 0.5, 0.5),
        (lambda x: torch.randint(2, 5, x.shape).float(), 2, 4, 3, (2 / 3) ** 0.5),
        (lambda x: torch.randperm(len(x)).float() / len(x), 0, 1, 0.5, 12**-0.5),
    ],
)
def test_draws_are_functions_of_uniform_numbers(
    draw: Callable[[torch.Tensor], torch.Tensor], low: float, high: float, mean: float, deviation: float
) -> None:
    """The mean of 4096 draws is more than 6 deviations off with probability below 1e-8; the seed is fixed."""
    x = torch.zeros(4096)
    gm = graph_of(draw, x)
    shapes = key_randomness(gm)
    make_total(gm)
    check_graph(gm)
    uniforms = [torch.rand(shape, generator=torch.Generator().manual_seed(3)) for shape in shapes]
    found, again = gm(x, *uniforms)[0], gm(x, *uniforms)[0]
    assert torch.equal(found, again)
    assert low <= found.min()
    assert found.max() <= high + 1e-6
    assert abs(float(found.mean()) - mean) <= 6 * deviation / 64
    assert abs(float(found.std()) - deviation) <= 0.1 * deviation
    if shapes:
        extremes = [gm(x, *(torch.full_like(one, edge) for one in uniforms))[0] for edge in (0.0, 1 - 2.0**-24)]
        assert all(bool(one.isfinite().all()) for one in extremes)


def test_a_draw_without_a_keyed_form_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="poisson draws in a way"):
        key_randomness(graph_of(lambda x: torch.poisson(x), torch.ones(3)))


def test_a_layer_that_is_dropped_with_probability_zero_is_captured() -> None:
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return x if torch.rand([]) < 0.0 else x * 2

    with Capture():
        gm = graph_of(dropped, torch.ones(3))
    assert key_randomness(gm) == []
    assert torch.equal(gm(torch.ones(3))[0], torch.full((3,), 2.0))


def test_constants_are_listed_and_one_as_long_as_the_records_is_refused() -> None:
    bank = torch.randn(50, 3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        gm = make_fx(lambda x: [x - bank.mean(0)], _allow_non_fake_inputs=True)(torch.ones(3))
    held = constants(gm)
    assert [tuple(one.shape) for one in held.values()] == [(50, 3)]
    check_constants(held, 51)
    with pytest.raises(UnsupportedModelError, match=r"\(50, 3\), which is as long as the 50 declared records"):
        check_constants(held, 50)


def test_a_tensor_that_no_node_gives_is_refused() -> None:
    gm, other = graph_of(lambda x: x * 2, torch.ones(3)), torch.ones(3, device="meta")
    with pytest.raises(UnsupportedModelError, match="neither an argument nor a constant"):
        retraced(gm, lambda run: lambda x: run(torch.add(x, other)), [without_values(torch.ones(3))])


def test_replaced_kernels_and_active_modes_are_refused() -> None:
    gm = total_of(lambda x: torch.erfinv(x), torch.zeros(3))
    check_kernels(gm)
    with Capture(), pytest.raises(UnsupportedModelError, match="the mode Capture is active"):
        check_kernels(gm)
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings(action="ignore"):
            library.impl("erfinv", lambda x: x - x.mean(), "CPU")
        with pytest.raises(UnsupportedModelError, match=r"erfinv was replaced at .*test_engine_operators.py"):
            check_kernels(gm)
    finally:
        library._destroy()
    check_kernels(gm)
