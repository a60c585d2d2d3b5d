"""The document of a plan file: what is to be run, in the form in which certificates state guarantees.

It holds ``name``, ``epsilon`` and ``delta``; what the guarantee is computed from, as :mod:`guarantee_json` writes it;
``parts``, from which :meth:`dphypo.search.PlanFile.declare` makes the parts of a search; and ``settings``, public
numbers for people to read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dphypo.accounting import untrusted
from dphypo.accounting.certificate import plain
from dphypo.accounting.composition import Composition
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.guarantee_json import FIELDS, to_json
from dphypo.accounting.solve import round_epsilon
from dphypo.accounting.untrusted import Refused

FORMAT = "dphypo plan 2"
_KNOWN = {"format", "name", "epsilon", "delta", "parts", "settings"} | FIELDS
_LONGEST = 200  # letters of a name


def write(
    guarantee: Guarantee | Composition,
    delta: float,
    *,
    name: str,
    parts: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a plan whose parts, each as JSON, have this guarantee together."""
    document: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "name": name,
            "epsilon": round_epsilon(guarantee.epsilon(delta)),
            "delta": float(delta),
            **to_json(guarantee),
            "parts": list(parts),
            "settings": settings,
        }
    )
    return document


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in a file, whole and within limits; its numbers are not recomputed."""
    document = untrusted.read(Path(path), "plan file")
    check(document)
    return document


def is_plan(path: Path) -> bool:
    """Whether a file begins as plans do, of this version or another, complete or not."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return b'"dphypo plan ' in file.read(200)


def check(document: Mapping[str, Any]) -> None:
    """Refuse a document that is no plan, that says more than a plan, or that would take too long to account for."""
    if document.get("format") != FORMAT:
        shown = untrusted.printable(repr(document.get("format")), 60)
        raise Refused(f"format = {shown} is not a plan that this version reads: it must be {FORMAT!r}")
    if unknown := sorted(set(document) - _KNOWN):
        raise Refused(f"{untrusted.printable(unknown[0], 60)} is not part of a plan: leave it out")
    name, delta, epsilon = document.get("name"), document.get("delta"), document.get("epsilon")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        raise Refused(f"name: should be a text of at most {_LONGEST} letters")
    if not _number(delta) or not 0 <= delta < 1:  # type: ignore[operator]
        raise Refused("delta: should be a number in [0, 1)")
    if not _number(epsilon) or not epsilon >= 0:  # type: ignore[operator]
        raise Refused("epsilon: should be a number, zero or more")
    if not isinstance(document.get("settings"), Mapping):
        raise Refused("settings: should be an object")
    parts = document.get("parts")
    if not isinstance(parts, list) or not 1 <= len(parts) <= untrusted.MOST_PARTS:
        raise Refused("parts: should be a list of one or more")
    if not all(isinstance(part, Mapping) for part in parts):
        raise Refused("parts: each should be an object")
    for part in parts:
        untrusted.check_law(part)
    untrusted.check(document)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
