"""The one family of errors that a user can cause.

Code that is called wrongly raises built-in exceptions. What a user can cause (a file, an expression, an argument, a
missing program) raises a `HeadgateError` whose message says what is wrong, what was expected and how to fix it; the
command line prints that message and never a traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar, Final

# What stands before the last `@` of a URL's authority; NATS takes a name without a password for a token.
_PASSWORD: Final = re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s/:@,]*):[^\s/,]*@", re.IGNORECASE)
_TOKEN: Final = re.compile(r"\b((?:nats|tls|wss?)://)[^\s/:@,]+@", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"\b((?:password|passwd|pwd|token|secret)=)[^\s&;,'\")]+", re.IGNORECASE)


def masked(text: str) -> str:
    """A text that can be shown: passwords and tokens of the URLs in it are stars.

    >>> masked("NATS at nats://me:s3cret@host:4222, postgresql://host/db?user=me&password=s3cret")
    'NATS at nats://me:***@host:4222, postgresql://host/db?user=me&password=***'
    >>> masked("nats://s3cret@host and postgresql://me@host/db")
    'nats://***@host and postgresql://me@host/db'
    """
    text = _TOKEN.sub(r"\1***@", _PASSWORD.sub(r"\1:***@", text))
    return _PARAMETER.sub(r"\1***", text)


class HeadgateError(Exception):
    """Base of every error that a user can cause.

    `where` locates the cause (``headgate.yaml:12``, ``character 17``), `hint` says how to fix it. Passwords of URLs are
    masked in all of them. `kind` sorts errors for programs, which may act on it: `headgate.api.problems` turns it into
    a status of HTTP. The class has a usual kind; a raiser who knows better gives another.
    """

    usual_kind: ClassVar[str] = "invalid"

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, kind: str | None = None
    ) -> None:
        self.kind = kind or self.usual_kind
        self.message = masked(message)
        self.where = None if where is None else masked(where)
        self.hint = None if hint is None else masked(hint)
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a misspelt one, or None when nothing is close.

    >>> nearest("uplaod", ["upload", "download"])
    'upload'
    >>> nearest("mbit/s", ["bit/s", "Mbit/s"])
    'Mbit/s'
    """
    candidates = list(known)
    for candidate in candidates:
        if candidate.lower() == name.lower():
            return candidate
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return matches[0] if matches else None
