"""Differentially private hyperparameter optimisation: search adaptively, release one model, pay for the whole search.

The names below are loaded when they are first used, so that ``import dphypo`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dphypo.band import Band as Band

__version__ = "0.1.0"

# Public name -> the module that defines it.
_HOMES = {
    "Band": "dphypo.band",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dphypo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
