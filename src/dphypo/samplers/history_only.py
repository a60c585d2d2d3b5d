"""Which search rules see only the history: they are accounted for by Theorem H, which costs less."""

from __future__ import annotations

import dataclasses
import enum
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
    foreign = [one for one in inner if one is not None and not type(one).__module__.startswith("optuna.")]
    return Basis.LIBRARY if ours and not foreign else Basis.USER


def description(sampler: Sampler) -> dict[str, Any]:
    """A rule's class and settings as JSON, to see whether a study is resumed with the rule it was begun with."""
    kind = type(sampler)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    settings = {field.name: _setting(getattr(sampler, field.name)) for field in fields if field.repr}
    return {"rule": f"{kind.__module__}.{kind.__qualname__}", "settings": settings}


def _setting(value: object) -> str:
    """Plain values as they are written; of other objects their class, since ``repr`` may show an address."""
    plain = isinstance(value, (bool, int, float, str, tuple, enum.Enum)) or value is None
    if plain or dataclasses.is_dataclass(value):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"
