"""Verification: recompute a certificate, compare it with an explicit attack, and say what is wrong, if anything.

Files are of unknown origin. Everything that could make a reader slow, exhaust its memory or mislead it has a limit. The
work for a whole document has a budget: it is estimated, and refused if it is too much, before anything is computed. A
refusal is a ``FileError``, whose text is safe to print on a terminal.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import dp_accounting
from dp_accounting import dp_event

from dphypo import _files, _validate, laws
from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting import dp_library, events
from dphypo.accounting.certificate import (
    ALGORITHM,
    ENTROPIES,
    KINDS,
    UNITS,
    Certificate,
    fingerprints,
    issue,
    read,
    read_key,
    signed_bytes,
    statement,
    table_hash,
)
from dphypo.accounting.composition import Composition, Releases, Side, Term, account_published
from dphypo.accounting.events import RdpCurve, ideal
from dphypo.accounting.guarantee import PolicyClass, account
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.accounting.tradeoff import attacker
from dphypo.band import Band
from dphypo.errors import FileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_LARGER = 1e-4  # relative: other stated numbers may be slightly larger
_SMALLER_DELTA = (1e-3, 1e-11)  # relative and absolute: a δ of 1e-11 is at the noise of Fourier transforms
_ADDED = {
    "versions",
    "declared",
    "release",
    "signature",
}  # after a search was approved
_MOST_PROBLEMS = 20
_BEFORE, _SHOWN = 40, 90  # letters before a difference of texts, and of each text
BUDGET = 30.0
"""The default of ``budget``."""
# Seconds, measured on one core that was shared: for each event of published runs and of a search, for each value of a
# law that is listed, for each run that a search by history may make, for each bin of a loss, and to compose a term.
_PUBLISHED, _SEARCHED, _LISTED, _HISTORY, _BINS, _COMPOSED = 0.2, 0.5, 0.01, 0.05, 1e-5, 0.1
_FILES = {"certificate.json", "release.json", "surveys.json"}  # of a release, besides its model
_MOST_NAMED = 5  # of other files there
_LONGEST_TEXT = 100_000  # letters of a text that is no name
MOST_DEPTH, MOST_VALUES = 40, 200_000
MOST_PARTS, MOST_STEPS, MOST_ORDERS = 2_000, 10**7, 1_000  # parts: events of a run, and searches
MOST_SPREAD = 60.0  # standard deviation of the privacy loss of a run
GRIDS = (1e-5, 1e-1)
MOST_BINS = 10**7  # of a loss distribution
MOST_MEAN = 1e8
MOST_POINTS = 100_000  # of a law that is listed


@dataclass(frozen=True)
class Verification:
    """The result of a verification: true if nothing is wrong and the certificate states a guarantee.

    ``warning`` is why the certificate itself says that there is no guarantee; None if it states one.
    """

    problems: tuple[str, ...]
    warning: str | None = None
    folder: bool = False  # whether a model and tables were compared too

    def __bool__(self) -> bool:
        return not self.problems and self.warning is None

    @property
    def status(self) -> int:
        """The exit status of ``dphypo verify``: 0 for yes, 1 for no, 3 for right numbers without a guarantee."""
        return 1 if self.problems else 0 if self.warning is None else 3

    def __str__(self) -> str:
        if self.problems:
            shown = [f"  {printable(problem)}" for problem in self.problems[:_MOST_PROBLEMS]]
            more = len(self.problems) - len(shown)
            return "no, because\n" + "\n".join(shown) + (f"\n  and {more} more" if more else "")
        if self.warning is not None:
            why = f"no: there is no guarantee. The certificate itself says so: {printable(self.warning)}"
            return f"{why}\nIts numbers follow from the runs that it states."
        compared = " The model, the parameters and the tables are the certified ones." if self.folder else ""
        unchecked = "Not checked: that training was as stated, and which data set it used."
        return f"yes: epsilon was recomputed from the stated runs.{compared}\n{unchecked}"


def verify(
    certificate: Certificate | str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    approved: Certificate | str | os.PathLike[str] | None = None,
    budget: float = BUDGET,
) -> Verification:
    """Check a certificate, a file that holds one, or the folder of a release.

    The numbers are recomputed from the runs that the certificate states; ε may not be smaller. A second computation,
    which shares no code with the first, attacks these runs: ε may not be below what the attack achieves. In the folder
    of a release the model, the parameters and the tables of surveys must be those that the certificate
    names, no table may have more runs than it pays for, and there may be no other file. That the event describes what
    was run is up to whoever states it.

    The answer is "no" for a file that is not a certificate, for one that would take too long to check, and for a
    certificate that says itself that there is no guarantee.

    Args:
        certificate: the certificate, its file, or a folder that holds ``certificate.json``.
        key: a file with an Ed25519 public key; then the certificate must be signed by it.
        approved: the certificate that the search saved before it ran, or its file; then what was declared must be the
            same. What the search published, its day and the signature are added later and are not compared.
        budget: the most work, in seconds of one core by a rough estimate. Raise it for a file that you trust.
    """
    public = None if key is None else read_key(_validate.path(key=key), "public")
    try:
        return _verify(certificate, public, approved, _validate.positive(budget=budget))
    except (FileError, OSError) as refused:
        return Verification((str(refused),))
    except (RecursionError, MemoryError, OverflowError) as error:
        return Verification((f"it cannot be recomputed within bounds ({type(error).__name__})",))


def _verify(
    certificate: Certificate | str | os.PathLike[str],
    key: Ed25519PublicKey | None,
    approved: Certificate | str | os.PathLike[str] | None,
    budget: float,
) -> Verification:
    folder = None
    if isinstance(certificate, Certificate):
        document = certificate.to_dict()
    else:
        if hasattr(certificate, "certificate"):
            remedy = "it is a release: give its folder, verify(release.save('release')), or release.certificate"
            raise _validate.fail("certificate", certificate, remedy)
        path = _validate.path(certificate=certificate)
        folder, document = path if _files.is_folder(path) else None, read(path)
    if problems := list(_shape(Certificate.from_dict(document).document)):
        return Verification(tuple(problems))
    check(document)
    try:
        guarantee = from_json(document, budget)
        achieved, stated = epsilon_from_below(guarantee, document["delta"]), document["epsilon"]
        problems = _faults(document, guarantee)
    except FileError:
        raise
    except Exception as error:  # whatever a file makes the accountant raise, the answer is no
        raise FileError(f"it cannot be recomputed: {type(error).__name__}: {error}") from None
    if folder is not None:
        problems += folder_faults(document, folder)
    if key is not None:
        problems += signing_faults(document, key)
    if approved is not None:
        before = approved if isinstance(approved, Certificate) else Certificate.load(approved)
        problems += _not_as_approved(document, before.document)
    if is_number(stated) and stated < achieved:
        attack = f"an explicit attack on the same search achieves {achieved:.6g}"
        problems.append(f"epsilon: the certificate says {stated!r}, but {attack}")
    return Verification(tuple(problems), document["public"]["warning"], folder is not None)


def _faults(document: Json, guarantee: Composition) -> list[str]:
    """The numbers that differ from the recomputed ones; none may be smaller than before it was rounded up."""
    delta = document["delta"]
    public = {**document["public"], "data_set": document["data_set"]}
    expected = {**issue(guarantee, delta, public).document, "statement": statement(document)}
    bounds = guarantee.bounds(delta)
    lines = {f"bounds.{name}": epsilon for name, epsilon in bounds.items()}
    lines |= {f"one_run.{name}": epsilon for name, epsilon in guarantee.one_run(delta).items()}
    lines |= {f"attacker.{name}": value for name, value in attacker(guarantee, delta).items()}
    least = {"epsilon": min(bounds.values()), "slack": guarantee.slack, **lines}
    words = document.get("statement")
    if isinstance(words, str) and words != expected["statement"]:
        worded = [f"statement: {_first_difference(words, expected['statement'])}{_of_version(document)}"]
        document = {**document, "statement": expected["statement"]}
    else:
        worded = []
    found = _differences(document, expected, least, "")
    return _shortened([*found, *worded, *_rungs(document, guarantee)])


def _first_difference(found: str, expected: str) -> str:
    """The first difference between a text and the one that the numbers give, with the words around it."""
    same = next((place for place, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other), None)
    same = min(len(found), len(expected)) if same is None else same
    line = expected.count("\n", 0, same) + 1
    start = max(expected.rfind("\n", 0, same) + 1, same - _BEFORE)
    said, now = (text[start:].partition("\n")[0][:_SHOWN] for text in (found, expected))
    return f"line {line} says {said!r}, and the numbers give {now!r}"


def _of_version(document: Json) -> str:
    versions, here = document.get("versions"), metadata.version("dphypo")
    wrote = versions.get("dphypo") if isinstance(versions, Mapping) else None
    by = "another version" if wrote is None else f"dphypo {printable(wrote, 30)}"
    return "" if wrote == here else f" ({by} wrote it, and {here} may word it differently)"


def _rungs(document: Json, guarantee: Composition) -> Iterator[str]:
    """The totals of a ladder, or points of a frontier, that are smaller than the cost of the stated runs."""
    releases = document["public"].get("releases", ())
    rungs = [part for part in releases if isinstance(part, Mapping) and part.get("part") == "rung"]
    starts = [number for number, term in enumerate(guarantee.terms) if not (term.scores or term.counts)]
    if not rungs:
        return
    if len(rungs) != len(releases) or len(rungs) != len(starts):
        yield f"public.releases: {len(rungs)} rungs are stated, and {len(starts)} runs"
        return
    delta, terms, ladder = document["delta"], guarantee.terms, any("until" in rung for rung in rungs)
    for number, (rung, end) in enumerate(zip(rungs, [*starts[1:], len(terms)], strict=True)):
        made = Composition(terms[:end] if ladder else terms[starts[number] : end])
        costs = {"epsilon": delta, **({"ex post": delta / len(rungs)} if ladder else {})}
        for name, at in costs.items():
            stated, cost = rung.get(name), made.epsilon(at)
            if not is_number(stated) or stated < cost:
                yield f"public.releases[{number}].{name}: the certificate says {stated!r}, recomputed it is {cost:.6g}"


def _not_as_approved(document: Json, approved: Json) -> Iterator[str]:
    """The differences between a certificate and the one that was approved before the search ran."""
    now, before = (
        {**{f"public.{name}": value for name, value in one["public"].items() if name != "released"}, **one}
        for one in (document, approved)
    )
    for name in sorted({*now, *before} - _ADDED - {"public"}):
        if now.get(name) != before.get(name):
            yield f"{name}: it differs from the certificate that was approved"


def _shortened(problems: list[str]) -> list[str]:
    """The problems; if ε itself is wrong, without a line for each number that follows from it."""
    kept = [one for one in problems if not one.startswith(("bounds", "profile", "one_run", "attacker", "statement"))]
    left = len(problems) - len(kept)
    if left < 2 or not any(one.startswith("epsilon:") for one in kept):
        return problems
    return [*kept, f"{left} other numbers that follow from the runs it states are wrong, too"]


def _shape(document: Json) -> Iterator[str]:
    """Missing values and values of the wrong type, before anything is computed."""
    public = document.get("public")
    if not isinstance(public, Mapping):
        yield "public: should be an object"
        return
    for name in ("unit", "warning", "entropy"):
        if name not in public:
            yield f"public.{name}: is missing"
    for name, known in (("unit", UNITS), ("entropy", ENTROPIES)):
        if name in public and public[name] not in known:
            yield f"public.{name}: {public[name]!r} is not one of {', '.join(known)}"
    for name in ("warning", "lost runs"):  # the statement quotes them
        text = public.get(name)
        if text is not None and (not isinstance(text, str) or not text.isprintable()):
            yield f"public.{name}: {text!r} should be a text on one line, or null"
    if not isinstance(public.get("rows per person", 1), int):
        yield f"public.rows per person: {public['rows per person']!r} should be a whole number"
    if public.get("entropy") == "seeded" and public.get("warning") is None:
        yield "public.warning: the search was seeded, so nothing is guaranteed, but there is no warning"
    if not is_number(delta := document.get("delta")) or not 0 <= delta < 1:
        yield f"delta: {delta!r} should be a number in [0, 1)"
    for name, fits in _TIES.items():
        if name not in document:
            yield f"{name}: is missing"
        elif document[name] is not None and not fits(document[name]):
            yield f"{name}: {document[name]!r} is not valid"


def _is_day(value: object) -> bool:
    with contextlib.suppress(ValueError):
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    return False


def _is_release(value: object) -> bool:
    if not isinstance(value, Mapping) or set(value) != {"model_sha256", "described_sha256"}:
        return False
    digests = [text for name, text in value.items() if text is not None or name == "described_sha256"]
    return all(isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) for text in digests)


def guarantee_of(certificate: Certificate | Json | str | os.PathLike[str]) -> Composition:
    """The guarantee that a certificate states, recomputed: to compose or reserve it.

    It is what the document *says*; whether its numbers are right is for :func:`verify`. Two documents that state the
    same split by a hash may be of two forms of the records, whose values differ: a record that trains in one search may
    score in the other. So their splits are different ones.
    """
    given = certificate.document if isinstance(certificate, Certificate) else certificate
    document = given if isinstance(given, Mapping) else read(Path(given))
    Certificate.from_dict(document)
    check(document)
    name = secrets.token_hex(16)
    try:
        whole = from_json(document, BUDGET)
        return Composition(tuple(replace(term, side=term.side.of_records(name)) for term in whole.terms))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the certificate does not state a guarantee that this version reads ({error})") from None


def from_json(document: Json, budget: float) -> Composition:
    """The guarantee that a document states, recomputed; refused if that would take more work than ``budget``."""
    relation, grid, work = dp_accounting.NeighboringRelation[document["relation"]], document["grid"], _Work(budget)
    terms = tuple(
        Term(
            _releases(term, relation, grid, work),
            Side.from_json(term["reads"]),
            **{name: bool(term.get(name, False)) for name in KINDS},
        )
        for term in document["terms"]
    )
    splits = {split for term in terms for split, _ in term.side.conditions}
    work.add(_COMPOSED * len(terms) * 2 ** min(len(splits), 6))
    return Composition(terms)


def _releases(term: Json, relation: dp_accounting.NeighboringRelation, grid: float, work: _Work) -> Releases:
    published = term.get("published")
    if "published" in term and (type(published) is not int or not 1 <= published <= MOST_STEPS):
        raise FileError("published: should be a number of runs")
    each, of_law, law, runs = _PUBLISHED, 0.0, None, published or 1
    if "published" not in term:
        of_law = _LISTED * len(listed) if isinstance(listed := term["runs"]["law"].get("probabilities"), Mapping) else 0
        work.add(of_law)  # before the list is read
        law, band = laws.from_dict(term["runs"]["law"]), Band(term["band"]["c"], term["band"]["C"])
        policy, first = term["policy"]["class"], term["policy"]["first_from_prior"]
        each = _SEARCHED
        if policy == PolicyClass.HISTORY.value and band.c < band.C:
            each += _HISTORY * (30 + law.quantile(1 - 1e-9))
    found = []
    for described in term["events"]:
        event = events.from_dict(described)
        key = (json.dumps(described, sort_keys=True), each, of_law, runs)
        work.add(1e-4 if key in work.known else each + of_law + _BINS * check_event(event, grid, runs))
        work.known.add(key)
        found.append(event)
    if law is not None:
        return account(found, law, band, relation=relation, grid=grid, policy=policy, first_from_prior=first)
    return account_published(found, runs, relation=relation, grid=grid)


class _Work:
    """An estimate of the seconds that recomputing a document takes; equal events and laws count once."""

    def __init__(self, budget: float) -> None:
        self.budget, self.seconds = budget, 0.0
        self.known: set[tuple[str, float, float, int]] = set()

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        if self.seconds > self.budget:
            raise FileError(
                f"it would take about {self.seconds:.0f} seconds or more to recompute, and the budget is "
                f"{self.budget:g}: nothing was computed. If you trust the file, give a larger budget (budget=600 in "
                "Python, --budget 600 for dphypo verify)"
            )


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a number; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and 1 <= len(value) <= MOST_PARTS


def is_name(value: Any) -> bool:
    """Whether a JSON value is a short text that can be printed."""
    return isinstance(value, str) and 0 < len(value) <= _validate.LONGEST_NAME and value.isprintable()


_TIES = {"declared": _is_day, "data_set": is_name, "release": _is_release}


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
    if isinstance(value, Mapping) and not all(
        isinstance(name, str) and len(name) <= _validate.LONGEST_NAME for name in value
    ):
        raise FileError("a name is too long")
    yield value
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _values(part, depth + 1)


def check_law(runs: Any) -> None:
    """Bound what a law of T, under "law", would take to evaluate."""
    law = runs.get("law") if isinstance(runs, Mapping) else None
    if not isinstance(law, Mapping):
        return
    for name in ("mean", "shape"):
        if isinstance(law.get(name), (int, float)) and not abs(law[name]) <= MOST_MEAN:
            raise FileError(f"the {name} of the law of T is too large to be verified")
    if isinstance(law.get("gamma"), (int, float)) and not 1 / MOST_MEAN <= law["gamma"] <= 1:
        raise FileError("the law of T is too wide to be verified")
    if isinstance(listed := law.get("probabilities"), Mapping):
        long = any(len(str(k)) > 9 or len(str(p)) > 400 for k, p in listed.items())
        if long or len(listed) > MOST_POINTS:
            raise FileError("the law of T lists too many values, or too large ones")


def check_event(event: object, grid: float, runs: int = 1) -> float:
    """About how many bins a canonical event takes; refused if that is too long or too much memory."""
    event = ideal(event)
    if isinstance(event, RdpCurve) and len(event.orders) > MOST_ORDERS:
        raise FileError(f"an RdpCurve of {len(event.orders)} orders is too long to be verified")
    if not isinstance(event, dp_accounting.DpEvent):
        spread = math.sqrt(runs) * min(getattr(event, "epsilon", 0.0), MOST_SPREAD)  # of randomised responses
        if runs > 1 and not (spread <= MOST_SPREAD and spread * (spread / 2 + 9) / grid <= MOST_BINS):
            raise FileError("the runs have so little noise that their losses are too large to be verified")
        return spread * (spread / 2 + 9) / grid if runs > 1 else 0.0
    _check_parts(event)
    steps, variance, parts, most = 0, 0.0, 0, 0.0
    for leaf, count, rate in dp_library.leaves(event):
        steps, parts, moved = steps + count, parts + 1, dp_library.sensitivity(leaf)
        variance += runs * count * (rate * moved) ** 2
        if parts > MOST_PARTS or steps > MOST_STEPS:
            raise FileError(f"an event of over {MOST_STEPS} steps, or {MOST_PARTS} parts, is too long to be verified")
        spread = max(math.sqrt(variance), moved)
        most = max(most, spread * (spread / 2 + 9) / grid)
        if not spread <= MOST_SPREAD or not most <= MOST_BINS:
            raise FileError("the event has so little noise that its losses are too large to be verified")
    return most * (1 + parts / 20)


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


# The folder of a release


def folder_faults(document: Json, folder: Path) -> Iterator[str]:
    """Whether the model and the parameters in a folder are those that the certificate names."""
    if document["release"] is None:
        yield "release: the certificate names no model, so it does not cover the one in this folder"
        return
    try:
        described = read(folder / "release.json", "description of a release", within=folder)
    except FileNotFoundError:
        yield "release: there is no release.json in the folder, so it is not a saved release"
        return
    of_surveys = {stem: sha for models in survey_models(document) for stem, sha in models if sha is not None}
    stems = {path.name: path.name.partition(".")[0] for path in folder.glob("*")}
    more = sorted({name for name, stem in stems.items() if stem != "model" and stem not in of_surveys} - _FILES)
    if more:
        shown = ", ".join(more[:_MOST_NAMED]) + (" and others" if more[_MOST_NAMED:] else "")
        yield f"release: {shown}: not part of the release, so the certificate does not cover it. Move it elsewhere"
    models, named = sorted(folder.glob("model.*")), document["release"]["model_sha256"]
    if len(models) != (0 if named is None else 1):
        many = "more than one model" if named else "a model that it does not name"
        yield f"release: {f'the folder holds {many}' if models else 'the model is missing from the folder'}"
        return
    model = _files.read(models[0], "model", most=_files.MOST_MODEL_BYTES, within=folder) if models else None
    try:
        found = fingerprints(model, described, document)
    except ValueError as error:
        yield f"release: {error}"
        return
    if found["model_sha256"] != named:
        yield "release.model_sha256: the model in the folder is not the one that was certified"
    if found["described_sha256"] != document["release"]["described_sha256"]:
        yield "release.described_sha256: the parameters in the folder, or the certificate, were changed"
    for stem, sha256 in of_surveys.items():
        files = [folder / name for name, other in stems.items() if other == stem]
        contents = [_files.read(one, "model", most=_files.MOST_MODEL_BYTES, within=folder) for one in files]
        if [hashlib.sha256(one).hexdigest() for one in contents] != [sha256]:
            yield f"release: {stem}: the model of a run of a survey is missing, or is not the one that was certified"
    yield from _tables(document, folder)


def survey_models(document: Json) -> list[list[tuple[str, str | None]]]:
    """For each table of a survey, the names of the models that it published, without their ends, and their hashes.

    A failed run has no hash.
    """
    stated = document["public"].get("released", ())
    tables = [one for one in stated if isinstance(one, Mapping) and "sha256" in one] if isinstance(stated, list) else []
    found = (models if isinstance(models := one.get("models"), list) else [] for one in tables)
    return [
        [(model_stem(survey, run), one if isinstance(one, str) else None) for run, one in enumerate(models)]
        for survey, models in enumerate(found)
    ]


def model_stem(survey: int, run: int) -> str:
    """The name of a model that a survey published, both counted from 0."""
    return f"survey-{survey + 1}-run-{run + 1:03d}"


def _tables(document: Json, folder: Path) -> Iterator[str]:
    """Whether the tables of surveys in a folder are those that the certificate names, in their order, and paid for."""
    path = folder / "surveys.json"
    with _files.parsing(folder / "certificate.json", "its description of tables is damaged"):
        # The scale of the inputs is no table, and no run pays for it.
        released = enumerate(one for one in document["public"].get("released", ()) if "input_scale" not in one)
        named = [
            (one["sha256"], one.get("survey"), one.get("failed"), place) for place, one in released if "sha256" in one
        ]
        paid = [term.get("published", 0) for term in document["terms"] if not any(map(term.get, KINDS))]  # by part
    try:
        tables = _files.read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=folder)
    except FileNotFoundError:
        tables = []
    with _files.parsing(path, "it was not written by Release.save"):
        found = [table_hash(table) for table in tables]
    if len(found) != len(named):
        yield f"surveys.json: the folder has {len(found)} tables of surveys, and the certificate names {len(named)}"
        return
    if found != [sha256 for sha256, *_ in named]:
        yield "surveys.json: it holds a table that the certificate does not name, so it was changed"
        return
    with _files.parsing(path, "it was not written by Release.save"):
        scores = [[row["score"] for row in table["rows"]] for table in tables]
    for one, (_, runs, failed, place) in zip(scores, named, strict=True):
        if (runs, failed) != (len(one), one.count(None)):
            shown = f"{len(one)} runs, {one.count(None)} failed; the certificate says {runs}, {failed}"
            yield f"surveys.json: a table has {shown}"
        if len(one) > (most := sum(paid[place : place + 1])):
            yield f"surveys.json: a table has {len(one)} runs, and the certificate pays for {most}"


def signing_faults(document: Json, public: Ed25519PublicKey) -> Iterator[str]:
    """Why a document is not signed by the owner of a key; nothing if it is."""
    from cryptography.exceptions import InvalidSignature

    stated = document.get("signature")
    if not isinstance(stated, Mapping) or stated.get("algorithm") != ALGORITHM:
        yield "signature: the certificate is not signed"
        return
    try:
        public.verify(base64.b64decode(str(stated.get("value")), validate=True), signed_bytes(document))
    except (InvalidSignature, binascii.Error, ValueError):
        yield "signature: it is not the signature of this certificate by this key"


def _differences(found: Any, expected: Any, least: Mapping[str, float], path: str) -> Iterator[str]:
    """Every line that differs, numbers up to the tolerance."""
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            yield f"{path}: {json.dumps(found)} should be an object"
            return
        for key in sorted({*expected, *found} - (_ADDED if not path else set())):
            line = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{line}: is missing"
            elif key not in expected:
                yield f"{line}: is not part of a certificate"
            else:
                yield from _differences(found[key], expected[key], least, line)
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            yield f"{path}: should be a list of {len(expected)}"
            return
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, least, f"{path}[{index}]")
    elif not _same(found, expected, least, path):
        yield f"{path}: the certificate says {found!r}, recomputed it is {expected!r}"


def _same(found: Any, expected: Any, least: Mapping[str, float], path: str) -> bool:
    """Whether a value is the recomputed one. An ε may be larger by a little, and not smaller than before rounding."""
    if not isinstance(found, (int, float)) or not isinstance(expected, (int, float)) or isinstance(found, bool):
        return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)
    size = abs(expected)
    most = expected + _LARGER * size + (2e-5 if path.startswith("attacker.") else 1e-9)
    if path in least:
        return least[path] <= found <= most
    relative, absolute = _SMALLER_DELTA if path.startswith("profile.delta") else (1e-6, 5e-6)
    return bool(expected - relative * size - absolute <= found <= most)
