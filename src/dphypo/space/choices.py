"""Lists as priors: numbers are ordered levels, anything else categories, equally likely unless told."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dphypo import _validate
from dphypo.space.finite import Finite
from dphypo.space.quantiles import CELLS
from dphypo.space.unit import Array
from dphypo.space.values import describe as describe_value
from dphypo.space.values import is_number, key, plain


def finite(where: str, choices: Sequence[object], probabilities: object = None) -> Finite:
    """The parameter that takes these choices, with these probabilities."""
    values = tuple(plain(where, value) for value in choices)
    if not values:
        raise _validate.fail(where, choices, "give at least one choice")
    ordered = all(is_number(value) for value in values)
    seen: set[Hashable] = set()
    for value in values:
        identity: Hashable = value if ordered else key(value)
        if identity in seen:
            raise _validate.fail(where, choices, f"{value!r} is listed twice; weigh it by (choices, probabilities)")
        seen.add(identity)
    return Finite(where, values, _masses(where, len(values), probabilities), ordered)


def _masses(where: str, count: int, probabilities: Any) -> Array:
    if probabilities is None:
        return np.full(count, 1 / count)
    masses = _validate.vector(length=count, **{f"the probabilities of {where}": probabilities})
    if (masses < 1 / CELLS).any():
        remedy = "leave out a choice whose probability is 0; the smallest allowed is 2**-32"
        raise _validate.fail(f"the probabilities of {where}", probabilities, remedy)
    total = math.fsum(masses)
    if abs(total - 1) > 1e-9:
        raise _validate.fail(f"the probabilities of {where}", probabilities, f"they must sum to 1, not {total:.12g}")
    return masses / total


def describe(dimension: Finite) -> dict[str, Any]:
    """The choices with their types, and their probabilities where they differ."""
    description: dict[str, Any] = {"choices": [describe_value(value) for value in dimension.choices]}
    if np.ptp(dimension.masses) > 0:
        description["probabilities"] = dimension.masses.tolist()
    return description
