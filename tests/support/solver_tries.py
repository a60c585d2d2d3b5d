"""What the solver for noise tries, as a test sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from dphypo.accounting.calibrate import Knob, _answers


@contextmanager
def watch(watcher: Callable[[float], object]) -> Iterator[None]:
    """Call ``watcher`` with the ε of every value that is tried inside; answers of earlier tests are forgotten."""
    _answers.cache_clear()
    at = Knob._at

    def tried(knob: Knob[Any], value: float) -> Any:
        found = at(knob, value)
        watcher(found.epsilon)
        return found

    with mock.patch.object(Knob, "_at", tried):
        yield
