"""Documents: all that a guarantee is computed from, as JSON, and files of strangers.

A certificate states the relation, the grid, and every term: its events, which records it reads, and how many runs are
published, or the law of T, the band and the policy of a search.

Files are read with limits on everything that could make a reader slow, large or misled. What is refused raises a
``FileError``, whose text is fit for a terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import dp_accounting
import numpy as np
from dp_accounting import dp_event

from dphypo import _files, laws
from dphypo._files import MOST_BYTES, Json
from dphypo._validate import LONGEST_NAME, printable
from dphypo.accounting import dp_library, events
from dphypo.accounting.composition import Composition, PublishedRuns, Releases, Term, account_published
from dphypo.accounting.events import RdpCurve, ideal
from dphypo.accounting.guarantee import Guarantee, account
from dphypo.accounting.sides import Side
from dphypo.accounting.statement import conditions
from dphypo.band import Band
from dphypo.errors import FileError

_LONGEST_TEXT = 100_000  # letters of a text that is no name
MOST_DEPTH, MOST_VALUES, MOST_DIGITS = 40, 200_000, 25
MOST_PARTS, MOST_STEPS, MOST_ORDERS = 2_000, 10**7, 1_000  # parts: events of a run, and searches
MOST_SPREAD = 60.0  # standard deviation of the privacy loss of a run
GRIDS = (1e-5, 1e-1)
MOST_BINS = 10**7  # of a loss distribution
MOST_MEAN = 1e8
MOST_POINTS = 100_000  # of a law that is listed, and of a cap


def to_json(guarantee: Guarantee | Composition) -> dict[str, Any]:
    """The public values that a guarantee is computed from."""
    whole = Composition.of(guarantee)
    terms = [
        {"reads": term.side.to_json(), **({"scores": True} if term.scores else {}), **_term(term.releases)}
        for term in whole.terms
    ]
    return {"relation": whole.relation.name, "grid": whole.terms[0].releases.grid, "terms": terms}


def from_json(document: Json) -> Composition:
    """The guarantee that a document states, accounted afresh. Its events are held to the limits of strangers' files."""
    relation, grid = dp_accounting.NeighboringRelation[document["relation"]], document["grid"]
    terms = (
        Term(_releases(term, relation, grid), Side.from_json(term["reads"]), bool(term.get("scores", False)))
        for term in document["terms"]
    )
    return Composition(tuple(terms))


def _term(releases: Releases) -> dict[str, Any]:
    found: dict[str, Any] = {"events": [events.event_to_dict(event) for event in releases.events]}
    if isinstance(releases, PublishedRuns):
        return {**found, "published": releases.count}
    first, law = releases.first_from_prior, {"law": releases.runs.to_dict(), "mean": releases.runs.mean}
    words = conditions(releases.policy, first)
    policy = {"class": releases.policy.value, "first_from_prior": first, "conditions": words}
    return {**found, "runs": law, "band": {"c": releases.band.c, "C": releases.band.C}, "policy": policy}


def _releases(term: Json, relation: dp_accounting.NeighboringRelation, grid: float) -> Releases:
    found = [events.from_dict(event) for event in term["events"]]
    for event in found:
        check_event(event, grid)
    if "published" not in term:
        law, band = laws.from_dict(term["runs"]["law"]), Band(term["band"]["c"], term["band"]["C"])
        policy, first = term["policy"]["class"], term["policy"]["first_from_prior"]
        return account(found, law, band, relation=relation, grid=grid, policy=policy, first_from_prior=first)
    if not isinstance(term["published"], int) or term["published"] > MOST_STEPS:
        raise FileError("published: should be a number of runs")
    return account_published(found, term["published"], relation=relation, grid=grid)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a number; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and 1 <= len(value) <= MOST_PARTS


def is_name(value: Any) -> bool:
    """Whether a JSON value is a short text that can be printed."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def plain(value: Any) -> Any:
    """Plain JSON values: no numpy scalars, infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else str(float(value))
    return value


def read(path: Path, what: str = "certificate", *, within: Path | None = None) -> dict[str, Any]:
    """The JSON object in a file; of the folder of a release, its certificate."""
    if _files.is_folder(path):
        path, within = path / "certificate.json", path
    document = read_json(path, what, within=within)
    if not isinstance(document, dict):
        raise FileError(f"{printable(path)} is not a {what}: it is not an object")
    return document


def read_json(path: Path, what: str, *, most: int = MOST_BYTES, within: Path | None = None) -> Any:
    """The JSON value in a file of a stranger, of at most ``most`` bytes; no link leads out of the folder ``within``."""
    return _files.parsed(_from_json, path, what, wrong="it is not JSON", most=most, within=within)


def _from_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names are all different: a reader might see the first of two, and we the second."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise FileError(f"{printable(repr(name))} is stated twice in the certificate")
        found[name] = value
    return found


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise FileError(f"the number {printable(text, 20)} is too long")
    return int(text)


def _constant(text: str) -> float:
    raise FileError(f"{text} is not JSON")


def check(document: Json) -> None:
    """Refuse what has too many values, is nested too deeply, or would take too long to account for."""
    for number, value in enumerate(_values(document), 1):
        if number > MOST_VALUES:
            raise FileError("it holds too many values")
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise FileError("a text is too long")
    terms, grid = document.get("terms"), document.get("grid")
    if not _is_list(terms):
        raise FileError("terms must be a list of one or more")
    if not is_number(grid) or not GRIDS[0] <= grid <= GRIDS[1]:
        raise FileError(f"grid = {printable(repr(grid), 40)} must lie between {GRIDS[0]:g} and {GRIDS[1]:g}")
    for term in terms:
        if not isinstance(term, Mapping):
            raise FileError("a term must be an object")
        if not _is_list(term.get("events")):
            raise FileError("events must be a list of one or more")
        check_law(term.get("runs"))


def _values(value: Any, depth: int = 1) -> Iterator[Any]:
    """A value and all that is inside it."""
    if depth > MOST_DEPTH:
        raise FileError("it is nested too deeply")
    if isinstance(value, Mapping) and not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in value):
        raise FileError("a name is too long")
    yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _values(part, depth + 1)


def check_law(runs: Any) -> None:
    """Bound what a law of T, under "law", would take to evaluate."""
    law = runs.get("law") if isinstance(runs, Mapping) else None
    while isinstance(law, Mapping):
        for name, most in (("limit", MOST_POINTS), ("mean", MOST_MEAN), ("shape", MOST_MEAN)):
            if isinstance(law.get(name), (int, float)) and not abs(law[name]) <= most:
                raise FileError(f"the {name} of the law of T is too large to be verified")
        if isinstance(law.get("gamma"), (int, float)) and not 1 / MOST_MEAN <= law["gamma"] <= 1:
            raise FileError("the law of T is too wide to be verified")
        if isinstance(listed := law.get("probabilities"), Mapping):
            long = any(len(str(k)) > 9 or len(str(p)) > 400 for k, p in listed.items())
            if long or len(listed) > MOST_POINTS:
                raise FileError("the law of T lists too many values, or too large ones")
        law = law.get("of")


def check_event(event: object, grid: float) -> None:
    """Refuse a canonical event that would take too long or too much memory to account for."""
    event = ideal(event)
    if isinstance(event, RdpCurve) and len(event.orders) > MOST_ORDERS:
        raise FileError(f"an RdpCurve of {len(event.orders)} orders is too long to be verified")
    if not isinstance(event, dp_accounting.DpEvent):
        return
    _check_parts(event)
    steps, variance, parts = 0, 0.0, 0
    for leaf, count, rate in dp_library.leaves(event):
        steps, parts, moved = steps + count, parts + 1, dp_library.sensitivity(leaf)
        variance += count * (rate * moved) ** 2
        if parts > MOST_PARTS or steps > MOST_STEPS:
            raise FileError(f"an event of over {MOST_STEPS} steps, or {MOST_PARTS} parts, is too long to be verified")
        spread = max(math.sqrt(variance), moved)
        if not spread <= MOST_SPREAD or not spread * (spread / 2 + 9) <= MOST_BINS * grid:
            raise FileError("the event has so little noise that its losses are too large to be verified")


_FITS: dict[type, Callable[[Any], bool]] = {
    dp_event.MixtureOfGaussiansDpEvent: lambda event: len(event.sensitivities) <= 50,
    dp_event.DiscreteLaplaceDpEvent: lambda event: event.sensitivity <= 1000,
    dp_event.RandomizedResponseDpEvent: lambda event: event.noise_parameter > 1e-12 or event.num_buckets == 1,
    dp_event.TruncatedSubsampledGaussianDpEvent: lambda event: event.dataset_size <= 10**9,
    dp_event.RepeatAndSelectDpEvent: lambda event: event.mean <= MOST_MEAN,
}


def _check_parts(event: Any) -> None:
    """Refuse parts of an event whose own description takes too long to evaluate."""
    if type(event) in _FITS and not _FITS[type(event)](event):
        raise FileError(f"a {type(event).__name__} with these values is too large to be verified")
    for part in (*getattr(event, "events", ()), *([event.event] if hasattr(event, "event") else [])):
        _check_parts(part)
