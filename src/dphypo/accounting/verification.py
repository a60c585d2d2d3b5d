"""Verification: recompute a certificate, compare it with a second opinion, and say what is wrong, if anything."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphypo import _files, _validate
from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting import documents
from dphypo.accounting.certificate import ENTROPIES, UNITS, Certificate, folder_faults, issue, read_key, signing_faults
from dphypo.accounting.composition import Composition
from dphypo.accounting.documents import from_json, is_name, is_number
from dphypo.accounting.second_opinion import second_opinion
from dphypo.accounting.statement import statement
from dphypo.errors import FileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_FAR = 0.02  # an independent upper bound further away than this is worth a remark
_LARGER = 1e-4  # relative: what is stated beside ε may be larger by a little
_SMALLER_DELTA = (1e-3, 1e-11)  # relative and absolute: a δ of 1e-11 is at the noise of Fourier transforms
_NOT_COMPARED = {"versions", "citation", "declared", "data_set", "release", "signature"}
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Verification:
    """What came of a verification: true if nothing is wrong. ``warning`` is the certificate's own."""

    problems: tuple[str, ...]
    warning: str | None = None
    remarks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        remarks = "".join(f"\nremark: {printable(remark)}" for remark in self.remarks)
        if not self:
            shown = [f"  {printable(problem)}" for problem in self.problems[:_MOST_PROBLEMS]]
            more = len(self.problems) - len(shown)
            return "no, because\n" + "\n".join(shown) + (f"\n  and {more} more" if more else "") + remarks
        warned = "" if self.warning is None else f"\nbut it carries a warning: {printable(self.warning)}"
        return f"yes: every number of the certificate follows from the runs that it states{warned}{remarks}"


def verify(
    certificate: Certificate | str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    approved: Certificate | str | os.PathLike[str] | None = None,
) -> Verification:
    """Check a certificate, a file that holds one, or the folder of a release.

    The numbers are recomputed from the runs that the certificate states; ε may not be smaller. They are
    also compared with a second computation that shares no code with the first: ε may not be below its lower bound. In
    the folder of a release the model, the parameters and the tables of surveys must be those that the certificate
    names, no table may have more runs than it pays for, and there may be no other file. That the event describes what
    was run is up to whoever states it.

    A file that is not a certificate, or would take too long to check, is answered with "no" too.

    Args:
        certificate: the certificate, its file, or a folder that holds ``certificate.json``.
        key: a file with an Ed25519 public key; then the certificate must be signed by it.
        approved: the certificate that the search saved before it ran, or its file; then what was declared must be the
            same. What the search published, its day and the signature are added later and are not compared.
    """
    public = None if key is None else read_key(_validate.path(key=key), "public")
    try:
        return _verify(certificate, public, approved)
    except (FileError, OSError) as refused:
        return Verification((str(refused),))
    except (RecursionError, MemoryError, OverflowError) as error:
        return Verification((f"it cannot be recomputed within bounds ({type(error).__name__})",))


def _verify(
    certificate: Certificate | str | os.PathLike[str],
    key: Ed25519PublicKey | None,
    approved: Certificate | str | os.PathLike[str] | None,
) -> Verification:
    folder = None
    if isinstance(certificate, Certificate):
        document = certificate.to_dict()
    else:
        path = _validate.path(certificate=certificate)
        folder, document = path if _files.is_folder(path) else None, documents.read(path)
    if problems := list(_shape(Certificate.from_dict(document).document)):
        return Verification(tuple(problems))
    documents.check(document)
    try:
        guarantee = from_json(document)
        opinion, stated = second_opinion(guarantee, document["delta"]), document["epsilon"]
        problems = _faults(document, guarantee)
    except FileError:
        raise
    except Exception as error:  # whatever a stranger's file makes the accountant raise is the answer no
        raise FileError(f"it cannot be recomputed: {type(error).__name__}: {error}") from None
    if folder is not None:
        problems += folder_faults(document, folder)
    if key is not None:
        problems += signing_faults(document, key)
    if approved is not None:
        before = approved if isinstance(approved, Certificate) else Certificate.load(approved)
        problems += _not_as_approved(document, before.document)
    remarks: list[str] = []
    if is_number(stated):
        if stated < opinion.lower:
            attack = f"an explicit attack on the same search achieves {opinion.lower:.6g}"
            problems.append(f"epsilon: the certificate says {stated!r}, but {attack}")
        remarks += _remarks(stated, opinion.upper, opinion.why)
    return Verification(tuple(problems), document["public"]["warning"], tuple(remarks))


def _faults(document: Json, guarantee: Composition) -> list[str]:
    """What is not as it is recomputed; no line may say less than ε was before it was rounded up."""
    delta = document["delta"]
    expected = {**issue(guarantee, delta, document["public"]).document, "statement": statement(document)}
    bounds = guarantee.bounds(delta)
    lines = {f"bounds.{name}": epsilon for name, epsilon in bounds.items()}
    lines |= {f"one_run.{name}": epsilon for name, epsilon in guarantee.one_run(delta).items()}
    least = {"epsilon": min(bounds.values()), "slack": guarantee.slack, **lines}
    return _shortened(list(_differences(document, expected, least, "")))


_ADDED = {"release", "declared", "signature", "versions"}  # after a search was approved


def _not_as_approved(document: Json, approved: Json) -> Iterator[str]:
    """What a certificate declares otherwise than the one that was approved before the search ran."""
    now, before = (
        {**{f"public.{name}": value for name, value in one["public"].items() if name != "released"}, **one}
        for one in (document, approved)
    )
    for name in sorted({*now, *before} - _ADDED - {"public"}):
        if now.get(name) != before.get(name):
            yield f"{name}: it differs from the certificate that was approved"


def _shortened(problems: list[str]) -> list[str]:
    """Where ε itself is wrong, the numbers that follow from it are not listed one by one."""
    kept = [one for one in problems if not one.startswith(("bounds", "profile", "one_run", "statement"))]
    left = len(problems) - len(kept)
    if left < 2 or not any(one.startswith("epsilon:") for one in kept):
        return problems
    return [*kept, f"{left} other numbers that follow from the runs it states are wrong, too"]


def _remarks(stated: float, upper: float, why: str) -> Iterator[str]:
    if math.isinf(upper):
        yield f"the second computation confirms that epsilon is not too small by an attack only ({why or 'no bound'})"
    elif abs(upper - stated) > _FAR * max(stated, 1e-3):
        yield f"the second computation's own bound, {upper:.5g}, is more than {_FAR:.0%} from the epsilon stated"


def _shape(document: Json) -> Iterator[str]:
    """What has to be there, and of which kind, before anything is computed."""
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
    if public.get("entropy") == "seeded" and public.get("warning") is None:
        yield "public.warning: the search was seeded, so that nothing is guaranteed, and there is no warning"
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


_TIES = {"declared": _is_day, "data_set": is_name, "release": _is_release}


def guarantee_of(certificate: Certificate | Json | str | os.PathLike[str]) -> Composition:
    """The guarantee that a certificate states, accounted afresh: to compose or reserve it.

    It is what the document *says*; whether its numbers are right is for :func:`verify`.
    """
    given = certificate.document if isinstance(certificate, Certificate) else certificate
    document = given if isinstance(given, Mapping) else documents.read(Path(given))
    Certificate.from_dict(document)
    documents.check(document)
    try:
        return from_json(document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the certificate does not state a guarantee that this version reads ({error})") from None


def _differences(found: Any, expected: Any, least: Mapping[str, float], path: str) -> Iterator[str]:
    """Every line that differs, numbers up to the tolerance."""
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            yield f"{path}: {json.dumps(found)} should be an object"
            return
        for key in sorted({*expected, *found} - (_NOT_COMPARED if not path else set())):
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
    most = expected + _LARGER * size + 1e-9
    if path in least:
        return least[path] <= found <= most
    relative, absolute = _SMALLER_DELTA if path.startswith("profile.delta") else (1e-6, 5e-6)
    return bool(expected - relative * size - absolute <= found <= most)
