"""Who may use the HTTP API of a deployment: whoever can read its token, or has followed a link that was made with it.

The token lies in the state directory, readable by its owner only. What a browser gets is signed with it and expires: a
code in a login link, which works once, and a session in a cookie. Neither contains the token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path
from typing import Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole
from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

CODE_S: Final = 300.0
"""How long a login link works."""
SESSION_S: Final = 12 * 3600.0
"""How long a browser stays logged in."""
CODE: Final = "code"
SESSION: Final = "session"
_SIGNED: Final = 32
_BEFORE: Final = "token-before"


def token_file(state_dir: Path) -> Path:
    """Where a deployment keeps the token of its HTTP API."""
    return state_dir / "http" / "token"


def make_token(state_dir: Path) -> str:
    """The token of a deployment, made at the first start. Nobody but its owner can read the file."""
    path = token_file(state_dir)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        other = path.with_name("token.new")
        other.unlink(missing_ok=True)
        with os.fdopen(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_SIGNED))
        other.replace(path)
    return read_token(state_dir)


def read_token(state_dir: Path) -> str:
    """The token of a deployment whose HTTP API has been started; a file that others can read is refused."""
    path = token_file(state_dir)
    try:
        if path.stat().st_mode & 0o077:
            raise HeadgateError(f"others than its owner can read {path}", hint=f"chmod 600 {path}, or delete it")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise HeadgateError(
            f"there is no token of an HTTP API in {state_dir}", hint="start the deployment with `headgate up`"
        ) from error
    if len(token) < _SIGNED:
        raise HeadgateError(f"{path} holds no token", hint="delete it: the next start makes another")
    return token


def rotate_token(state_dir: Path, grace_s: float) -> str:
    """Make another token; the one before holds for some time yet. The API follows with its next request."""
    before, path = read_token(state_dir), token_file(state_dir)
    until = int(time.time() + grace_s)
    write_whole(path.with_name(_BEFORE), seal(json.dumps({"token": before, "until": until}).encode()))
    write_whole(path, secrets.token_urlsafe(_SIGNED))
    return read_token(state_dir)


def read_before(path: Path) -> tuple[str, int]:
    """A token that was replaced, and when it ends; `WireError` or another error where the file is damaged."""
    document = json.loads(unseal(path.read_bytes()))
    return str(document["token"]), int(document["until"])


class TokenBook:
    """The tokens that hold in a state directory, read again when their files have changed."""

    def __init__(self, state_dir: Path, token: str) -> None:
        """`token` holds while there is no file to read."""
        self._files = token_file(state_dir), token_file(state_dir).with_name(_BEFORE)
        self._state_dir = state_dir
        self._marks: tuple[tuple[int, int, int] | None, ...] = ()
        self._token, self._before = token, ("", 0)

    def holding(self) -> tuple[str, ...]:
        """The tokens, the newest first."""
        marks = tuple(_mark(file) for file in self._files)
        if marks != self._marks:
            self._before = ("", 0)  # the one before first: between the two files, both may be the same
            with noted(SERVICE, "no token was replaced", OSError, ValueError, KeyError, TypeError, WireError):
                self._before = read_before(self._files[1])
            with noted(SERVICE, "the token of the HTTP API cannot be read", HeadgateError):
                self._token = read_token(self._state_dir)
            self._marks = marks
        token, until = self._before
        return (self._token, token) if time.time() < until else (self._token,)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def signed(token: str, purpose: str, expires_s: float) -> str:
    """A text that only who has the token can make, valid until a time.

    >>> text = signed("t" * 32, CODE, 1000.0)
    >>> valid("t" * 32, CODE, text, 999.0), valid("t" * 32, CODE, text, 1001.0), valid("t" * 32, SESSION, text, 999.0)
    (True, False, False)
    """
    until = f"{int(expires_s)}.{secrets.token_hex(8)}"
    return f"{until}.{_signature(token, purpose, until)}"


def valid(token: str, purpose: str, text: str, now_s: float) -> bool:
    """Whether a text was signed with the token for a purpose, and is still valid."""
    until, _, signature = text.rpartition(".")
    expires = until.partition(".")[0]
    if not hmac.compare_digest(signature.encode(), _signature(token, purpose, until).encode()):
        return False
    return expires.isdigit() and now_s < int(expires)


def _signature(token: str, purpose: str, until: str) -> str:
    return hmac.new(token.encode(), f"{purpose}:{until}".encode(), hashlib.sha256).hexdigest()


def login_link(address: str, token: str, now_s: float) -> str:
    """A link that logs a browser in, once and soon."""
    return f"{address}/login?code={signed(token, CODE, now_s + CODE_S)}"
