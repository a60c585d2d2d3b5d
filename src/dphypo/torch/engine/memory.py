"""Estimates how much memory a step needs, by executing it on tensors without values.

A fake tensor has a shape and a type, and no numbers. A pass over a piece of records is executed on fake tensors, and
the bytes of those that are alive at the same time are counted. The estimate does not include what kernels allocate
internally, and what the allocator rounds up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import layers
from dphypo.torch.engine.clipped_sum import Shape, Sums, Weights, add_clipped
from dphypo.torch.engine.device import process_lock
from dphypo.torch.engine.program import Pass, Program
from dphypo.training.poisson_draws import MULTIPLE
from dphypo.training.sum_on_grid import SumGrid

_COPIES, _FEWEST = 7, 2  # of a trained parameter: model, row, mean, up to three of the optimiser, the architecture's
_SUMS = 8  # bytes of a sum in double precision, and of a sum over several pieces as an integer
_ROOM = 1.5  # the piece that an error proposes may need this many times the estimate
_GROUP = Path("/sys/fs/cgroup")


class Alive(TorchDispatchMode):
    """Counts the bytes of new tensors that are alive, apart from known ones: now, and at most."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.most = 0, 0
        self._known = weakref.WeakSet([one.untyped_storage() for one in known])

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        made = function(*arguments, **(named or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor) and (storage := one.untyped_storage()) not in self._known:
                self._known.add(storage)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage.nbytes())
        self.most = max(self.most, self.now)
        return made

    def _gone(self, size: int) -> None:
        self.now -= size


@contextlib.contextmanager
def _one_way() -> Iterator[None]:
    """A block with plain products: to choose a way of a product needs numbers. No other thread trains meanwhile."""
    with process_lock():
        kept = layers._way, layers.steady
        layers._way, layers.steady = lambda *_: torch.mm, lambda *_: True  # type: ignore[assignment]
        try:
            yield
        finally:
            layers._way, layers.steady = kept


def of_piece(program: Program, shape: Shape) -> int:
    """The most bytes that are alive while a piece of this shape is differentiated, clipped and added up."""
    layout, device = program.layout, next(program.model.parameters()).device
    program = dataclasses.replace(program, flat={})  # graphs keep the ways of their products
    rows = torch.empty((shape.runs, layout.width), dtype=layout.dtype, device=device)
    held = program.bound(rows, shape).held  # makes the graph, which fake tensors would prevent
    grid = SumGrid.of(noise_multiplier=1.0, max_grad_norm=1.0, size=layout.size, terms=1, largest_batch=1)
    weights = Weights([grid] * shape.runs, normalise=False, device=device)
    batch = [part[:1].expand(shape.rows, *part.shape[1:]) for part in program.example]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), _one_way():
        held = [mode.from_tensor(one) for one in held]
        rows = mode.from_tensor(rows)
        sums = Sums(rows)
        inputs, targets = (mode.from_tensor(one).clone() for one in batch)
        keys = torch.zeros((shape.runs, shape.records * shape.views), dtype=torch.int64, device=device)
        valid = torch.ones((shape.runs, shape.records), dtype=torch.bool, device=device)
        bound = Pass(program, rows, shape, held)
        with Alive(sums.rows, rows, *held) as alive:
            parts, _ = bound.parts(inputs, targets, keys)
            add_clipped(parts, valid, weights, sums)
    return int(alive.most)


def free(device: torch.device) -> int:
    """The bytes that this process may still use on a device; on a CPU, within the limits of its control group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")] or found
    with contextlib.suppress(OSError, ValueError):  # "max" is no limit
        limit, used = ((_GROUP / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
        found.append(int(limit) - int(used))
    return max(0, min(found))


def of_parameters(program: Program, *, least: bool = False) -> int:
    """The bytes for the trained parameters of a run: at most, or ``least``, with SGD, one piece and no average."""
    copies, sums = (_FEWEST, _SUMS) if least else (_COPIES, 2 * _SUMS)
    return program.layout.width * (copies * program.layout.dtype.itemsize + sums)


def rough(program: Program, shape: Shape) -> int:
    """About how many bytes a group needs, without executing it: 48 for each number that the layers process."""
    return shape.runs * of_parameters(program) + shape.rows * program.elements * 48


def needed(program: Program, size: int, *, least: bool = False) -> int:
    """The bytes that a run needs with pieces of ``size`` records, apart from the weights that it does not train."""
    way = dataclasses.replace(program, alone=size < MULTIPLE)
    return of_parameters(program, least=least) + of_piece(way, Shape(1, size, program.views))


def largest_piece(program: Program, available: float, size: int) -> int:
    """The size of a piece, at most ``size``, that fits into these bytes; 1 if only single records fit, 0 if none does.

    The need of a piece is the maximum of several sums that grow with its size, so it is below a line between two sizes.
    """
    few, most = needed(program, MULTIPLE), needed(program, max(size, 2 * MULTIPLE))
    if few <= available:
        each = max(1.0, (most - few) / (max(size, 2 * MULTIPLE) - MULTIPLE))
        return min(size, MULTIPLE * (1 + int((available - few) / (MULTIPLE * each))))
    return int(needed(program, 1) <= available)


def refuse_larger(program: Program, size: int) -> None:
    """Refuse pieces that cannot fit into the free memory of the device; the error proposes a size that fits.

    The estimate is a lower bound: it leaves out what kernels and allocators take, and what depends on the optimiser.
    The proposed size has room for any optimiser, and leaves a third of the memory to kernels and allocators.
    """
    device = next(program.model.parameters()).device
    available = free(device)
    if 4 * rough(program, Shape(1, size, program.views)) < available:
        return
    if (least := needed(program, size, least=True)) <= available:
        return
    fits = largest_piece(program, available / _ROOM, size)
    remedy = f"give physical_batch_size={fits}, which processes a batch in pieces"
    if fits == 1:
        remedy += ", here record by record, which is slow; or train fewer parameters, such as a LoRA adapter of peft"
    if fits == 0:
        remedy = (
            "not even a single record would fit. Train fewer parameters, such as a LoRA adapter of peft, or a smaller "
            "model, shorten the records, or use a device with more memory"
        )
    raise UnsupportedModelError(
        f"a step needs at least {least / 1e9:.1f} GB for pieces of {size} records and "
        f"{program.layout.size} trained parameters, and {device} has {available / 1e9:.1f} GB free: {remedy}"
    )
