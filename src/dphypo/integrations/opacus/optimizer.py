"""Which of PyTorch's optimisers takes the noisy gradients, and which hyperparameters are its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

# They need the loss more than once a step (LBFGS) or gradients of another kind (SparseAdam, Muon's matrices).
_UNSUITABLE = {"LBFGS", "SparseAdam", "Muon", "Optimizer"}


@functools.cache
def _optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    return {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and name not in _UNSUITABLE
    }


def _takes(optimizer: type[torch.optim.Optimizer]) -> set[str]:
    return set(inspect.signature(optimizer).parameters) - {"params", "lr"}


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser takes: "momentum", "weight_decay", "betas" and so on.

    >>> {"momentum", "weight_decay", "nesterov"} <= option_names()
    True
    """
    return frozenset(name for optimizer in _optimizers().values() for name in _takes(optimizer))


def build(
    name: str, parameters: Iterable[torch.nn.Parameter], learning_rate: float, options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """The named optimiser; options that it does not take are left out, so that optimisers can be compared in one space.

    >>> build("sgd", [torch.nn.Parameter(torch.zeros(1))], 0.1, {"momentum": 0.9, "betas": (0.9, 0.99)}).defaults["lr"]
    0.1
    """
    known = _optimizers()
    if name.lower() not in known:
        raise ValueError(f"optimizer = {name!r} is not known: give one of {', '.join(sorted(known))}")
    optimizer: Any = known[name.lower()]
    taken = {key: value for key, value in options.items() if key in _takes(optimizer)}
    return optimizer(list(parameters), lr=learning_rate, **taken)  # type: ignore[no-any-return]
