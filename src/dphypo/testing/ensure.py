"""What all suites have in common."""

from __future__ import annotations


def ensure(holds: object, otherwise: str) -> None:
    """Raise an ``AssertionError`` with these words unless something holds."""
    if not holds:
        raise AssertionError(otherwise)
