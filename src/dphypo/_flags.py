"""Promises that a class makes about its own code, such as ``history_only = True``."""

from __future__ import annotations


def stands_beside(value: object, flag: str, *methods: str) -> bool:
    """Whether the class of a value promises ``flag`` and defines one of ``methods`` itself.

    A flag is its author's word about code that the author has seen. One that is inherited says nothing about what a
    subclass overrides, and one that is set on an instance is nobody's. A method that the instance hides makes the
    promise void.

    >>> class Base:
    ...     safe = True
    ...     def act(self): ...
    >>> class Other(Base):
    ...     def act(self): ...
    >>> stands_beside(Base(), "safe", "act"), stands_beside(Other(), "safe", "act")
    (True, False)
    """
    own, hidden = vars(type(value)), getattr(value, "__dict__", {})
    promised = own.get(flag) is True and any(method in own for method in methods)
    return promised and not any(name in hidden for name in (flag, *methods))


def full_name(thing: type | object) -> str:
    """The module and the name of a class or function, or of the class of a value."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
