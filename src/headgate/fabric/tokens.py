"""Tokens of users for HTTP: made of a credentials file by whoever has it, checked by the user's public key.

No secret is kept for them, and what holds for the credentials holds for the token: a user who was revoked or has
expired, and a key that was replaced, are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Final

from headgate.fabric.keys import KeyPair, read_claims, seed_of, statement_of

PREFIX: Final = "hgu"
API: Final = "api"
LOGIN: Final = "login"
"""What a token is for: requests, or to open the session of a browser, once."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a token says: the user, the public key that it was signed with, what it is for, until when it holds."""

    user: str
    key: str
    purpose: str
    expires_s: int


def make_user_token(credentials: str, purpose: str, expires_s: int) -> str:
    """A token of the user whose credentials these are."""
    import nkeys

    name = str(read_claims(statement_of(credentials)).get("name", ""))
    pair = KeyPair.of(seed_of(credentials))
    body = json.dumps([name, pair.public, purpose, expires_s], separators=(",", ":")).encode()
    signature = nkeys.from_seed(bytearray(pair.seed.encode())).sign(_signed(body))
    return f"{PREFIX}.{_text(body)}.{_text(signature)}"


def read_user_token(token: str) -> TokenClaims | None:
    """What a token says, where it was signed by the key that it names; None where it is none.

    Whether that key is the user's, and whether the token still holds, is for the caller to find out.
    """
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        prefix, body, signature = token.split(".")
        name, key, purpose, expires_s = json.loads(_bytes(body))
        found = TokenClaims(str(name), str(key), str(purpose), int(expires_s))
        VerifyKey(base64.b32decode(found.key + "=" * (-len(found.key) % 8))[1:33]).verify(
            _signed(_bytes(body)), _bytes(signature)
        )
    except (ValueError, TypeError, binascii.Error, BadSignatureError, RecursionError):
        return None
    return found if prefix == PREFIX else None


def _signed(body: bytes) -> bytes:
    """What is signed: nothing that NATS would take for something of its own."""
    return b"headgate http token\n" + body


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
