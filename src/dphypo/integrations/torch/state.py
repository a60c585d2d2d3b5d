"""What a model keeps: nothing that records taught it without noise, and nothing that another run has learnt.

What a forward pass writes (running statistics; rows that ``nn.Embedding(max_norm=...)`` renormalises) is learnt from
records without noise. So everything the model reaches (``reach.py``) is compared before and after, to the bit, and in
training every write to a parameter inside a forward pass is noticed.

Factories often return, or build upon, a model that was loaded once. Trained in place, its weights would carry what one
run has learnt into the next, unaccounted for. So a run trains a copy whose tensors are its own, and after the run the
factory must still give what it gave before.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dphypo.errors import UnfitModelError
from dphypo.integrations.torch.reach import leaves


@dataclass(frozen=True, repr=False)
class Snapshot:
    """Copies of all tensors, arrays and plain values that a model and its loss reach, by their names."""

    values: Sequence[tuple[str, Any]]
    trained: frozenset[int]

    @classmethod
    def of(cls, *roots: object, trained: Iterable[torch.Tensor] = ()) -> Snapshot:
        """A snapshot; ``trained`` are parameters that a step of the optimiser changes, which are left out."""

        def copied(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.detach().clone()
            return value.copy() if isinstance(value, np.ndarray) else value

        left_out = frozenset(map(id, trained))
        return cls([(name, copied(value)) for name, value in leaves(roots, left_out)], left_out)

    def changed(self, *roots: object) -> str | None:
        """The name of something that is no longer what it was; None if all is."""
        known, found = {name for name, _ in self.values}, leaves(roots, self.trained)
        for (name, value), (now, other) in itertools.zip_longest(self.values, found, fillvalue=("", None)):
            if name != now:
                return name if now in known or not now else now
            if not _same(value, other):
                return name
        return None

    def refuse_changes(self, *roots: object) -> None:
        """:class:`UnfitModelError` if something changed."""
        if (name := self.changed(*roots)) is not None:
            raise UnfitModelError(
                f"{name!r} of the model changes when records go through it, without noise. Use layers without running "
                "statistics (GroupNorm, LayerNorm) and without max_norm, create what the forward pass needs in "
                "__init__, and keep nothing of a batch"
            )


@contextlib.contextmanager
def unchanged(*roots: object) -> Iterator[None]:
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

    def enter(module: nn.Module, inputs: object) -> None:
        before[:] = versions()

    def leave(module: nn.Module, inputs: object, outputs: object) -> None:
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


def _same(this: object, that: object) -> bool:
    """Whether two values have the same type, shape and bits."""
    if isinstance(this, torch.Tensor) and isinstance(that, torch.Tensor):
        return this.dtype == that.dtype and this.shape == that.shape and torch.equal(_bits(this), _bits(that))
    if isinstance(this, np.ndarray) and isinstance(that, np.ndarray):
        return this.dtype == that.dtype and this.shape == that.shape and this.tobytes() == that.tobytes()
    return type(this) is type(that) and (this == that or this != this)


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)


ARGUMENTS = "dphypo_arguments"

_REMEDY = "Build the model from its arguments alone, and copy what was loaded: model=lambda: copy.deepcopy(backbone)"


def build(factory: Callable[..., nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """The model of a factory, in tensors that nothing else has.

    >>> net = nn.Linear(2, 1)
    >>> model = build(lambda: net, {})
    >>> torch.equal(model.weight, net.weight), model.weight is net.weight
    (True, False)
    """
    given = factory(**arguments)
    if not isinstance(given, nn.Module):
        raise TypeError(f"the model's factory returns a {type(given).__name__}: it must return a torch.nn.Module")
    try:
        model = copy.deepcopy(given)
    except Exception as error:
        raise UnfitModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}): keep in it only what copy.deepcopy can "
            "copy, and detach() tensors that were computed"
        ) from error
    theirs = {tensor.untyped_storage().data_ptr() for _, tensor in _tensors(given)}
    for name, tensor in _tensors(model):
        if tensor.untyped_storage().data_ptr() in theirs:
            raise UnfitModelError(
                f"{name!r} of the model stays shared when the model is copied: one run would go on where another "
                f"ended. {_REMEDY}, and do not share tensors in __deepcopy__"
            )
    remember(model, arguments)
    return model


def remember(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Note on a model the arguments its factory was called with."""
    object.__setattr__(model, ARGUMENTS, dict(arguments))


def fingerprint(model: nn.Module) -> bytes:
    """A hash of all weights and buffers."""
    found = hashlib.sha256()
    for name, tensor in _tensors(model):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        found.update(_bits(tensor).numpy().tobytes())
    return found.digest()


def refuse_other_weights(before: bytes, model: nn.Module) -> None:
    """:class:`UnfitModelError` if a factory does not give the weights any more that it gave before a run."""
    if fingerprint(model) != before:
        raise UnfitModelError(
            f"the model's factory gives other weights after the run than before it, from the same seed: the run or its "
            f"score wrote to what the factory reads, or the factory has a random generator of its own. {_REMEDY}"
        )


def start_from(model: nn.Module, start: nn.Module | None) -> None:
    """Give a model the weights of another, if there is one and they fit: names and shapes are public."""
    given, own = {} if start is None else start.state_dict(), model.state_dict()
    if [(name, value.shape) for name, value in given.items()] == [(name, value.shape) for name, value in own.items()]:
        model.load_state_dict(given)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights and buffers that have memory of their own."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided and tensor.numel():
            yield name, tensor
