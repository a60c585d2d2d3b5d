"""A new model for every run: what the factory gives is copied, so that no run goes on where another one ended.

Factories often return, or build upon, a model that was loaded once. Trained in place, its weights would carry what one
run has learnt into the next, unaccounted for. So a run trains a copy whose tensors are its own, and after the run the
factory must still give what it gave before.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from dphypo.errors import UnfitModelError

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
            f"the model cannot be copied ({type(error).__name__}: {error}), and a run must not train weights that "
            f"others can reach. Keep in it only what copy.deepcopy can copy: detach() tensors that were computed"
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
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.digest()


def refuse_changes(before: bytes, model: nn.Module) -> None:
    """:class:`UnfitModelError` if a factory does not give the weights any more that it gave before a run."""
    if fingerprint(model) != before:
        raise UnfitModelError(
            f"the model's factory gives other weights after the run than before it, from the same seed: the run or its "
            f"score wrote to what the factory reads, or the factory has a random generator of its own. {_REMEDY}"
        )


def start_from(model: nn.Module, start: nn.Module | None) -> None:
    """Give a model the weights of another, if there is one and they fit: names and shapes are public.

    >>> model, start = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> start_from(model, start)
    >>> torch.equal(model.weight, start.weight)
    True
    """
    if start is None:
        return
    given = start.state_dict()
    shapes = [[(name, value.shape) for name, value in state.items()] for state in (given, model.state_dict())]
    if shapes[0] == shapes[1]:
        model.load_state_dict(given)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights and buffers that have memory of their own."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided and tensor.numel():
            yield name, tensor
