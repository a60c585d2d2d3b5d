"""Who takes which hyperparameter: DP-SGD itself, an optimiser, or the model's factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dphypo.integrations.opacus import optimizer

# Hyperparameters that DPSGD reads itself; each is a field of it too, for searches that leave it fixed.
OWN = ("batch_size", "epochs", "learning_rate", "max_grad_norm", "optimizer")


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


def refuse_unknown(factory: Callable[..., Any], names: Iterable[str]) -> None:
    """An error for a hyperparameter that nobody takes."""
    known, takes_any = _named(factory)
    for name in names:
        if not (takes_any or name in known or _taken_elsewhere(name)):
            raise ValueError(
                f"hyperparameter {name!r} is taken neither by DPSGD ({', '.join(OWN)}), nor by any optimiser, nor by "
                f"the model's factory ({', '.join(sorted(known)) or 'which has no arguments'})"
            )


def _taken_elsewhere(name: str) -> bool:
    return name in OWN or name in optimizer.option_names()


def _named(factory: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of a factory's arguments, and whether it takes any other."""
    parameters = inspect.signature(factory).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)
