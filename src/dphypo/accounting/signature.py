"""Ed25519 signatures of certificates (RFC 8032), by the ``cryptography`` package: ``pip install 'dphypo[sign]'``.

A certificate proves that its numbers follow from what it states. A signature adds who states it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphypo import _files
from dphypo._files import printable
from dphypo.accounting.certificate import Certificate, canonical_json
from dphypo.errors import FileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_ALGORITHM = "Ed25519"


def sign(certificate: Certificate, key: Path) -> Certificate:
    """The certificate, signed with the Ed25519 private key in a PEM file without a passphrase."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private = _key(key, "private", lambda pem: load_pem_private_key(pem, None), Ed25519PrivateKey)
    document = certificate.to_dict()
    document.pop("signature", None)
    value = base64.b64encode(private.sign(_signed(document))).decode("ascii")
    return type(certificate)({**document, "signature": {"algorithm": _ALGORITHM, "value": value}})


def read_public(key: Path) -> Ed25519PublicKey:
    """The Ed25519 public key in a PEM file."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found: Ed25519PublicKey = _key(key, "public", load_pem_public_key, Ed25519PublicKey)
    return found


def problems(document: Mapping[str, Any], public: Ed25519PublicKey) -> Iterator[str]:
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


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ImportError("signatures need the package cryptography: pip install 'dphypo[sign]'") from None


_MAKE = {
    "private": "openssl genpkey -algorithm ed25519 -out private.pem",
    "public": "openssl pkey -in private.pem -pubout -out public.pem",
}


def _key(path: Path, which: str, load: Callable[[bytes], object], kind: Any) -> Any:
    """The key in a PEM file."""
    make = f"`{_MAKE[which]}` makes one"
    try:
        content = _files.read(path, f"{which} key", most=2**16)
    except FileError as error:
        raise type(error)(f"{error}: {make}") from None
    try:
        found = load(content)
    except (ValueError, TypeError):  # TypeError: it asks for a passphrase
        found = None
    if not isinstance(found, kind):
        raise FileError(f"{printable(path)} holds no Ed25519 {which} key without a passphrase: {make}")
    return found


def _signed(document: Mapping[str, Any]) -> bytes:
    return canonical_json({name: value for name, value in document.items() if name != "signature"})
