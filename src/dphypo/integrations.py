"""The earlier names of :mod:`dphypo.torch`, ``jax``, ``sklearn``, ``optuna`` and ``transformers``."""

import importlib
import sys
from functools import partial
from types import ModuleType
from typing import Any

__path__: list[str] = []  # so that a name below this one can be imported


def _get(library: str, name: str) -> Any:
    return getattr(importlib.import_module(f"dphypo.{library}"), name)


for _library in ("torch", "jax", "sklearn", "optuna", "transformers"):
    _earlier: Any = ModuleType(f"{__name__}.{_library}")
    _earlier.__getattr__ = partial(_get, _library)
    globals()[_library] = sys.modules[_earlier.__name__] = _earlier
