"""Ed25519 signatures of certificates (RFC 8032), by the ``cryptography`` package: ``pip install 'dphypo[sign]'``.

A certificate proves that its numbers follow from what it states. A signature adds who states it.
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
from dphypo.accounting.certificate import Certificate, canonical_json
from dphypo.errors import FileError

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


def problems(document: Json, public: Ed25519PublicKey) -> Iterator[str]:
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
