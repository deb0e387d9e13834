"""Who may use the API beside the owner of the state directory: the users of the deployment, by tokens that they sign.

The file of users lies in the state directory; it is read again when it changes, so that a revocation holds at once.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from headgate.api.problems import ApiError
from headgate.fabric.registry import USER_FILE, Registry, User
from headgate.fabric.tokens import API, LOGIN, PREFIX, read_user_token

REFUSED: Final = "make another with `headgate login --creds FILE --token`"


class Users:
    """The users of the deployment in a state directory; none where it has no server of its own."""

    def __init__(self, state_dir: Path | None) -> None:
        self._directory = None if state_dir is None else state_dir / "nats"
        self._read: tuple[tuple[int, int], Registry] | None = None

    def registry(self) -> Registry:
        """The users as they are now."""
        if self._directory is None:
            return Registry()
        try:
            found = (self._directory / USER_FILE).stat()
        except FileNotFoundError:
            return Registry()
        mark = (found.st_mtime_ns, found.st_ino)
        if self._read is None or self._read[0] != mark:
            self._read = mark, Registry.read(self._directory)
        return self._read[1]

    def holds(self, name: str, key: str) -> User | None:
        """The user of a name whose key this is, None where it is not, or not any more."""
        user = self.registry().users.get(name)
        if user is None or key not in (user.key, *user.retiring):
            return None
        return user if user.expires_s is None or time.time() < user.expires_s else None

    def of_token(self, token: str, purpose: str = API) -> tuple[User, str]:
        """The user who signed a token, and the key that it was signed with."""
        claims = read_user_token(token)
        user = None if claims is None else self.holds(claims.user, claims.key)
        if claims is None or user is None or claims.purpose != purpose or claims.expires_s <= time.time():
            raise ApiError("this token does not hold, or not any more", hint=REFUSED, kind="unidentified")
        return user, claims.key


def is_user_token(text: str) -> bool:
    """Whether a text looks like a token of a user."""
    return text.startswith(f"{PREFIX}.")


__all__ = ["API", "LOGIN", "Users", "is_user_token"]
