"""Hyperparameters as text: plain values in JSON, read back as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dumps(params: Mapping[str, Any]) -> str:
    """One line of JSON. Values are None, bool, int, float, str, or tuples of these."""
    return json.dumps(dict(params))


def loads(text: str) -> dict[str, Any]:
    """The same parameters again.

    >>> loads(dumps({"lr": 0.1, "layers": (64, 64), "decay": None}))
    {'lr': 0.1, 'layers': (64, 64), 'decay': None}
    """
    return frozen(json.loads(text))


def frozen(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON gives them, with tuples in the place of lists: no parameter is a list."""
    return {name: _frozen(value) for name, value in params.items()}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value
