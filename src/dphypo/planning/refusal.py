"""The error of a choice that cannot be made."""

from __future__ import annotations


class NoDesignError(ValueError):
    """There is no design to choose: why, and what to change.

    Args:
        reason: why.
        remedy: what to change.
        in_python: what else can be done from Python, where the command line cannot.

    >>> print(NoDesignError("compute = 1 is too little", "give more", ", or designs="))
    compute = 1 is too little: give more, or designs=
    """

    def __init__(self, reason: str, remedy: str, in_python: str = "") -> None:
        super().__init__(f"{reason}: {remedy}{in_python}")
        self.reason, self.remedy = reason, remedy
