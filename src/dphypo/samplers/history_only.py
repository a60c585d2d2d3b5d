"""Which search rules see only the history: they are accounted for by Theorem H, which costs less."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Mapping
from typing import Any

from dphypo.samplers.sampler import Sampler


class Basis(enum.Enum):
    """Why a rule is taken to see only the history; the values stand in certificates."""

    LIBRARY = "a search rule of dphypo, or of Optuna inside one, which is given the history and nothing else"
    USER = "the word of the user, who declared history_only = True on the search rule"


def basis(sampler: Sampler) -> Basis | None:
    """Why a rule counts as history-only; None if it does not.

    Our own rules do. Any other rule does if it has an attribute ``history_only`` that is True, which is its author's
    word that its weights are a function of the candidates, the history and independent randomness: not of the data,
    the clock, the number of runs, memory, or state that the history does not determine.

    >>> from dphypo.samplers import Parzen, Proposals
    >>> basis(Parzen())
    <Basis.LIBRARY: 'a search rule of dphypo, or of Optuna inside one, which is given the history and nothing else'>
    >>> basis(Proposals(lambda history: [])) is None
    True
    """
    if getattr(sampler, "history_only", False) is not True:
        return None
    ours = type(sampler).__module__.startswith("dphypo.samplers.")
    inner = [getattr(sampler, name, None) for name in ("sampler", "propose")]  # what OptunaSampler and Proposals wrap
    foreign = [one for one in inner if one is not None and not of_optuna_alone(one)]
    return Basis.LIBRARY if ours and not foreign else Basis.USER


_PLAIN_MODULES = ("builtins", "collections", "numpy", "optuna", "random", "threading")


def of_optuna_alone(value: object) -> bool:
    """Whether a sampler is Optuna's, and so are the samplers and functions that it was given to call.

    A sampler of one's own inside ``PartialFixedSampler``, or a ``constraints_func``, may look at anything.
    """
    return type(value).__module__.startswith("optuna.") and not _holds_foreign(value, set())


def _holds_foreign(value: object, seen: set[int]) -> bool:
    if id(value) in seen:
        return False
    seen.add(id(value))
    if inspect.isroutine(value) or isinstance(value, type):
        return not str(value.__module__).startswith(("optuna.", "builtins"))
    if type(value).__module__.partition(".")[0] not in _PLAIN_MODULES:
        return True
    if isinstance(value, Mapping):
        held = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        held = list(value)
    else:
        held = list(vars(value).values()) if type(value).__module__.startswith("optuna.") else []
    return any(_holds_foreign(one, seen) for one in held)


def description(sampler: Sampler) -> dict[str, Any]:
    """A rule's class and settings as JSON, to see whether a study is resumed with the rule it was begun with."""
    kind = type(sampler)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    settings: dict[str, Any] = {field.name: _setting(getattr(sampler, field.name)) for field in fields if field.repr}
    if not fields:  # a class of the user's: what it shows of itself
        shown = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if not name.startswith("_")}
        settings = {name: _setting(value) for name, value in shown.items()}
    return {"rule": f"{kind.__module__}.{kind.__qualname__}", "settings": settings}


def _setting(value: object) -> str:
    """Plain values as they are written; of other objects their class or name, since ``repr`` may show an address."""
    plain = isinstance(value, (bool, int, float, str, tuple, enum.Enum)) or value is None
    if plain or dataclasses.is_dataclass(value):
        return repr(value)
    if inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if not of_optuna_alone(value):
        return name
    kept = {
        key: _setting(one)
        for key, one in vars(value).items()
        if isinstance(one, (bool, int, float, str)) or type(one).__name__.endswith("Sampler")
    }
    return name + repr(sorted((key, one) for key, one in kept.items() if "seed" not in key))  # one may be drawn
