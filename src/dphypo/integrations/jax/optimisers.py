"""optax's optimisers by name, or a function that gives one: they see noisy gradients alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from dphypo import _validate, dpsgd
from dphypo.mechanisms import transfer

Optimizer = str | Callable[..., optax.GradientTransformation]

# They need the loss, or add noise of their own, or are a part of another one.
_UNSUITABLE = {"lbfgs", "noisy_sgd", "scale_by_learning_rate", "scale_by_rprop"}


@functools.cache
def known() -> dict[str, Callable[..., optax.GradientTransformation]]:
    """optax's optimisers that take a learning rate, by name."""
    found = {name: value for name, value in vars(optax).items() if inspect.isfunction(value)}
    return {
        name: value
        for name, value in found.items()
        if name not in _UNSUITABLE and not name.startswith("_") and "learning_rate" in names_of(value)
    }


def names_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)


def read(optimizer: Any, argument: str = "optimizer") -> Callable[..., optax.GradientTransformation]:
    """The function that builds an optimiser from its learning rate and options; an error names what is not one."""
    if callable(optimizer) and "learning_rate" in names_of(optimizer):
        found: Callable[..., optax.GradientTransformation] = optimizer
        return found
    if isinstance(optimizer, str) and optimizer in known():
        return known()[optimizer]
    remedy = f"give one of {', '.join(sorted(known()))}, or a function of learning_rate that returns an optax optimiser"
    raise _validate.fail(argument, optimizer, remedy)


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser of optax takes."""
    return frozenset(name for one in known().values() for name in names_of(one)) - {"learning_rate"}


def options(optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the optimiser takes; other options are left out, so that optimisers can be compared in one space."""
    takes = set(names_of(read(optimizer))) - {"learning_rate"}
    return {name: value for name, value in given.items() if name in takes}


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Options that choose the program, and those that are numbers in it."""
    numbers = {name: value for name, value in options.items() if isinstance(value, float)}
    return {name: value for name, value in options.items() if name not in numbers}, numbers


def walk(
    params: Mapping[str, Any],
    gradients: Any,
    steps: int,
    schedule: Callable[[float], float] | None = None,
) -> transfer.Floats:
    """The weights after made-up gradients, for the rehearsal of a transfer rule (:class:`NoiseRehearsal`)."""
    factory, taken = read(params["optimizer"]), options(params["optimizer"], params)
    setting = dpsgd.Setting(average=params.get("average"))

    @jax.jit
    def move(weights: Any, state: Any, mean: Any, gradient: Any, rate: Any, share: Any) -> Any:
        updates, state = factory(learning_rate=rate, **taken).update(gradient, state, weights)
        weights = optax.apply_updates(weights, updates)
        return weights, state, mean + (weights - mean) * share

    weights = state = mean = None
    for number, gradient in enumerate(gradients):
        gradient = np.asarray(gradient, dtype=np.float32)
        if number == 0:
            weights = mean = jax.numpy.zeros_like(gradient)
            state = factory(learning_rate=0.0, **taken).init(weights)
        rate = np.float32(params["learning_rate"] * (1.0 if schedule is None else schedule(number / steps)))
        share = np.float32(1.0 if setting.average is None else setting.share(number, steps))
        weights, state, mean = move(weights, state, mean, gradient, rate, share)
    return np.asarray(mean, dtype=np.float64)
