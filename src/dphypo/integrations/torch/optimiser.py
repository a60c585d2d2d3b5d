"""One of PyTorch's optimisers as a function of made-up gradients, for the rehearsal of a transfer rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from dphypo.dpsgd import Setting
from dphypo.integrations.torch import hyperparameters
from dphypo.mechanisms import transfer


def walk(
    params: Mapping[str, Any],
    gradients: Iterable[transfer.Floats],
    steps: int,
    schedule: Callable[[float], float] | None = None,
) -> transfer.Floats:
    """The weights after ``steps`` gradients by the optimiser that hyperparameters name, averaged if they say so.

    >>> import numpy as np
    >>> walk({"optimizer": "sgd", "learning_rate": 0.5}, [np.ones(2), np.ones(2)], 2)
    array([-1., -1.])
    """
    weights = mean = torch.zeros(0)
    setting = Setting(average=params.get("average"))
    for number, gradient in enumerate(gradients):
        if number == 0:
            weights = mean = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
            options = {name: value for name, value in params.items() if name in hyperparameters.option_names()}
            optimizer = hyperparameters.build(params["optimizer"], [weights], params["learning_rate"], options)
        weights.grad = torch.from_numpy(gradient)
        if schedule is not None:
            for group in optimizer.param_groups:
                group["lr"] = params["learning_rate"] * schedule(number / steps)
        optimizer.step()
        if setting.average is not None:
            mean = mean.detach().lerp(weights.detach(), setting.share(number, steps))
    return mean.detach().numpy()
