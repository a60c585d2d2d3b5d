"""Packages of clusters, which are installed on their own: imported when they are first used."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from dphypo.mechanisms import Declared, Mechanism


def package(module: str, extra: str) -> Any:
    """Import the package of a cluster, or say how to install it.

    >>> package("no_such_package", "dask")
    Traceback (most recent call last):
    ModuleNotFoundError: this executor needs the package no_such_package: pip install 'dphypo[dask]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    raise ModuleNotFoundError(f"this executor needs the package {module}: pip install 'dphypo[{extra}]'", name=module)


def sendable(mechanism: Mechanism) -> Mechanism:
    """The mechanism as clusters can send it: one of the script itself by value, since workers run another script."""
    if isinstance(mechanism, Declared) and getattr(mechanism, "__module__", None) == "__main__":
        return replace(mechanism)  # a copy is not found under its name, and so it is not sent by name
    return mechanism
