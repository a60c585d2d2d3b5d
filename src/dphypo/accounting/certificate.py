"""Certificates: the guarantee of a search as a document of public values, which anyone can recompute.

A certificate can be tied to what it certifies: the day of the declaration (and no other time: a second date would tell
how long the search took), the public name of the data set, and the bytes of the model and the parameters released. The
folder of a release must hold what ``Release.save`` wrote, and nothing else. An Ed25519 signature (RFC 8032) adds who
states it, by the ``cryptography`` package: the extra ``sign``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dphypo import _files, _validate
from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting import documents
from dphypo.accounting.composition import Composition
from dphypo.accounting.documents import plain, to_json
from dphypo.accounting.second_pair import run_epsilon_from_below
from dphypo.accounting.solve import round_epsilon
from dphypo.accounting.statement import statement
from dphypo.errors import FileError, UnaccountableError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "dphypo certificate 3"
ENTROPIES = ("system", "seeded")  # where the randomness of the search comes from
UNITS = ("record", "person", "user", "client", "device", "household", "document")
CITATIONS = [
    "H. Wang, S. Gao, H. Zhang, W. J. Su, M. Shen. DP-HyPO: An Adaptive Private Hyperparameter Optimization "
    "Framework. NeurIPS 2023.",
    "N. Papernot, T. Steinke. Hyperparameter Tuning with Renyi Differential Privacy. ICLR 2022.",
]
_ALGORITHM = "Ed25519"
_MAKE_KEY = {
    "private": "openssl genpkey -algorithm ed25519 -out private.pem",
    "public": "openssl pkey -in private.pem -pubout -out public.pem",
}
_PROFILE_POINTS = 41
_FILES = {"certificate.json", "release.json", "surveys.json"}  # of a release, beside its model
_MOST_NAMED = 5  # of other files there
_MOST_COMPARED = 8  # events of one run whose cost is compared with an explicit test


@dataclass(frozen=True)
class Certificate:
    """A guarantee, written down. ``document`` holds JSON values; every one of them is public.

    Guarantee: the release of the search that it describes is (``epsilon``, ``delta``)-DP under the stated relation,
    unless it says in ``warning`` why not.
    """

    document: Json = field(repr=False)

    @property
    def epsilon(self) -> float:
        """ε of the whole search."""
        return float(self.document["epsilon"])

    @property
    def delta(self) -> float:
        """The δ at which ε was computed."""
        return float(self.document["delta"])

    @property
    def warning(self) -> str | None:
        """Why the numbers do not guarantee anything; ``None`` if they do."""
        warning = self.document["public"]["warning"]
        return None if warning is None else str(warning)

    def statement(self) -> str:
        """The guarantee in plain words: who is protected, against what, and what the number covers."""
        return str(self.document["statement"])

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return dict(self.document)

    @classmethod
    def from_dict(cls, document: Json) -> Certificate:
        """The certificate of a document; its format is checked here, its numbers by :func:`dphypo.verify`."""
        given = document if isinstance(document, Mapping) else {}
        if (found := given.get("format")) == FORMAT:
            return cls(dict(document))
        if "ending" in given:
            raise FileError("this is release.json of a saved release, not its certificate: give the folder")
        shown = printable(found, 40)
        if shown.startswith("dphypo certificate"):
            why = f"of another version, which may state numbers that are too small: this one reads {FORMAT!r}"
            raise FileError(f"format = {shown!r} is {why}. Account for the search again and certify it anew")
        raise FileError(f"this is not a certificate: its format is {shown!r} and not {FORMAT!r}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document to a file, whole or not at all; an existing file is replaced."""
        return _files.write_json(path, self.document)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file."""
        found = documents.read(_validate.path(path=path))
        try:
            return cls.from_dict(found)
        except FileError as error:
            raise FileError(f"{printable(path)}: {error}") from None

    def declared_on(self, day: str) -> Certificate:
        """The certificate with the day on which the search was declared, such as "2026-11-15"."""
        date.fromisoformat(day)
        return self._with(declared=day)

    def for_release(self, model: bytes | None, described: Json) -> Certificate:
        """The certificate tied to the bytes of a model, if there is one, and to what is released beside it, as JSON."""
        return self._with(release=fingerprints(model, described, self.document["public"]))

    def signed(self, key: str | os.PathLike[str]) -> Certificate:
        """The certificate, signed with the Ed25519 private key in a PEM file; needs the extra ``sign``."""
        value = base64.b64encode(read_key(Path(key), "private").sign(_signed(self.document))).decode("ascii")
        return Certificate({**self.document, "signature": {"algorithm": _ALGORITHM, "value": value}})

    def _with(self, **changes: Any) -> Certificate:
        document = {**self.document, **changes}
        document.pop("signature", None)  # what was signed has changed
        return Certificate(document)

    def __repr__(self) -> str:
        return f"Certificate(epsilon={self.epsilon:.6g}, delta={self.delta:g}, bound={self.document['bound']!r})"


def issue(guarantee: Composition, delta: float, public: Mapping[str, object]) -> Certificate:
    """The certificate of a guarantee at δ. ``public`` adds what else may be published, such as the space."""
    _refuse_contradictions(guarantee, delta)
    bounds = {name: round_epsilon(epsilon) for name, epsilon in guarantee.bounds(delta).items()}
    name = min(bounds, key=bounds.__getitem__)
    stated: dict[str, Any] = {"unit": "record", "entropy": "system", "warning": None} | dict(public)
    data_set = stated.pop("data_set", None)
    if stated["unit"] not in UNITS:
        raise _validate.fail("unit", stated["unit"], f"it is one of {', '.join(UNITS)}")
    if data_set is not None:
        _validate.line(most=_validate.LONGEST_NAME, data_set=data_set)
    epsilons, deltas = guarantee.profile(_PROFILE_POINTS)
    document = {
        "format": FORMAT,
        "statement": "",
        "epsilon": bounds[name],
        "delta": float(delta),
        "bound": name,
        "bounds": bounds,
        "slack": guarantee.slack,
        "one_run": {name: round_epsilon(epsilon) for name, epsilon in guarantee.one_run(delta).items()},
        **to_json(guarantee),
        "profile": {"epsilon": epsilons.tolist(), "delta": deltas.tolist()},
        "public": json.loads(json.dumps(stated)),
        "data_set": data_set,
        "declared": None,
        "release": None,
        "versions": {name: metadata.version(name) for name in ("dphypo", "dp-accounting", "numpy", "scipy")}
        | {"python": platform.python_version()},
        "citation": CITATIONS,
    }
    written = plain(document)
    return Certificate({**written, "statement": statement(written)})


def _refuse_contradictions(guarantee: Composition, delta: float) -> None:
    """Refuse to certify if an accountant's ε of one run is below a proven lower bound."""
    for one in (term.releases for term in guarantee.terms):
        compared = one.events[:_MOST_COMPARED]
        least = max(run_epsilon_from_below(event, one.relation, delta) for event in compared)
        for name, epsilon in one.run.epsilons(delta).items():
            if epsilon < least - 1e-6:
                raise UnaccountableError(
                    f"the {name} accountant says that one run costs epsilon = {epsilon:.6g} at delta = {delta:g}, but "
                    f"an explicit test of the same event achieves {least:.6g}: nothing is certified. This is a fault "
                    f"of dp_accounting or of dphypo; please report the event {one.events[0]!r}"
                )


def fingerprints(model: bytes | None, described: Json, public: Json) -> dict[str, Any]:
    """SHA-256 of the released model's bytes, and of what is released and public beside it as canonical JSON."""
    return {
        "model_sha256": None if model is None else hashlib.sha256(model).hexdigest(),
        "described_sha256": hashlib.sha256(canonical_json({"release": described, "public": public})).hexdigest(),
    }


def canonical_json(value: Any) -> bytes:
    """One spelling for equal JSON values, which are hashed and signed: sorted names, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def table_hash(table: Any) -> str:
    """SHA-256 of the published table of a survey, in JSON values, as the certificate has it."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def signing_faults(document: Json, public: Ed25519PublicKey) -> Iterator[str]:
    """Why a document is not signed by the owner of a key; nothing if it is."""
    from cryptography.exceptions import InvalidSignature

    stated = document.get("signature")
    if not isinstance(stated, Mapping) or stated.get("algorithm") != _ALGORITHM:
        yield "signature: the certificate is not signed"
        return
    try:
        public.verify(base64.b64decode(str(stated.get("value")), validate=True), _signed(document))
    except (InvalidSignature, binascii.Error, ValueError):
        yield "signature: it is not the signature of this certificate by this key"


def read_key(path: Path, which: Literal["private", "public"]) -> Any:
    """The Ed25519 key in a PEM file without a passphrase."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise ImportError("signatures need the package cryptography: pip install 'dphypo[sign]'") from None
    kind = ed25519.Ed25519PublicKey if which == "public" else ed25519.Ed25519PrivateKey

    def parse(content: bytes) -> Any:
        found = load_pem_public_key(content) if which == "public" else load_pem_private_key(content, None)
        if not isinstance(found, kind):
            raise ValueError(f"a key of type {type(found).__name__}")
        return found

    wrong = f"it holds no Ed25519 {which} key without a passphrase"
    try:
        return _files.parsed(parse, path, f"{which} key", wrong=wrong, most=2**16)
    except FileError as error:
        raise type(error)(f"{error}: `{_MAKE_KEY[which]}` makes one") from None


def _signed(document: Json) -> bytes:
    return canonical_json({name: value for name, value in document.items() if name != "signature"})


def folder_faults(document: Json, folder: Path) -> Iterator[str]:
    """Whether the model and the parameters in a folder are those that the certificate names."""
    if document["release"] is None:
        yield "release: the certificate names no model, so that it says nothing of the one in this folder"
        return
    try:
        described = documents.read(folder / "release.json", "description of a release", within=folder)
    except FileNotFoundError:
        yield "release: there is no release.json in the folder, so that it is no saved release"
        return
    more = sorted({path.name for path in folder.glob("*") if not path.name.startswith("model.")} - _FILES)
    if more:
        shown = ", ".join(more[:_MOST_NAMED]) + (" and others" if more[_MOST_NAMED:] else "")
        yield f"release: {shown}: not part of the release, so that nothing is certified of it. Move it elsewhere"
    models, named = sorted(folder.glob("model.*")), document["release"]["model_sha256"]
    if len(models) != (0 if named is None else 1):
        many = "more than one model" if named else "a model that it does not name"
        yield f"release: {f'the folder holds {many}' if models else 'the model is missing from the folder'}"
        return
    model = _files.read(models[0], "model", most=_files.MOST_MODEL_BYTES, within=folder) if models else None
    try:
        found = fingerprints(model, described, document["public"])
    except ValueError as error:
        yield f"release: {error}"
        return
    if found["model_sha256"] != named:
        yield "release.model_sha256: the model in the folder is not the one that was certified"
    if found["described_sha256"] != document["release"]["described_sha256"]:
        public = "what the certificate calls public"
        yield f"release.described_sha256: the parameters in the folder, or {public}, were changed"
    yield from _tables(document, folder)


def _tables(document: Json, folder: Path) -> Iterator[str]:
    """Whether the tables of surveys in a folder are those that the certificate names, in their order, and paid for."""
    path = folder / "surveys.json"
    with _files.parsing(folder / "certificate.json", "what it says of tables is damaged"):
        released = enumerate(document["public"].get("released", ()))
        named = [
            (one["sha256"], one.get("survey"), one.get("failed"), place) for place, one in released if "sha256" in one
        ]
        paid = [term.get("published", 0) for term in document["terms"] if not term.get("scores")]  # by the part
    try:
        tables = documents.read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=folder)
    except FileNotFoundError:
        tables = []
    with _files.parsing(path, "it was not written by Release.save"):
        found = [table_hash(table) for table in tables]
    if len(found) != len(named):
        yield f"surveys.json: the folder has {len(found)} tables of surveys, and the certificate names {len(named)}"
        return
    if found != [sha256 for sha256, *_ in named]:
        yield "surveys.json: it holds a table that the certificate does not name: it was changed"
        return
    with _files.parsing(path, "it was not written by Release.save"):
        scores = [[row["score"] for row in table["rows"]] for table in tables]
    for one, (_, runs, failed, place) in zip(scores, named, strict=True):
        if (runs, failed) != (len(one), one.count(None)):
            shown = f"{len(one)} runs, {one.count(None)} failed; the certificate says {runs}, {failed}"
            yield f"surveys.json: a table has {shown}"
        if len(one) > (most := sum(paid[place : place + 1])):
            yield f"surveys.json: a table has {len(one)} runs, and the certificate pays for {most}"
