"""How far noise in the weights of a network moves what its layers put out, rehearsed on made-up records: public.

Noise of standard deviation c in every weight moves the outputs of a linear layer by c·‖inputs − their mean‖. The layer
that moves most bounds the learning rate (:mod:`dphypo.search.rates`). The inputs of a network have a scale that is
declared or bought; those of its other layers follow from it, from the untrained weights and from the noise itself.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from dphypo.torch import engine
from dphypo.torch.engine.batches import Batch

_RECORDS = 32
_STEP = 1e-3


def synthetic_inputs(example: Batch, scale: float | None) -> torch.Tensor:
    """Made-up inputs of this scale, normal and about zero; without one, or if they are tokens, as they come."""
    inputs = engine.synthetic_records(example, _RECORDS)[0]
    if scale is None or not inputs.dtype.is_floating_point:
        return inputs
    return torch.randn_like(inputs) * (scale / math.sqrt(max(1, math.prod(inputs.shape[1:]))))


@torch.no_grad()
def movement(model: nn.Module, call: Callable[[torch.Tensor], Any], inputs: torch.Tensor, noise: float) -> float:
    """By how much ``noise`` in all trained weights moves the outputs of the layer that it moves most.

    >>> one = nn.Linear(100, 5)
    >>> records = 3 * torch.nn.functional.normalize(torch.randn(4096, 100))
    >>> 1.3 < movement(one, one, records, noise=0.5) < 1.7
    True
    """
    found = [0.0]

    def measure(layer: nn.Module, given: tuple[Any, ...], outputs: Any) -> None:
        weights = _weights(layer)
        if not weights or not isinstance(outputs, torch.Tensor) or not outputs.dtype.is_floating_point:
            return
        with contextlib.suppress(TypeError), _shaken(weights, _STEP):  # a layer may take more than these arguments
            moved = (type(layer).forward(layer, *given) - outputs).double()
            found.append(noise / _STEP * float((moved - moved.mean(0)).square().mean().sqrt()))

    every = [weight for layer in model.modules() for weight in _weights(layer)]
    handles = [layer.register_forward_hook(measure) for layer in model.modules()]
    try:
        with _shaken(every, noise):
            call(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return max(found) if all(map(math.isfinite, found)) else math.inf


def _weights(layer: nn.Module) -> list[nn.Parameter]:
    return [one for one in layer.parameters(recurse=False) if one.requires_grad and one.dim() > 1]


@contextlib.contextmanager
def _shaken(weights: list[nn.Parameter], noise: float) -> Iterator[None]:
    """Inside, the weights have noise."""
    kept = [one.clone() for one in weights]
    try:
        for one in weights:
            one.add_(torch.randn_like(one), alpha=noise)
        yield
    finally:
        for one, before in zip(weights, kept, strict=True):
            one.copy_(before)
