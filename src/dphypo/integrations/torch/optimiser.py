"""One of PyTorch's optimisers as a function of made-up gradients, for the rehearsal of a transfer rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dphypo.integrations.torch import hyperparameters
from dphypo.mechanisms import transfer


@dataclass(frozen=True)
class TorchOptimiser:
    """The optimiser that hyperparameters name, with a learning-rate schedule; :class:`DPSGD` rehearses it.

    >>> import numpy as np
    >>> adam = TorchOptimiser()
    >>> adam.memories({"optimizer": "adam"})
    {'betas': (0.9, 0.999)}
    >>> adam.walk({"optimizer": "sgd", "learning_rate": 0.5}, [np.ones(2), np.ones(2)], 2)
    array([-1., -1.])
    """

    schedule: Callable[[float], float] | None = None

    def memories(self, params: Mapping[str, Any]) -> Mapping[str, float | tuple[float, ...]]:
        return hyperparameters.memories(params["optimizer"], params)

    def walk(self, params: Mapping[str, Any], gradients: Iterable[transfer.Floats], steps: int) -> transfer.Floats:
        weights: torch.nn.Parameter | None = None
        for number, gradient in enumerate(gradients):
            if weights is None:
                weights = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
                options = {name: value for name, value in params.items() if name in hyperparameters.option_names()}
                optimizer = hyperparameters.build(params["optimizer"], [weights], params["learning_rate"], options)
            weights.grad = torch.from_numpy(gradient)
            if self.schedule is not None:
                for group in optimizer.param_groups:
                    group["lr"] = params["learning_rate"] * self.schedule(number / steps)
            optimizer.step()
        assert weights is not None  # a run has at least one step
        return weights.detach().numpy()
