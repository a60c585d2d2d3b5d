"""Things that are found by name: registered where they are written, so that adding one takes one file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, by name.

    A thing registers itself with ``@registry.register("name")``. A name is looked up in three places, in this order:
    what was registered in this process; a module of that name in the room, which registers itself when it is
    imported; and the entry points that installed packages have in the group of the room's name.

    Args:
        room: the package that holds the library's own things of this kind.

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
        if name not in self._known and name in self._modules():
            importlib.import_module(f"{self._room}.{name}")
        if name not in self._known:
            for entry in entry_points(group=self._room, name=name):
                self._known[name] = entry.load()
        return self._known.get(name)

    def names(self) -> list[str]:
        """Every name that can be found."""
        for module in self._modules():
            importlib.import_module(f"{self._room}.{module}")
        return sorted({*self._known, *(entry.name for entry in entry_points(group=self._room))})

    def _modules(self) -> list[str]:
        return [module.name for module in pkgutil.iter_modules(importlib.import_module(self._room).__path__)]
