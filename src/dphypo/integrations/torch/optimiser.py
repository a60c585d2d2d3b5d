"""The optimisers of the engine as functions of made-up gradients, for the rehearsal of a transfer rule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from dphypo.dpsgd import Setting, optimisers
from dphypo.dpsgd.stack import Layout
from dphypo.integrations.torch import hyperparameters
from dphypo.mechanisms import DpSgd, transfer

Schedule = Callable[[float], float]
_PROPORTIONAL = ("sgd", "adam", "rmsprop", "adagrad")  # to the learning rate, where weights do not decay


def walk(
    params: Mapping[str, Any], gradients: Iterable[transfer.Floats], steps: int, schedule: Schedule | None = None
) -> transfer.Floats:
    """The weights after ``steps`` gradients by the optimiser that hyperparameters name, averaged if they say so.

    >>> import numpy as np
    >>> walk({"optimizer": "sgd", "learning_rate": 0.5}, [np.ones(2), np.ones(2)], 2)
    array([-1., -1.])
    """
    weights = mean = rates = torch.zeros(1, 0, dtype=torch.float64)
    setting = Setting(average=params.get("average"))
    for number, gradient in enumerate(gradients):
        given = torch.from_numpy(gradient)[None]
        if number == 0:
            weights, rates = torch.zeros_like(given), torch.full((1, 1), params["learning_rate"], dtype=given.dtype)
            layout = Layout(("weights",), (given[0].shape,), given.dtype)
            optimiser = optimisers.build(params["optimizer"], weights, [_options(params)], layout)
            mean = weights if setting.average is None else weights.clone()
        factor = 1.0 if schedule is None else schedule(number / steps)
        optimiser.step(weights, given, rates * factor)
        if setting.average is not None:
            mean.lerp_(weights, setting.share(number, steps))
    return mean[0].numpy()


def rehearsal(
    params: Mapping[str, Any], fraction: float, *, run: DpSgd, deviation: float, schedule: Schedule | None = None
) -> Mapping[str, Any]:
    """The hyperparameters of a short run by a :class:`NoiseRehearsal` of the full run.

    Where steps are proportional to the learning rate, so is that of the short run: one rehearsal serves all of them.
    """
    name, options = str(params["optimizer"]).lower(), _options(params)
    if name not in _PROPORTIONAL or options.get("weight_decay"):
        rule = transfer.NoiseRehearsal(functools.partial(walk, schedule=schedule), run, deviation)
        return rule(params, fraction)
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    given = (name, params.get("average"), *sorted(kept.items()))
    ratio = _ratio(given, fraction, run, 1.0 if name == "sgd" else deviation, schedule)
    return {**params, "learning_rate": params["learning_rate"] * ratio}


@functools.lru_cache(maxsize=256)
def _ratio(given: tuple[Any, ...], fraction: float, run: DpSgd, deviation: float, schedule: Schedule | None) -> float:
    """The learning rate of the short run over that of the full one."""
    name, average, *options = given
    rule = transfer.NoiseRehearsal(functools.partial(walk, schedule=schedule), run, deviation)
    params = {"optimizer": name, "average": average, **dict(options), "learning_rate": 1.0}
    return float(rule(params, fraction)["learning_rate"])


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name in hyperparameters.option_names()}
