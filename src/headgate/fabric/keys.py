"""Keys and signed statements of NATS: who may connect, and what to (the server's JWT format, version 2).

An Ed25519 key pair is written as NATS writes it: a seed (`S…`, secret) and a public key (`O…` an operator, `A…` an
account, `U…` a user). A statement is signed by the key above it: the operator's signs accounts, an account's its users.
The server knows the operator's public key only, so that a user is added without telling it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from headgate.errors import HeadgateError

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_KINDS: Final = {"operator": 14 << 3, "account": 0, "user": 20 << 3}


class CredentialsError(HeadgateError):
    """A credentials file that cannot be read."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair; `seed` is the secret."""

    seed: str
    public: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    @classmethod
    def new(cls, kind: str) -> Self:
        """A new key pair of an `operator`, an `account` or a `user`.

        >>> KeyPair.new("account").public[0], KeyPair.new("user").seed[:2]
        ('A', 'SU')
        """
        return cls.from_material(kind, os.urandom(32))

    @classmethod
    def from_material(cls, kind: str, material: bytes) -> Self:
        """The key pair that follows from 32 secret bytes."""
        import nkeys

        return cls.of(nkeys.encode_seed(material, _KINDS[kind]).decode())

    @classmethod
    def of(cls, seed: str) -> Self:
        """The pair of a seed; one that is damaged does not fit the checksum in it."""
        import nkeys

        material = base64.b32decode(seed.encode() + b"=" * (-len(seed) % 8))
        kind = (material[0] & 7) << 5 | material[1] >> 3
        if nkeys.encode_seed(material[2:-2], kind).decode() != seed:
            raise CredentialsError("this is no key of NATS: it does not fit its checksum", hint="restore it")
        return cls(seed, nkeys.from_seed(bytearray(seed.encode())).public_key.decode())

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A statement signed by this key."""
        import nkeys

        body = {**claims, "iss": self.public}
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        text = f"{_encoded(_HEADER)}.{_encoded(body)}"
        signature = nkeys.from_seed(bytearray(self.seed.encode())).sign(text.encode())
        return f"{text}.{_base64(signature)}"

    def has_signed(self, statement: str) -> bool:
        """Whether a statement is by this key: the signature of the same text is always the same."""
        import nkeys

        text, _, signature = statement.rpartition(".")
        return _base64(nkeys.from_seed(bytearray(self.seed.encode())).sign(text.encode())) == signature


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _encoded(document: Mapping[str, Any]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def read_claims(statement: str) -> dict[str, Any]:
    """What a signed statement says; whether it is true is the server's to find out."""
    try:
        body = statement.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError) as error:
        raise CredentialsError("the credentials hold no statement of NATS", hint="ask for new ones") from error
    return dict(found)


def credentials_text(statement: str, seed: str) -> str:
    """A credentials file, as the tools of NATS read it too."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{statement}\n------END NATS USER JWT------\n\n"
        "These lines let whoever has them in. Keep this file to yourself.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def statement_of(text: str) -> str:
    """The signed statement in a credentials file."""
    return _part(text, "BEGIN NATS USER JWT")


def seed_of(text: str) -> str:
    """The user's secret in a credentials file."""
    return _part(text, "BEGIN USER NKEY SEED")


def check_statement(statement: str) -> None:
    """Refuse a statement that is not signed by the key that it names.

    >>> check_statement(KeyPair.new("account").sign({"sub": "x"}))
    >>> check_statement(KeyPair.new("account").sign({"sub": "x"})[:-9] + 9 * "A")
    Traceback (most recent call last):
    headgate.fabric.keys.CredentialsError: the statement does not fit its signature (ask for new credentials)
    """
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    text, _, signature = statement.strip().rpartition(".")
    issuer = str(read_claims(statement).get("iss", ""))
    try:
        raw = base64.b32decode(issuer.encode() + b"=" * (-len(issuer) % 8))
        VerifyKey(raw[1:33]).verify(text.encode(), base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)))
    except (CryptoError, ValueError) as error:
        raise CredentialsError("the statement does not fit its signature", hint="ask for new credentials") from error


def check_credentials(text: str) -> None:
    """Refuse credentials that are damaged: of another key than the statement is about, or not as they were signed."""
    statement = statement_of(text)
    check_statement(statement)
    if read_claims(statement).get("sub") != KeyPair.of(seed_of(text)).public:
        raise CredentialsError("the secret is not that of the statement", hint="ask for new credentials")


def _part(text: str, heading: str) -> str:
    for line, following in itertools.pairwise(text.splitlines()):
        if heading in line:
            return following.strip()
    raise CredentialsError("this is no credentials file of NATS", hint="it begins with -----BEGIN NATS USER JWT-----")
