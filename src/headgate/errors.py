"""The one family of errors that a user can cause.

Code that is called wrongly raises built-in exceptions. What a user can cause (a file, an expression, an argument, a
missing program) raises a `HeadgateError` whose message says what is wrong, what was expected and how to fix it; the
command line prints that message and never a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeadgateError(Exception):
    """Base of every error that a user can cause.

    `where` locates the cause (``headgate.yaml:12``, ``character 17``), `hint` says how to fix it.
    """

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.where = where
        self.hint = hint
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
