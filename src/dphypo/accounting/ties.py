"""What ties a certificate to the folder of a release, and to whoever states it.

The folder must hold what was certified, and nothing else. A certificate proves that its numbers follow from what it
states; an Ed25519 signature (RFC 8032) adds who states it, by the ``cryptography`` package: the extra ``sign``.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphypo import _files
from dphypo._files import Json, printable
from dphypo.accounting import untrusted
from dphypo.accounting.certificate import Certificate, canonical_json, fingerprints, table_hash
from dphypo.errors import FileError
from dphypo.errors.faults import MissingFileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_ALGORITHM = "Ed25519"


def sign(certificate: Certificate, key: Path) -> Certificate:
    """The certificate, signed with the Ed25519 private key in a PEM file without a passphrase."""
    private = _key(key, "private")
    document = certificate.to_dict()
    document.pop("signature", None)
    value = base64.b64encode(private.sign(_signed(document))).decode("ascii")
    return type(certificate)({**document, "signature": {"algorithm": _ALGORITHM, "value": value}})


def read_public(key: Path) -> Ed25519PublicKey:
    """The Ed25519 public key in a PEM file."""
    found: Ed25519PublicKey = _key(key, "public")
    return found


def signature_problems(document: Json, public: Ed25519PublicKey) -> Iterator[str]:
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


_MAKE = {
    "private": "openssl genpkey -algorithm ed25519 -out private.pem",
    "public": "openssl pkey -in private.pem -pubout -out public.pem",
}


def _key(path: Path, which: str) -> Any:
    """The key in a PEM file."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise ImportError("signatures need the package cryptography: pip install 'dphypo[sign]'") from None
    make, found = f"`{_MAKE[which]}` makes one", None
    try:
        content = _files.read(path, f"{which} key", most=2**16)
    except FileError as error:
        raise type(error)(f"{error}: {make}") from None
    with contextlib.suppress(ValueError, TypeError):  # TypeError: it asks for a passphrase
        found = load_pem_public_key(content) if which == "public" else load_pem_private_key(content, None)
    if not isinstance(found, ed25519.Ed25519PublicKey if which == "public" else ed25519.Ed25519PrivateKey):
        raise FileError(f"{printable(path)} holds no Ed25519 {which} key without a passphrase: {make}")
    return found


def _signed(document: Json) -> bytes:
    return canonical_json({name: value for name, value in document.items() if name != "signature"})


def folder_problems(document: Json, folder: Path) -> Iterator[str]:
    """Whether the model and the parameters in a folder are those that the certificate names."""
    if document["release"] is None:
        yield "release: the certificate names no model, so that it says nothing of the one in this folder"
        return
    try:
        described = untrusted.read(folder / "release.json", "description of a release", within=folder)
    except MissingFileError:
        yield "release: there is no release.json in the folder, so that it is no saved release"
        return
    models, named = sorted(folder.glob("model.*")), document["release"]["model_sha256"]
    if bool(models) != (named is not None):
        missing = "the model is missing from the folder" if named else "the folder holds a model that it does not name"
        yield f"release: {missing}"
        return
    if len(models) > 1:
        yield "release: the folder holds more than one model"
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
        changed = "the parameters in the folder, or what the certificate calls public, were changed"
        yield f"release.described_sha256: {changed}"
    yield from _tables(document, folder)


def _tables(document: Json, folder: Path) -> Iterator[str]:
    """Whether the tables of surveys in a folder are those that the certificate names, in their order."""
    path = folder / "surveys.json"
    with _files.parsing(folder / "certificate.json", "what it says of tables is damaged"):
        named = [one["sha256"] for one in document["public"].get("released", ()) if "sha256" in one]
    try:
        tables = untrusted.read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=folder)
    except MissingFileError:
        tables = []
    with _files.parsing(path, "it was not written by Release.save"):
        found = [table_hash(table) for table in tables]
    if len(found) != len(named):
        yield f"surveys.json: the folder has {len(found)} tables of surveys, and the certificate names {len(named)}"
    elif found != named:
        yield "surveys.json: it holds a table that the certificate does not name: it was changed"
