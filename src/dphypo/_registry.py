"""Extensions: things that are found by name, and flags that a class sets, such as ``history_only = True``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, by name. Each is registered where it is written, so that adding one takes one file.

    A name is looked up among what was registered in this process, the modules of the room, which register themselves
    when they are imported, and the entry points of installed packages, in this order (docs/extending.md).

    Args:
        room: the package that holds the library's own things of this kind.
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


def class_promises(value: object, flag: str, *methods: str) -> bool:
    """Whether the class of a value promises ``flag`` and defines one of ``methods`` itself.

    With a flag, the author of a class promises something about that class's code. The flag does not count if it is
    inherited, since a subclass may override the code; if it is set on an instance; or if the instance replaces one of
    the methods.
    """
    own, hidden = vars(type(value)), getattr(value, "__dict__", {})
    promised = own.get(flag) is True and any(method in own for method in methods)
    return promised and not any(name in hidden for name in (flag, *methods))


def full_name(thing: type | object) -> str:
    """The module and the name of a class or function, or of the class of a value."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
