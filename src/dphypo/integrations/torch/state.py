"""What a model keeps between forward passes: it must not change while records go through.

DP-SGD adds noise to gradients and to nothing else. Whatever a forward pass writes (running statistics in a buffer, in a
parameter without a gradient or in a list; rows that ``nn.Embedding(max_norm=...)`` renormalises) is learnt from records
without noise. So everything the model reaches (``reach.py``) is compared before and after, to the bit, and in training
every write to a parameter inside a forward pass is noticed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.errors import UnfitModelError
from dphypo.integrations.torch.reach import leaves


@dataclass(frozen=True, repr=False)
class Snapshot:
    """Copies of all tensors, arrays and plain values that a model and its loss reach, by their names.

    >>> model = nn.Linear(2, 2); before = Snapshot.of(model)
    >>> model.seen = 3
    >>> before.changed(model)
    'seen'
    """

    values: Sequence[tuple[str, Any]]
    trained: frozenset[int]

    @classmethod
    def of(cls, *roots: Any, trained: Iterable[torch.Tensor] = ()) -> Snapshot:
        """A snapshot; ``trained`` are parameters that a step of the optimiser changes, which are left out."""
        left_out = frozenset(map(id, trained))
        return cls([(name, _copy(value)) for name, value in leaves(roots, left_out)], left_out)

    def changed(self, *roots: Any) -> str | None:
        """The name of something that is no longer what it was; None if all is."""
        known, found = {name for name, _ in self.values}, leaves(roots, self.trained)
        for (name, value), (now, other) in itertools.zip_longest(self.values, found, fillvalue=("", None)):
            if name != now:
                return name if now in known or not now else now
            if not _same(value, other):
                return name
        return None

    def refuse_changes(self, *roots: Any) -> None:
        """:class:`UnfitModelError` if something changed."""
        if (name := self.changed(*roots)) is not None:
            raise UnfitModelError(
                f"{name!r} of the model changes when records go through it: what it learns from them would be used or "
                f"released without noise. Use layers without running statistics (GroupNorm, LayerNorm) and without "
                f"max_norm, create what the forward pass needs in __init__, and keep nothing of a batch"
            )


@contextlib.contextmanager
def unchanged(*roots: Any) -> Iterator[None]:
    """:class:`UnfitModelError` if what happens inside changes anything that is reached."""
    before = Snapshot.of(*roots)
    yield
    before.refuse_changes(*roots)


@contextlib.contextmanager
def no_writes_in_forward(model: nn.Module) -> Iterator[None]:
    """Notice a forward pass that writes to a parameter or a buffer in place, on whatever records it does so."""
    before: list[int] = []

    def versions() -> list[int]:
        return [tensor._version for tensor in (*model.parameters(), *model.buffers())]

    def enter(module: nn.Module, inputs: Any) -> None:
        before[:] = versions()

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if before != versions():
            raise UnfitModelError(
                "the model's forward pass writes to its own parameters or buffers: what it learns there from records "
                "gets no noise. Make the forward pass a function of the parameters and one batch"
            )

    hooks = model.register_forward_pre_hook(enter), model.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _same(this: Any, that: Any) -> bool:
    """Whether two values have the same type, shape and bits."""
    if isinstance(this, torch.Tensor) and isinstance(that, torch.Tensor):
        return this.dtype == that.dtype and this.shape == that.shape and torch.equal(_bits(this), _bits(that))
    if isinstance(this, np.ndarray) and isinstance(that, np.ndarray):
        return this.dtype == that.dtype and this.shape == that.shape and this.tobytes() == that.tobytes()
    return type(this) is type(that) and (this == that or this != this)


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)
