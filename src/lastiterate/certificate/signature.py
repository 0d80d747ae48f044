"""Ed25519 signatures over the text of certificates and heads of ledgers: who issued them.

A digest tells a damaged certificate from a whole one; whoever forges one can compute it again.
Keys are files as `openssl genpkey -algorithm ed25519` or `ssh-keygen -t ed25519` write them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate.certificate.fields import UNSIGNED_PARTS, plain_text
from lastiterate.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_KIND = "Ed25519"
_NEW_KEY = "openssl genpkey -algorithm ed25519 -out key"
_PUBLIC_HALF = "openssl pkey -in key -pubout -out key.pub"
# First in what is signed, so that no signature of another text fits.
CERTIFICATE = b"lastiterate certificate\n"
LEDGER_HEAD = b"lastiterate ledger head\n"


class Signer:
    """A private key, read once, before anything that it is to sign exists."""

    def __init__(self, key: str | Path) -> None:
        self._key: Ed25519PrivateKey = _read_key("sign", Path(key), private=True)

    def signed(self, certificate: str, *, purpose: bytes = CERTIFICATE) -> str:
        """The certificate with a signature; one that it had is replaced."""
        record = json.loads(certificate)
        signature = {"kind": _KIND, "value": self._key.sign(_message(record, purpose)).hex()}
        return json.dumps(record | {"signature": signature}, indent=2) + "\n"


def wrong_signature(
    record: Mapping[str, Any], signed_by: str | Path, *, purpose: bytes = CERTIFICATE
) -> str | None:
    """Why the certificate is not known to be from the owner of this public key; None if it is."""
    key: Ed25519PublicKey = _read_key("signed_by", Path(signed_by), private=False)
    from cryptography.exceptions import InvalidSignature

    signature = record.get("signature")
    if signature is None:
        return "it is not signed"
    try:
        known = signature["kind"] == _KIND
        key.verify(bytes.fromhex(signature["value"]), _message(record, purpose))
    except (InvalidSignature, LookupError, TypeError, ValueError):
        known = False
    return None if known else "its signature is not of that key"


def _message(record: Mapping[str, Any], purpose: bytes) -> bytes:
    unsigned = {name: value for name, value in record.items() if name not in UNSIGNED_PARTS}
    return purpose + plain_text(unsigned).encode()


def _read_key(name: str, path: Path, *, private: bool) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("signing", "cryptography", extra="sign") from None
    readers: list[Callable[[bytes], Any]]
    if private:
        kind: Any = ed25519.Ed25519PrivateKey
        readers = [
            lambda data: serialization.load_pem_private_key(data, None),
            lambda data: serialization.load_ssh_private_key(data, None),
        ]
    else:
        kind = ed25519.Ed25519PublicKey
        readers = [serialization.load_pem_public_key, serialization.load_ssh_public_key]
    half, made = ("private", _NEW_KEY) if private else ("public", _PUBLIC_HALF)
    must_be = (
        f"a file with an Ed25519 {half} key, without a password, in PEM or OpenSSH format, as "
        f"`{made}` writes it"
    )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        found = f"{path}, which does not exist"
        raise InvalidParameter(name, must_be=must_be, found=found) from None
    for read in readers:
        try:
            key = read(data)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(key, kind):
            return key
    raise InvalidParameter(name, str(path), must_be=must_be)
