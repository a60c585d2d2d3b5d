"""Cases of a test of which only the first run in `make test`: the others are marked slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """The cases for ``pytest.mark.parametrize``, tuples for several arguments, all but the first ``fast`` slow."""
    return [
        case if number < fast else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
