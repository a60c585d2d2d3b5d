"""Who takes which hyperparameter: DP-SGD itself, one of PyTorch's optimisers, or the model's factory."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from dphypo import _validate
from dphypo.dpsgd.optimisers import known
from dphypo.space import Space
from dphypo.space.dimension import Finite

# Hyperparameters that DPSGD reads itself.
OWN = (
    *("batch_size", "epochs", "learning_rate", "max_grad_norm", "optimizer", "steps"),
    *("clipping", "average", "views"),
)


def of_factory(factory: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The factory's arguments: those it names, and those that nobody else takes.

    >>> of_factory(lambda width: None, {"width": 8, "learning_rate": 0.1, "momentum": 0.9})
    {'width': 8}
    """
    names, _ = _named(factory)
    return {name: value for name, value in given.items() if name in names or not _taken_elsewhere(name)}


def complete(factory: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Whether the factory can be called with what is given."""
    try:
        inspect.signature(factory).bind(**of_factory(factory, given))
    except TypeError:
        return False
    return True


def refuse_model(factory: Any) -> None:
    """An error for a model, or anything else, in place of a function that builds one."""
    if isinstance(factory, torch.nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise TypeError(
            f"model is a {kind}: give a function that builds the untrained model, since every run starts from a new "
            f"one. For example model=lambda: {kind if isinstance(factory, torch.nn.Module) else 'MLP'}(...)"
        )


def refuse_unknown(factory: Callable[..., Any], names: Iterable[str]) -> None:
    """An error for a hyperparameter that nobody takes."""
    known, takes_any = _named(factory)
    for name in names:
        if not (takes_any or name in known or _taken_elsewhere(name)):
            raise ValueError(
                f"hyperparameter {name!r} is taken neither by DPSGD ({', '.join(OWN)}), nor by any optimiser, nor by "
                f"the model's factory ({', '.join(sorted(known)) or 'which has no arguments'})"
            )


def refuse_optimizer(name: Any, argument: str = "optimizer") -> None:
    """An error for anything that is not the name of an optimiser, such as its class; ``argument`` is who was given it.

    >>> refuse_optimizer(torch.optim.SGD)
    Traceback (most recent call last):
    ValueError: optimizer = SGD is not valid: it is a class; give its name, optimizer='sgd', and what it takes in fixed=
    """
    names = known()
    if isinstance(name, str) and name.lower() in names:
        return
    kind = name if inspect.isclass(name) else type(name)
    if issubclass(kind, torch.optim.Optimizer):
        sort = "a class" if inspect.isclass(name) else "an optimiser of some parameters, and every run makes a new one"
        remedy = f"give its name, optimizer={kind.__name__.lower()!r}, and what it takes in fixed="
        if kind.__name__.lower() not in names:
            remedy = f"give one of {', '.join(sorted(names))}"
        raise ValueError(f"optimizer = {kind.__name__} is not valid: it is {sort}; {remedy}")
    raise _validate.fail(argument, name, f"give one of {', '.join(sorted(names))}")


def refuse_optimizers(space: Space, name: str = "optimizer") -> None:
    """An error for a space in which the hyperparameter of this name has a value that is not the name of an optimiser.

    >>> refuse_optimizers(Space({"optimizer": ["adam", "sdg"]}))
    Traceback (most recent call last):
    ValueError: space['optimizer'] = 'sdg' is not valid: give one of adadelta, adafactor, adagrad, ...
    """
    for parameter in space.parameters:
        if parameter.name == name:
            values = parameter.dimension.choices if isinstance(parameter.dimension, Finite) else (parameter,)
            for value in values:
                refuse_optimizer(value, f"space[{name!r}]")


def _taken_elsewhere(name: str) -> bool:
    return name in OWN or name in option_names()


def _named(factory: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of a factory's arguments, and whether it takes any other."""
    parameters = inspect.signature(factory).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _takes(optimizer: type[torch.optim.Optimizer]) -> set[str]:
    return set(inspect.signature(optimizer).parameters) - {"params", "lr"}


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser takes: "momentum", "weight_decay", "betas" and so on.

    >>> {"momentum", "weight_decay", "nesterov"} <= option_names()
    True
    """
    return frozenset(name for optimizer in known().values() for name in _takes(optimizer))


def build(
    name: str, parameters: Iterable[torch.nn.Parameter], learning_rate: float, options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    """The named optimiser; options that it does not take are left out, so that optimisers can be compared in one space.

    >>> build("sgd", [torch.nn.Parameter(torch.zeros(1))], 0.1, {"momentum": 0.9, "betas": (0.9, 0.99)}).defaults["lr"]
    0.1
    """
    refuse_optimizer(name)
    optimizer: Any = known()[name.lower()]
    taken = {key: value for key, value in options.items() if key in _takes(optimizer)}
    return optimizer(list(parameters), lr=learning_rate, **taken)  # type: ignore[no-any-return]
