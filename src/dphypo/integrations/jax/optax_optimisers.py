"""optax's optimisers by name, or a function that returns one. They read noisy gradients only."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
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
    public = {name: one for name, one in vars(optax).items() if name[0] != "_" and name not in _UNSUITABLE}
    return {name: one for name, one in public.items() if inspect.isfunction(one) and "learning_rate" in names_of(one)}


def names_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)


def read(optimizer: Any, argument: str = "optimizer") -> Callable[..., optax.GradientTransformation]:
    """The function that builds an optimiser from its learning rate and options; an error if there is none."""
    if callable(optimizer) and "learning_rate" in names_of(optimizer):
        return cast(Callable[..., optax.GradientTransformation], optimizer)
    if isinstance(optimizer, str) and optimizer in known():
        return known()[optimizer]
    remedy = f"give one of {', '.join(sorted(known()))}, or a function of learning_rate that returns an optax optimiser"
    raise _validate.fail(argument, optimizer, remedy)


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser of optax takes."""
    return frozenset(name for one in known().values() for name in names_of(one)) - {"learning_rate"}


def options(optimizer: Optimizer, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the optimiser has; others are dropped, so that one space can compare optimisers."""
    takes = set(names_of(read(optimizer))) - {"learning_rate"}
    return {name: value for name, value in given.items() if name in takes}


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Options that choose the program, and those that are numbers in it."""
    numbers = {name: value for name, value in options.items() if isinstance(value, float)}
    return {name: value for name, value in options.items() if name not in numbers}, numbers


class Stepper:
    """One of optax's optimisers on rows, each with its learning rate and options; ``tree`` makes arrays of a row."""

    def __init__(self, tree: Callable[[Any], Any], factory: Callable[..., Any], static: Mapping[str, Any]) -> None:
        def start(row: Any, numbers: Mapping[str, Any]) -> Any:
            return factory(learning_rate=0.0, **static, **numbers).init(tree(row))

        def step(row: Any, state: Any, mean: Any, gradient: Any, rate: Any, numbers: Any, share: Any) -> Any:
            transform = factory(learning_rate=rate, **static, **numbers)
            updates, state = transform.update(tree(gradient.astype(row.dtype)), state, tree(row))
            moved = jax.tree.leaves(optax.apply_updates(tree(row), updates))
            row = jnp.concatenate([leaf.reshape(-1) for leaf in moved])
            return row, state, mean + (row - mean) * share

        self.start = jax.jit(jax.vmap(start))
        self.step = jax.jit(jax.vmap(step, (0, 0, 0, 0, 0, 0, None)))


def walk(
    params: Mapping[str, Any], gradients: Any, steps: int, schedule: Callable[[float], float] | None = None
) -> transfer.Floats:
    """The weights after made-up gradients, for the rehearsal of a transfer rule (:class:`NoiseRehearsal`)."""
    stepper = Stepper(lambda row: row, read(params["optimizer"]), options(params["optimizer"], params))
    setting, rows = dpsgd.Setting(average=params.get("average")), None
    for number, gradient in enumerate(gradients):
        given = np.asarray(gradient, dtype=np.float32)[None]
        if rows is None:
            rows = mean = jnp.zeros_like(given)
            state = stepper.start(rows, {})
        rate = params["learning_rate"] * (1.0 if schedule is None else schedule(number / steps))
        share = np.float32(setting.share(number, steps))
        rows, state, mean = stepper.step(rows, state, mean, given, np.full(1, rate, np.float32), {}, share)
    return np.asarray(mean[0], dtype=np.float64)
