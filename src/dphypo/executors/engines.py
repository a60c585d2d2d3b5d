"""Engines that are installed on their own: asked for by name when they are first used."""

from __future__ import annotations

import importlib
from typing import Any


def engine(module: str, extra: str) -> Any:
    """Import an engine, or say how to install it.

    >>> engine("no_such_engine", "dask")
    Traceback (most recent call last):
    ModuleNotFoundError: this executor needs the package no_such_engine: pip install 'dphypo[dask]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    raise ModuleNotFoundError(f"this executor needs the package {module}: pip install 'dphypo[{extra}]'", name=module)
