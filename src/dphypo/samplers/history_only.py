"""Which search rules see only the history: they are accounted for by Theorem H, which costs less."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from typing import Any

from dphypo._flags import full_name, stands_beside
from dphypo.band.problem import Rule
from dphypo.samplers.known_parts import all_known, is_from
from dphypo.samplers.optuna_sampler import OptunaSampler
from dphypo.samplers.proposals import Proposals
from dphypo.samplers.sampler import Sampler

FLAG = "history_only"


def basis(sampler: Sampler, projection: Rule | None = None) -> str | None:
    """By whose word a search rule and its projection see only the history; None if one of them may see more.

    The library's own do, and Optuna's samplers inside ours, if they hold nothing but plain data. Any other class does
    if ``history_only = True`` stands in the class that defines ``weights`` (of a projection: ``ratios``). That is its
    author's word that the weights are a function of the candidates, the history and independent randomness: not of the
    data, the clock, the number of runs, memory, or state that the history does not determine. A subclass does not
    inherit it. A function that proposes gives its word in an attribute of its own.

    >>> from dphypo.samplers import Parzen, Proposals
    >>> basis(Parzen())
    'dphypo.samplers.parzen.Parzen, which is given the history and nothing else'
    >>> basis(Proposals(lambda history: [])) is None
    True
    """
    found = _of_sampler(sampler)
    if found is None or projection is None or (is_from(type(projection), "dphypo") and all_known(projection)):
        return found
    return f"{found}; {_word(projection)}" if stands_beside(projection, FLAG, "ratios") else None


def _of_sampler(sampler: Sampler) -> str | None:
    kind = type(sampler)
    if kind in (OptunaSampler, Proposals):
        settings = [value for name, value in vars(sampler).items() if name not in ("sampler", "propose")]
        return _of_inner(sampler) if all_known(settings) else None
    if not stands_beside(sampler, FLAG, "weights"):
        return None
    if not is_from(kind, "dphypo"):
        return _word(sampler)
    return _given(kind) if all_known(sampler) else None


def _of_inner(sampler: Sampler) -> str | None:
    """Whose word it is that what one of our samplers asks sees only the history."""
    if isinstance(sampler, OptunaSampler):
        inner = sampler.sampler
        if is_from(type(inner), "optuna") and all_known(inner):
            return _given(type(inner))
        return _word(inner) if stands_beside(inner, FLAG, "sample_relative", "sample_independent") else None
    assert isinstance(sampler, Proposals)
    propose = sampler.propose
    function = propose.__func__ if inspect.ismethod(propose) else propose
    if not inspect.isfunction(function):
        return _word(propose) if stands_beside(propose, FLAG, "__call__") else None
    # functools.wraps copies the attributes of a function to another one, which may do anything.
    own = vars(function)
    return _word(function) if own.get(FLAG) is True and "__wrapped__" not in own else None


def _given(kind: type) -> str:
    return f"{full_name(kind)}, which is given the history and nothing else"


def _word(thing: object) -> str:
    return f"the word of the author of {full_name(thing)}, who declared {FLAG} = True there"


def description(sampler: Sampler) -> dict[str, Any]:
    """A rule's class and settings as JSON, to see whether a study is resumed with the rule it was begun with."""
    kind = type(sampler)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    settings: dict[str, Any] = {field.name: _setting(getattr(sampler, field.name)) for field in fields if field.repr}
    if not fields:  # a class of the user's: what it shows of itself
        shown = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if not name.startswith("_")}
        settings = {name: _setting(value) for name, value in shown.items()}
    return {"rule": full_name(kind), "settings": settings}


def _setting(value: object) -> str:
    """Plain values as they are written; of other objects their class or name, since ``repr`` may show an address."""
    plain = isinstance(value, (bool, int, float, str, tuple, enum.Enum)) or value is None
    if plain or dataclasses.is_dataclass(value):
        return repr(value)
    if inspect.isroutine(value) or not is_from(type(value), "optuna"):
        return full_name(value)
    kept = {
        key: _setting(one)
        for key, one in vars(value).items()
        if isinstance(one, (bool, int, float, str)) or type(one).__name__.endswith("Sampler")
    }
    return full_name(value) + repr(sorted((key, one) for key, one in kept.items() if "seed" not in key))  # may be drawn
