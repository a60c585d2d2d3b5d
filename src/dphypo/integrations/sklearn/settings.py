"""The public settings of an estimator and of the steps before it: saved with a release, compared when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dphypo._flags import full_name
from dphypo.integrations.sklearn.steps import Parts

_PUBLIC = ("bounds", "target_bounds", "classes")


def settings(estimator: Any) -> Any:
    """The steps before the private part with all their parameters, and the bounds and classes of that part, as JSON."""
    parts = Parts.of(estimator)
    steps = {name: _described(step) for name, step in parts.steps}
    public = {name: _described(getattr(parts.last, name)) for name in _PUBLIC if hasattr(parts.last, name)}
    return json.loads(json.dumps({**steps, **public}))


def _described(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _described(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _described(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | range):
        return [_described(one) for one in value]
    if not hasattr(value, "get_params") or isinstance(value, type):
        return full_name(getattr(value, "function", value))  # of a per_record its function
    held = value.get_params(deep=False)
    if full_name(value).endswith("FrozenEstimator"):  # what it was fitted to is part of it
        held |= vars(value.estimator)
    return {"class": full_name(value), **{name: _described(one) for name, one in held.items()}}


def difference(saved: Any, given: Any, where: str = "") -> tuple[str, str, str] | None:
    """The first place where two descriptions differ, with both values.

    >>> difference({"schema": {"columns": {"age": [18, 90]}}}, {"schema": {"columns": {"age": [0, 50]}}})
    ("schema['columns']['age']", '[18, 90]', '[0, 50]')
    """
    if isinstance(saved, Mapping) and isinstance(given, Mapping):
        for name in {**saved, **given}:
            place = f"{where}[{name!r}]" if where else str(name)
            if found := difference(saved.get(name), given.get(name), place):
                return found
        return None
    texts = json.dumps(saved), json.dumps(given)
    return None if texts[0] == texts[1] else (where, *texts)
