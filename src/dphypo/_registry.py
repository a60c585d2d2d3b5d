"""Things that are found by name: registered where they are written, so that adding one takes one file."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, by name.

    A thing registers itself with ``@registry.register("name")``. One that lives in the room itself, in a module with
    its own name, is imported when it is first asked for; any other must be imported by whoever wants it.

    >>> registry: Registry[type] = Registry("dphypo.journal")
    >>> @registry.register("paper")
    ... class Paper:
    ...     pass
    >>> registry.find("paper") is Paper, registry.find("slate") is None
    (True, True)
    """

    def __init__(self, room: str) -> None:
        self._room = room
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that makes a thing known under ``name``. The latest of a name counts."""

        def known(thing: T) -> T:
            self._known[name] = thing
            return thing

        return known

    def find(self, name: str) -> T | None:
        """The thing of this name, or None."""
        module = f"{self._room}.{name}"
        if name not in self._known and name.isidentifier() and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        return self._known.get(name)

    def names(self) -> list[str]:
        """The names that are known so far."""
        return sorted(self._known)
