"""Laws of T from their public descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dphypo._validate import fail
from dphypo.laws.law import Law
from dphypo.laws.negative_binomial import NegativeBinomial
from dphypo.laws.pmf import Pmf
from dphypo.laws.poisson import Poisson

_MAKERS: dict[str, Callable[[Mapping[str, Any]], Law]] = {
    "negative_binomial": lambda d: NegativeBinomial(d["shape"], gamma=d["gamma"]),
    "poisson": lambda d: Poisson(d["mean"]),
    "pmf": lambda d: Pmf({int(k): Fraction(p) for k, p in d["probabilities"].items()}),
    "capped": lambda d: from_dict(d["of"]).capped(d["limit"]),
}


def from_dict(description: Mapping[str, Any]) -> Law:
    """The law that ``law.to_dict()`` describes: equal to it, number for number.

    >>> from dphypo.laws import Geometric
    >>> law = Geometric(mean=100).capped(400)
    >>> from_dict(law.to_dict()) == law
    True
    """
    name = description.get("law") if isinstance(description, Mapping) else None
    if name not in _MAKERS:
        raise fail("description", description, f'its "law" must be one of {", ".join(_MAKERS)}')
    try:
        return _MAKERS[name](description)
    except KeyError as missing:
        raise fail("description", description, f"a {name} law also needs {missing}") from None
