"""Who may use the HTTP API of a deployment: whoever can read its token, or has followed a link that was made with it.

The token lies in the state directory, readable by its owner only. What a browser gets is signed with it and expires: a
code in a login link, which works once, and a session in a cookie. Neither contains the token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError

CODE_S: Final = 300.0
"""How long a login link works."""
SESSION_S: Final = 12 * 3600.0
"""How long a browser stays logged in."""
CODE: Final = "code"
SESSION: Final = "session"
_SIGNED: Final = 32


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
