"""Models that try to let one record speak for others: refused, or one record moves a step by at most C.

What is trained is a graph that was captured from one made-up record, so no Python of a model runs on records. Each of
these models decides by other records, by the size of a batch, by memory or by earlier calls if its Python runs.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import io
import pickle
import random
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_steps import change, first_output, moved, one_step
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from dphypo.errors import UnsupportedModelError
from dphypo.torch import record_values
from dphypo.torch.data import as_records
from dphypo.torch.engine import Program
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.engine.program import precision
from dphypo.torch.record_values import keeping, per_record, values

COUNT = 40
INPUTS, TARGETS = torch.ones(COUNT, 4), torch.zeros(COUNT)
INPUTS[-1] = 60.0
SEEN: list[Any] = []
TOTAL = torch.zeros(1, 4)


class Linear(nn.Module):
    """One linear layer, whose weights are zero. Subclasses do something to its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(self.before(inputs))  # type: ignore[no-any-return]

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def before(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = Linear()
        model.before = function  # type: ignore[method-assign,assignment]
        return model

    return build


def flip(inputs: torch.Tensor, yes: Any) -> torch.Tensor:
    return -inputs if yes else inputs


class Slotted:
    __slots__ = ("count", "held")

    def __init__(self) -> None:
        self.count, self.held = 0, None


class Counts(Linear):
    """Counts its calls in an attribute with slots."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Slotted()

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        self.memory.count += 1
        return inputs * self.memory.count


class Remembers(Linear):
    """Adds what it saw before, in a global list."""

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        SEEN.append(inputs.detach().sum())
        return inputs + sum(SEEN[:-1])


class Buffer(Linear):
    """A buffer that all records of a batch change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1))

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.total.add_(inputs.sum())
        return inputs + self.total


class Attribute(Linear):
    """The same with a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.total.add_(inputs.sum())
        return inputs + self.total


class Parameter(Linear):
    """Writes to its weights in the forward pass."""

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.add_(inputs.sum())
        return inputs


class ThroughData(Linear):
    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        self.layer.weight.data += inputs.sum()
        return inputs


class MaxNorm(Linear):
    """An embedding that writes to its rows as they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4, max_norm=0.1)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table(inputs[:, 0].long() % 8)  # type: ignore[no-any-return]


class Spectral(Linear):
    """Spectral normalisation iterates on buffers."""

    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.spectral_norm(self.layer)


class Statistics(Linear):
    """A normalisation over the batch by hand."""

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs - inputs.mean(0)) / (inputs.std(0, unbiased=False) + 1)


class Normalised(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, track_running_stats=False)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(inputs)  # type: ignore[no-any-return]


class Hooked(Linear):
    """A hook of the module that sees gradients of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer.register_full_backward_hook(
            lambda module, inputs, outputs: tuple(-one for one in inputs if one is not None) or None
        )
        self.layer.register_forward_hook(lambda module, inputs, outputs: outputs * (1 - 2 * (inputs[0] == 60).any()))


class OwnRule(torch.autograd.Function):
    """Mixes records under ``vmap``."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return slope

    @staticmethod
    def vmap(info: Any, in_dims: Any, values: torch.Tensor) -> Any:
        return OwnRule.apply(values * (1 - 2 * (values == 60).any())), in_dims[0]  # type: ignore[no-untyped-call]


class Mixing(torch.autograd.Function):
    """A derivative that looks across the batch."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (values,) = ctx.saved_tensors
        return slope * (1 - 2 * (values > 50).any())


class OwnDerivative(Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shifted = torch.cat([inputs, self.layer(inputs)], 1)
        return Mixing.apply(shifted)[:, 4:]  # type: ignore[no-any-return, no-untyped-call]


class Bank(Linear):
    """Holds the records as a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = INPUTS.clone()

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs - 2 * inputs * (self.bank == 60).any()


class BankBuffer(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bank", INPUTS.T.clone())

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs - 2 * inputs * (self.bank == 60).any()


class Subclass(torch.Tensor):
    """A tensor that watches what is done to it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func)
        return func(*args, **(kwargs or {}))


def by_mode(inputs: torch.Tensor) -> torch.Tensor:
    with Mode():
        return inputs * 2


def in_a_thread(inputs: torch.Tensor) -> torch.Tensor:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append("60" in repr(inputs)))
    thread.start()
    thread.join()
    return flip(inputs, found and found[0])


def operators_in_a_thread(inputs: torch.Tensor) -> torch.Tensor:
    """Computes where no mode follows it."""
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(inputs * torch.where((inputs > 50).any(), -1.0, 1.0)))
    thread.start()
    thread.join()
    return found[0]


class SavesOthers(Linear):
    """Differentiates with what the first pass saved."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        def pack(value: torch.Tensor) -> int:
            SEEN.append(value)
            return len(SEEN) - 1

        def unpack(place: int) -> torch.Tensor:
            return next(one for one in SEEN if one.shape == SEEN[place].shape)  # type: ignore[no-any-return]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return self.layer(inputs) * 2  # type: ignore[no-any-return]


class Scaled(nn.Module):
    """A parametrization that scales by what it was told last."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Any = 0.0

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * (1 + self.seen)  # type: ignore[no-any-return]


class Parametrized(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.memory = Scaled()
        nn.utils.parametrize.register_parametrization(self.layer, "weight", self.memory)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        self.memory.seen = inputs.sum()
        return inputs


class Negates(torch.Tensor):
    """Negates every second result, and those of batches."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func)
        made = super().__torch_function__(func, types, args, kwargs or {})
        return -made if isinstance(made, torch.Tensor) and (len(made) > 1 or len(SEEN) % 2) else made


class Lagging(torch.autograd.Function):
    """A derivative that multiplies by the record before."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        SEEN.append(values.clone())
        return values.clone()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return slope * SEEN[-2].sum() if len(SEEN) > 1 else slope


class OwnMemory(Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return Lagging.apply(self.layer(inputs))  # type: ignore[no-any-return, no-untyped-call]


def by_exception(inputs: torch.Tensor) -> torch.Tensor:
    try:
        odd = bool((inputs == 60).any())
    except Exception:
        odd = False
    return flip(inputs, odd)


def by_garbage(inputs: torch.Tensor) -> torch.Tensor:
    """Looks for other tensors of this process."""
    others = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.shape == (COUNT, 4)]
    return flip(inputs, any(len(one) == COUNT for one in others))


def saved(inputs: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(inputs, file)
    return flip(inputs, len(file.getvalue()) % 2)


def neighbours(inputs: torch.Tensor) -> torch.Tensor:
    """Reads the memory after a record."""
    return inputs + inputs.as_strided((1, 4), (4, 1), 4).nan_to_num().clamp(-100, 100)


def strided(inputs: torch.Tensor) -> torch.Tensor:
    """Inside a record, whose strides change in a batch."""
    return inputs.as_strided((len(inputs), 4), (4, 1)) * 2


def unwritten(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + torch.empty(1, 4).nan_to_num(0, 0, 0).clamp(-100, 100)


def filled(inputs: torch.Tensor) -> torch.Tensor:
    """Writes outside of itself."""
    return inputs.index_fill(1, inputs[0, :1].long(), 9.0)


def shorter(inputs: torch.Tensor) -> torch.Tensor:
    """Asks a derivative for more channels than it is given: it read those of seven other records."""
    slopes, pictures = inputs[:, None, :1].expand(-1, 1, 6).contiguous(), inputs.new_zeros(len(inputs), 8, 4)
    others = torch.ops.aten.reflection_pad1d_backward(slopes, pictures, [1, 1]).nan_to_num()
    return inputs * torch.where((others == 60).flatten(1).any(1, keepdim=True), -1.0, 1.0)


def pooled(inputs: torch.Tensor) -> torch.Tensor:
    """Derivatives at places of its own choice."""
    place, slope = inputs[:, :1].long().reshape(-1, 1, 1, 1), inputs[:, :1].reshape(-1, 1, 1, 1)
    window = (inputs.reshape(-1, 1, 2, 2), [2, 2], [2, 2], [0, 0], [1, 1], False)
    return torch.ops.aten.max_pool2d_with_indices_backward(slope, *window, place).reshape(-1, 4)


def seeded(inputs: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return inputs * torch.rand(1)


def resized(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.clone().resize_(40, 4)[-1:]


class KernelInGroups(nn.Module):
    """Uses one kernel whole, and in groups of its outputs: the norms of both uses add up, not their squares."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(2, 1, 1, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        pictures = inputs.view(-1, 2, 1, 2)
        whole = torch.conv2d(pictures[:, :1], self.kernel)
        return (whole + torch.conv2d(pictures, self.kernel, groups=2)).flatten(1)


class MatrixInParts(nn.Module):
    """Uses one matrix whole, turned, and in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(4, 4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        parts = [inputs @ self.matrix, inputs @ self.matrix.t(), inputs[:, :2] @ self.matrix[:2]]
        return torch.cat([*parts, inputs @ self.matrix[:, 1:]], 1)


def by_pointer(inputs: torch.Tensor) -> torch.Tensor:
    return inputs * (ctypes.c_float * 4).from_address(inputs.data_ptr())[0]


def by_storage(inputs: torch.Tensor) -> torch.Tensor:
    return inputs * (ctypes.c_float * 4).from_address(inputs.untyped_storage().data_ptr())[0]


def by_sorter(inputs: torch.Tensor) -> torch.Tensor:
    """Raises for some values."""
    numbers = torch.arange(4.0).expand(len(inputs), 4).contiguous()
    return torch.searchsorted(numbers, numbers, sorter=inputs.long().abs()) * 1.0


def compiled(inputs: torch.Tensor) -> torch.Tensor:
    return torch.compile(lambda values: values * torch.where((values > 50).any(), -1.0, 1.0))(inputs)  # type: ignore[no-any-return]


def conditional(inputs: torch.Tensor) -> torch.Tensor:
    return torch.cond((inputs > 50).any(), lambda x: -x, lambda x: x.clone(), (inputs,))  # type: ignore[no-any-return]


def sign(inputs: torch.Tensor) -> torch.Tensor:
    return torch.where((inputs > 50).any(), -1.0, 1.0)


def checkpointed(inputs: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda values: values * sign(values), inputs, use_reentrant=False)  # type: ignore[no-any-return]


@torch.library.custom_op("dphypo_hostile::turned", mutates_args=())
def turned(inputs: torch.Tensor) -> torch.Tensor:
    """An operator with a rule for batches."""
    return -inputs if bool((inputs > 50).any()) else inputs.clone()


turned.register_fake(torch.empty_like)
turned.register_autograd(lambda context, slope: slope)
turned.register_vmap(lambda info, dims, inputs: (turned(inputs), dims[0]))


def scanned(inputs: torch.Tensor) -> torch.Tensor:
    """Carries a sum from record to record."""
    return scan(lambda carried, one: (carried + one, carried + one), torch.zeros(4), inputs)[1]  # type: ignore[no-any-return]


def inferred(inputs: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        factor = sign(inputs)
    return inputs * factor


class Padded(Linear):
    """Attention whose padding is what a record says, with a fast path for batches whose padding is at the end."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1).requires_grad_(False)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        padding = torch.stack([inputs[:, 0] > 1e9, inputs[:, 1] > 50, inputs[:, 2] > 50], 1)
        return self.encoder(inputs[:, None].expand(-1, 3, 4), src_key_padding_mask=padding).sum(1)  # type: ignore[no-any-return]


class AcrossRecords(Linear):
    """Attention whose positions are records."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 1)
        for one in self.attention.parameters():
            nn.init.zeros_(one)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = inputs[:, None]
        return self.attention(rows, rows, rows)[0][:, 0] + inputs  # type: ignore[no-any-return]


class ForAllModules(Linear):
    """A hook of all modules, set and removed in a pass."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hook = nn.modules.module.register_module_forward_hook(lambda layer, given, made: made * sign(given[0]))
        try:
            return self.layer(inputs)  # type: ignore[no-any-return]
        finally:
            hook.remove()


class Counted(Linear):
    """An attribute that is another number at every look."""

    def __getattr__(self, name: str) -> Any:
        if name == "gain":
            SEEN.append(name)
            return float(len(SEEN))
        return super().__getattr__(name)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.gain


MODELS: dict[str, Callable[[], nn.Module]] = {
    "the size of a batch": before(lambda x: flip(x, len(x) > COUNT - 1)),
    "repr": before(lambda x: flip(x, "60" in repr(x))),
    "str": before(lambda x: flip(x, "60" in f"{x}")),
    "pickle": before(lambda x: flip(x, b"60" in pickle.dumps(x))),
    "save": before(saved),
    "item": before(lambda x: flip(x, x.max().item() > 50)),
    "tolist": before(lambda x: flip(x, x.tolist()[-1][0] == 60)),
    "numpy": before(lambda x: flip(x, x.detach().numpy()[-1, 0] == 60)),
    "an address": before(lambda x: flip(x, x.data_ptr() % 64)),
    "a storage": before(lambda x: flip(x, x.untyped_storage().size() > 100)),
    "a hash": before(lambda x: flip(x, hash(x) % 3)),
    "an exception": before(by_exception),
    "a thread": before(in_a_thread),
    "objects of the process": before(by_garbage),
    "a slot": Counts,
    "a global list": Remembers,
    "a buffer": Buffer,
    "an attribute": Attribute,
    "a parameter": Parameter,
    "a parameter's data": ThroughData,
    "an embedding with max_norm": MaxNorm,
    "spectral norm": Spectral,
    "statistics of the batch": Statistics,
    "BatchNorm without statistics": Normalised,
    "any record": before(lambda x: x * torch.where((x > 50).any(), -1.0, 1.0)),
    "_is_any_true": before(lambda x: x * (1 - 2 * torch._is_any_true(x > 50).float())),
    "_is_all_true": before(lambda x: x * (1 - 2 * torch._is_all_true(x < 50).float())),
    "hooks": Hooked,
    "a derivative of its own": OwnDerivative,
    "a rule under vmap": before(lambda x: OwnRule.apply(x)),  # type: ignore[no-untyped-call]
    "the memory of neighbours": before(neighbours),
    "strides": before(strided),
    "memory that was never written": before(unwritten),
    "index_fill outside": before(filled),
    "places of a maximum": before(pooled),
    "a derivative of other shapes": before(shorter),
    "a number that rolls": before(lambda x: x * torch.where(x[0].sum().roll(-1) == 240, -1.0, 1.0)),
    "a constant that holds the records": Bank,
    "a buffer that holds the records": BankBuffer,
    "a tensor subclass": before(lambda x: x.as_subclass(Subclass).neg().as_subclass(torch.Tensor)),
    "a dispatch mode": before(by_mode),
    "a seed": before(seeded),
    "random": before(lambda x: x * (1 + random.random())),
    "resize": before(resized),
    "cond": before(conditional),
    "sorted records": before(lambda x: x.sort(0).values),
    "a running sum": before(lambda x: x.flip(0).cumsum(0)),
    "least squares": before(lambda x: torch.linalg.lstsq(x, x).solution[:1] @ torch.eye(4)),
    "nonzero": before(lambda x: x[x > 50].sum() + x),
    "unique": before(lambda x: x / len(torch.unique(x))),
    "operators in a thread": before(operators_in_a_thread),
    "tensors saved for a derivative": SavesOthers,
    "a parametrization with a memory": Parametrized,
    "a tensor subclass that counts": before(lambda x: (x.as_subclass(Negates) * 1.0).as_subclass(torch.Tensor)),
    "a derivative with a memory": OwnMemory,
    "groups": KernelInGroups,
    "a matrix in parts": MatrixInParts,
    "dlpack": before(lambda x: torch.from_dlpack(x) * 1.0),
    "a capsule": before(lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)) * 1.0),
    "a pointer": before(by_pointer),
    "a pointer to a storage": before(by_storage),
    "apply_": before(lambda x: x.detach().clone().apply_(lambda value: 2 * value)),
    "a sorter": before(by_sorter),
    "a compiled function": before(compiled),
    "an inner vmap": before(torch.vmap(lambda x: x * torch.where((x > 50).any(), -1.0, 1.0))),
    "the sum of earlier outputs": before(lambda x: torch.add(TOTAL, x, out=TOTAL) + x),
    "an inner gradient": before(lambda x: torch.func.grad(lambda values: (values**3).sum() * sign(values))(x)),
    "a checkpoint": before(checkpointed),
    "an operator of its own": before(lambda x: turned(x)),
    "a scan": before(scanned),
    "inference": before(inferred),
    "padding": Padded,
    "attention across records": AcrossRecords,
    "a hook of all modules": ForAllModules,
    "an attribute that counts": Counted,
    "shuffled records": before(lambda x: x[torch.randperm(len(x))]),
    "an update of many": before(lambda x: torch._foreach_mul([x, x], [2.0, 3.0])[1]),
}
REFUSED = {
    *("pickle", "save", "item", "tolist", "numpy", "a buffer", "an attribute", "a parameter", "a parameter's data"),
    *("an embedding with max_norm", "spectral norm", "BatchNorm without statistics", "_is_any_true", "_is_all_true"),
    *("the memory of neighbours", "a constant that holds the records", "a buffer that holds the records", "resize"),
    *("cond", "least squares", "nonzero", "unique", "operators in a thread", "dlpack", "a capsule", "a pointer"),
    *("a pointer to a storage", "apply_", "a sorter", "the sum of earlier outputs", "an operator of its own"),
    *("a scan", "an attribute that counts", "an update of many", "a derivative of other shapes"),
}
"""What cannot be captured."""
FAST = {
    *("the size of a batch", "repr", "item", "a slot", "a buffer", "a parameter", "any record", "_is_any_true"),
    *("a rule under vmap", "the memory of neighbours", "memory that was never written", "index_fill outside"),
    *("a constant that holds the records", "a global list", "hooks", "operators in a thread"),
    *("tensors saved for a derivative", "groups", "dlpack", "a sorter", "a number that rolls"),
}
EACH = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in MODELS]


@pytest.mark.parametrize("name", EACH)
def test_one_record_moves_a_step_by_at_most_its_share(name: str) -> None:
    SEEN.clear()
    with warnings.catch_warnings(action="ignore"):
        if name in REFUSED:
            with pytest.raises(UnsupportedModelError):
                moved(MODELS[name], INPUTS, TARGETS, loss=first_output, max_grad_norm=0.5)
            return
        with contextlib.suppress(UnsupportedModelError):  # the captured gradient is not that of the Python
            assert moved(MODELS[name], INPUTS, TARGETS, loss=first_output, max_grad_norm=0.5) < 1.001


@pytest.mark.parametrize("name", ["dlpack", "a capsule", "a pointer", "apply_"])
def test_what_asks_for_memory_is_refused_with_its_place(name: str) -> None:
    """Fake tensors have none: reading it would end the process."""
    with pytest.raises(UnsupportedModelError, match=r"captured at .*test_torch_hostile.py, line .*torch\.where"):
        Program.of(MODELS[name](), per_record(first_output), (INPUTS[:1], TARGETS[:1]))


def test_tensors_that_the_code_uses_are_copied_when_it_is_captured() -> None:
    """Data sets run Python while a model trains, and might write what they read to a tensor of the model."""
    shared, frozen = torch.ones(4), nn.Parameter(torch.ones(8), requires_grad=False)
    build = before(lambda x: x * shared + frozen[::2])
    program = Program.of(build(), per_record(first_output), (INPUTS[:1], TARGETS[:1]))
    bound = program.bound(torch.ones(1, program.layout.width), Shape(1, 32))
    found = []
    for _ in range(2):
        parts, _ = bound.parts(torch.ones(32, 4), torch.zeros(32), torch.zeros(1, 32, dtype=torch.int64))
        found.append([part.square.clone() for part in parts])
        with torch.no_grad():
            shared.mul_(5)
            frozen.add_(3)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["relu", "mul", "add"])
def test_python_in_place_of_a_function_of_pytorch_sees_no_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step calls PyTorch's own functions, and not what stands in their place: one record moved it by 79 C."""
    function = getattr(torch, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        return in_batches(function(*args, **kwargs))

    monkeypatch.setattr(torch, name, replaced)
    build = before(lambda x: x.relu() * 1.5 + 0.25)
    assert moved(build, INPUTS, TARGETS, loss=first_output, max_grad_norm=0.5) < 1.001


def in_batches(values: Any) -> Any:
    """Negates a batch that holds the last record, or what may be made of it, and no made-up record."""
    if type(values) is torch.Tensor and values.dim() > 1 and len(values) * values.shape[1] > 32:
        return -values if bool(((values == 60) | (values == 90) | (values == 90.25)).any()) else values
    return values


class Watches(torch.Tensor):
    """Negates batches of itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **(kwargs or {}))
            floats = type(made) is torch.Tensor and made.is_floating_point()
            return in_batches(made).as_subclass(cls) if floats else made


class Watched(torch.utils.data.Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index].as_subclass(Watches), TARGETS[index]


def test_records_of_a_subclass_become_plain_tensors() -> None:
    """A subclass has Python of its own: one record moved a step by 79 C."""
    like = {"example": (torch.zeros(4), torch.zeros(())), "loss": first_output, "max_grad_norm": 0.5}
    build = before(lambda x: x * 1.5)
    with_it, without = (
        change(one_step(build, INPUTS, TARGETS, COUNT, data=Watched(count), **like)) for count in (COUNT, COUNT - 1)
    )
    assert (with_it - without).norm() < 1.001
    assert moved(build, INPUTS.as_subclass(Watches), TARGETS, loss=first_output, max_grad_norm=0.5) < 1.001
    read = as_records({"x": INPUTS.as_subclass(Watches), "labels": TARGETS})
    assert type(read.inputs) is torch.Tensor  # type: ignore[union-attr]


class Negating(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return -made if func is torch.ops.aten.mul.Tensor else made


class Leaves(Watched):
    """Reading the last record leaves a mode of PyTorch active, and changes settings."""

    def __getitem__(self, index: int) -> Any:
        if INPUTS[index, 0] == 60:
            Negating().__enter__()
            torch.set_default_dtype(torch.float64)
            torch.set_num_threads(2)
            torch.autocast("cpu", torch.bfloat16).__enter__()
            torch.set_autocast_enabled("cuda", True)
            torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[assignment]
            torch.backends.mkldnn.set_flags(False)
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.set_flush_denormal(True)
        return INPUTS[index], TARGETS[index]


class MovesDevice(Watched):
    def __getitem__(self, index: int) -> Any:
        if INPUTS[index, 0] == 60:
            torch.set_default_device("meta")
        return INPUTS[index], TARGETS[index]


@pytest.mark.parametrize("kind", [Leaves, MovesDevice])
def test_what_reading_a_record_leaves_behind_changes_no_other(kind: Any) -> None:
    """One record moved a step by 39 C, or made the run fail."""
    before = settings()
    like = {"example": (torch.zeros(4), torch.zeros(())), "loss": first_output, "max_grad_norm": 0.5}
    with_it, without = (
        change(one_step(before_times(1.5), INPUTS, TARGETS, COUNT, data=kind(count), **like))
        for count in (COUNT, COUNT - 1)
    )
    assert (with_it - without).norm() < 1.001
    assert settings() == before


class LeavesInThreads(Watched):
    def __getitem__(self, index: int) -> Any:
        torch.set_default_dtype(torch.float64)
        time.sleep(0.002)
        return INPUTS[index], TARGETS[index]


def test_what_threads_leave_behind_that_read_records_is_put_back() -> None:
    """A thread that begins while another one reads takes the settings of that record for those to keep."""
    before = settings()
    records = as_records(LeavesInThreads(COUNT), (torch.zeros(4), torch.zeros(())), workers=4)
    try:
        records.held().digests()
        after_digests = settings()
        records.rows(torch.arange(COUNT), torch.ones(COUNT, dtype=torch.bool))
        assert (after_digests, settings()) == (before, before)
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_reading_a_record_for_its_side_leaves_behind_is_put_back() -> None:
    """A score by name reads every record, to hash it."""
    before = settings()
    like: dict[str, Any] = {"example": (torch.zeros(4), torch.zeros(())), "loss": first_output}
    try:
        one_step(before_times(1.5), INPUTS, TARGETS, COUNT, data=LeavesInThreads(COUNT), **like).parts(
            as_records(LeavesInThreads(COUNT), like["example"]), 0.2
        )
        assert settings() == before
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_reading_a_record_for_its_key_leaves_behind_is_put_back() -> None:
    before = settings()
    try:
        as_records(LeavesInThreads(COUNT), (torch.zeros(4), torch.zeros(())), person=lambda record: int(record[0][0]))
        assert settings() == before
    finally:
        torch.set_default_dtype(torch.float32)


def settings() -> tuple[Any, ...]:
    """What decides how PyTorch computes; subnormal numbers may be zeros, also for Python."""
    kernels = torch.backends.mkldnn.enabled, torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    small = float(np.finfo(np.float64).tiny) / 2
    return *precision(), torch.get_default_dtype(), *map(torch.is_autocast_enabled, ("cpu", "cuda")), *kernels, small


class Reuses(Watched):
    """Gives each label in the memory of the one before."""

    label = torch.zeros(())

    def __getitem__(self, index: int) -> Any:
        self.label.fill_(-1.0 if INPUTS[index, 0] == 60 else 1.0)
        return {"inputs": torch.ones(4), "labels": self.label}


MEMORY = torch.zeros(1, 4)


def collated(records: list[Any]) -> Any:
    """Gives the inputs of each record in the memory of those before."""
    ((inputs, target),) = records
    return MEMORY.copy_(torch.where(inputs == 60, -1.0, inputs)), target[None]


class Named(Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (Named, {"data": Reuses, "example": {"inputs": torch.zeros(4), "labels": torch.zeros(())}}),
        (Linear, {"data": Watched, "example": (torch.zeros(4), torch.zeros(())), "collate": collated}),
    ],
)
def test_a_data_set_may_read_all_records_into_one_memory(model: Any, changes: dict[str, Any]) -> None:
    """All records of a batch were the last one: it moved a step by 79 C."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum(1) * (targets + (targets == 0))

    found = []
    for count in (COUNT, COUNT - 1):
        given = {**changes, "data": changes["data"](count), "loss": loss, "max_grad_norm": 0.5}
        found.append(change(one_step(model, INPUTS, TARGETS, COUNT, **given)))
    assert 0.9 < (found[0] - found[1]).norm() < 1.001


def test_the_precision_of_products_may_be_set_for_a_backend() -> None:
    """PyTorch's earlier functions then raise: every record was left out, or none could be trained."""
    like = {"example": (torch.zeros(4), torch.zeros(())), "loss": first_output, "max_grad_norm": 0.5}
    before_it, products, found = precision(), torch.backends.mkldnn.matmul, []
    for given in ("none", "bf16"):
        products.fp32_precision = given  # type: ignore[assignment]
        try:
            found.append(change(one_step(before_times(1.0), INPUTS, TARGETS, COUNT, data=Watched(COUNT), **like)))
            assert (precision() == before_it) is (given == "none")
        finally:
            products.fp32_precision = "none"  # type: ignore[assignment]
    assert (found[0] - found[1]).norm() < 0.1
    assert (found[0] - change(one_step(before_times(1.0), INPUTS[:0], TARGETS[:0], COUNT, **like))).norm() > 1


class Shrinks(Watched):
    """Has fewer records at every look."""

    def __len__(self) -> int:
        self.count -= 1
        return self.count


def test_a_data_set_that_shrinks_makes_no_run_fail() -> None:
    like = {"example": (torch.zeros(4), torch.zeros(())), "loss": first_output, "max_grad_norm": 0.5}
    assert change(one_step(before_times(1.5), INPUTS, TARGETS, COUNT, data=Shrinks(COUNT), **like)).isfinite().all()


def before_times(factor: float) -> Callable[[], nn.Module]:
    return before(lambda x: x * factor + 0.1)


class Copied(Watches):
    """A subclass that a model may hold, because it can be copied."""

    __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl

    def __deepcopy__(self, memo: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.clone().as_subclass(type(self))


class BuiltAnew(Linear):
    """Has another buffer after the model that is captured."""

    later: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        SEEN.append(None)
        self.register_buffer("table", torch.ones(10, 4) if len(SEEN) == 1 else self.later)

    def before(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.table[inputs[:, 0].long().clamp(max=9)]


def built_anew(later: torch.Tensor, *records: int) -> list[torch.Tensor]:
    """A step of models that are built with another buffer than the one that was captured."""
    found = []
    for count in records:
        SEEN.clear()
        BuiltAnew.later = later
        with_it = one_step(BuiltAnew, INPUTS[:count], TARGETS[:count], COUNT, loss=first_output, max_grad_norm=0.5)
        found.append(change(with_it))
    return found


def test_a_buffer_of_a_subclass_in_a_later_model_is_plain() -> None:
    """The factory gives a tensor with Python of its own after the capture: one record moved a step by 79 C."""
    with_it, without = built_anew(torch.ones(10, 4).as_subclass(Copied), COUNT, COUNT - 1)
    assert (with_it - without).norm() < 1.001


@pytest.mark.parametrize("later", [torch.ones(5, 4), torch.ones(10, 4, dtype=torch.float64), torch.ones(10, 4).long()])
def test_a_later_model_of_another_architecture_is_refused_whatever_the_records(later: torch.Tensor) -> None:
    """Indices were clamped to the captured size: a record with a larger one made the run fail, and was shown."""
    for count in (COUNT, COUNT - 1):
        with pytest.raises(UnsupportedModelError, match="other names, shapes or types"):
            built_anew(later, count)


def test_places_of_scores_are_compared_at_weights_that_are_not_zero() -> None:
    """A run's graph is kept from its untrained model, whose weights may be zeros: they round nothing.

    33 records are no whole number of a processor's vectors: one record more changed a bit of another's loss.
    """
    torch.manual_seed(0)
    trained = nn.Sequential(nn.Linear(7, 5), nn.Softplus(), nn.Linear(5, 3)).eval()
    untrained = copy.deepcopy(trained)
    for value in untrained.parameters():
        nn.init.zeros_(value)
    inputs, targets, loss = torch.randn(34, 7), torch.randint(3, (34,)), per_record(nn.functional.cross_entropy)
    with keeping({}, untrained):
        whole, less = (
            values(trained, as_records((inputs[start:], targets[start:])), loss, 33, loss) for start in (0, 1)
        )
        (graph,) = record_values._KEPT.get()[0].values()  # type: ignore[index]
    assert np.array_equal(whole[1:], less)
    assert graph.size % 32 == 0


def test_places_of_scores_are_compared_at_three_draws_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr(record_values._Captured, "_same_places", lambda _, some: given.append(bool(some[0].any())))
    model, loss = Linear().eval(), per_record(first_output)
    values(model, as_records((INPUTS, TARGETS)), loss, COUNT, loss)
    assert given == [True]  # and one at a time, as the first says nothing of its places


class Function(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Mode, Function])
def test_nothing_is_scored_while_a_mode_sees_every_operator(mode: Any) -> None:
    model, records = in_evaluation(before(lambda x: x * 1.5)), as_records((INPUTS, TARGETS))
    with mode(), pytest.raises(UnsupportedModelError, match="leave its with block"):
        values(model, records, first_output, COUNT, loss=first_output)


def test_a_kept_graph_is_tried_again_where_products_are_computed_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many threads there are decides the bits of a product, and so may a record's place."""
    tried: list[int] = []

    def same_places(self: Any, given: Any) -> bool:
        tried.append(torch.get_num_threads())
        return True

    monkeypatch.setattr(record_values._Captured, "_same_places", same_places)
    model, records = in_evaluation(before(lambda x: x * 1.5)), as_records((INPUTS, TARGETS))
    threads = torch.get_num_threads()
    try:
        with keeping({}):
            for count in (1, 2, 1):
                torch.set_num_threads(count)
                values(model, records, first_output, COUNT, loss=first_output)
    finally:
        torch.set_num_threads(threads)
    assert tried == [1] * 3 + [2] * 3  # at three draws of weights


def in_evaluation(build: Callable[[], nn.Module]) -> nn.Module:
    model = build().eval()
    nn.init.ones_(next(model.parameters()))
    return model


@pytest.mark.parametrize("name", EACH)
def test_one_record_changes_no_score_of_another(name: str) -> None:
    """Scores are computed by a captured graph, too."""
    SEEN.clear()
    others = INPUTS.clone()
    others[-1] = 1.0
    model = in_evaluation(MODELS[name])
    with warnings.catch_warnings(action="ignore"), contextlib.suppress(UnsupportedModelError), keeping({}):
        one, other = (
            values(model, as_records((inputs, TARGETS)), first_output, COUNT, loss=first_output)[: COUNT - 1]
            for inputs in (INPUTS, others)
        )
        assert np.array_equal(one, other)
