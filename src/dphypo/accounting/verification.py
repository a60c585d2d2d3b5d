"""Verification: recompute a certificate from the event it states, and say which line is wrong, if any."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dp_accounting

from dphypo import laws
from dphypo.accounting import events
from dphypo.accounting.certificate import Certificate, issue
from dphypo.accounting.composition import Composition
from dphypo.accounting.guarantee import Guarantee, account
from dphypo.accounting.published import Published, published
from dphypo.accounting.sides import PlanGuarantee, Side, Term
from dphypo.accounting.statement import statement
from dphypo.band import Band

# Other versions and machines round differently. What is stated may be larger by a little, and smaller by next to
# nothing: the search for ε rounds up by 2e-6, and a δ of 1e-11 is at the noise of Fourier transforms.
_LARGER = 1e-4
_SMALLER_EPSILON, _SMALLER_DELTA = (1e-6, 5e-6), (1e-3, 1e-11)  # relative and absolute
_NOT_COMPARED = {"versions", "citation"}


@dataclass(frozen=True)
class Verification:
    """What came of a verification: true if every line was confirmed; ``warning`` is the certificate's own."""

    problems: tuple[str, ...]
    warning: str | None = None

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if not self:
            return "no:\n" + "\n".join(f"  {problem}" for problem in self.problems)
        confirmed = "yes: every number of the certificate follows from its event, its law of T and its band"
        return confirmed if self.warning is None else f"{confirmed}\nbut it carries a warning: {self.warning}"


def verify(certificate: Certificate | str | os.PathLike[str]) -> Verification:
    """Recompute a certificate, or the file that holds one, from its event, relation, law of T and band.

    It confirms that the numbers follow from what is stated; that the event describes what was run is up to whoever
    states it.
    """
    if not isinstance(certificate, Certificate):
        if not Path(certificate).is_file():
            raise FileNotFoundError(f"there is no certificate at {os.fspath(certificate)!r}")
        certificate = Certificate.load(certificate)
    document = certificate.to_dict()
    try:
        expected = {**_recompute(document).to_dict(), "statement": statement(document)}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        return Verification((f"the certificate cannot be recomputed: {type(error).__name__}: {error}",))
    return Verification(tuple(_differences(document, expected, "")), certificate.warning)


def _recompute(document: Mapping[str, Any]) -> Certificate:
    if "terms" in document:
        terms = [Term(_account(term), frozenset(Side(side) for side in term["sides"])) for term in document["terms"]]
        return issue(PlanGuarantee(tuple(terms)), document["delta"], document["public"])
    searches = [_search(stage) for stage in document.get("stages", [document])]
    guarantee = searches[0] if len(searches) == 1 else Composition(tuple(searches))
    return issue(guarantee, document["delta"], document["public"])


def _account(stated: Mapping[str, Any]) -> Guarantee | Published:
    if "published" not in stated:
        return _search(stated)
    stated_events = [events.from_dict(event) for event in stated["events"]]
    relation = dp_accounting.NeighboringRelation[stated["relation"]]
    return published(stated_events, stated["published"], relation=relation, grid=stated["grid"])


def _search(stated: Mapping[str, Any]) -> Guarantee:
    return account(
        [events.from_dict(event) for event in stated["events"]],
        laws.from_dict(stated["runs"]["law"]),
        Band(stated["band"]["c"], stated["band"]["C"]),
        policy=stated.get("policy", {}).get("class", "anything"),
        first_from_prior=stated.get("policy", {}).get("first_from_prior", 0),
        relation=dp_accounting.NeighboringRelation[stated["relation"]],
        grid=stated["grid"],
    )


def _differences(found: Any, expected: Any, path: str) -> Iterator[str]:
    """Every line that differs, numbers up to the tolerance."""
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            yield f"{path}: {found!r} should be an object"
            return
        for key in sorted({*expected, *found} - (_NOT_COMPARED if not path else set())):
            line = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{line}: is missing"
            elif key not in expected:
                yield f"{line}: is not part of a certificate"
            else:
                yield from _differences(found[key], expected[key], line)
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            yield f"{path}: should be a list of {len(expected)}"
            return
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif not _same(found, expected, path):
        yield f"{path}: the certificate says {found!r}, recomputed it is {expected!r}"


def _same(found: Any, expected: Any, path: str) -> bool:
    numbers = (int, float)
    if not isinstance(found, numbers) or not isinstance(expected, numbers) or isinstance(found, bool):
        return bool(found == expected)
    relative, absolute = _SMALLER_DELTA if path.startswith("profile.delta") else _SMALLER_EPSILON
    size = abs(expected)
    return bool(expected - relative * size - absolute <= found <= expected + _LARGER * size + 1e-9)
