"""The one error of this package: a policy that cannot be used, with its place inside the document."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.errors import HeadgateError, nearest


class PolicyError(HeadgateError):
    """A reduction policy that does not parse or does not fit the stream's schema.

    `where` is the path inside the document (``levels[1].delta.change``) or the line of the XML form.
    """

    @property
    def path(self) -> tuple[str | int, ...]:
        """The path inside the document as keys and indices.

        >>> PolicyError("no", where="levels[1].drop where").path
        ('levels', 1, 'drop where')
        """
        parts = re.findall(r"[^.\[\]]+|\[\d+\]", (self.where or "").partition(", ")[0])
        return tuple(int(part[1:-1]) if part.startswith("[") else part for part in parts)


def unknown(what: str, name: str, known: Iterable[str], where: str) -> PolicyError:
    """The error for a misspelt name, with the nearest valid one."""
    names = list(known)
    close = nearest(name, names)
    hint = f"did you mean {close!r}?" if close else "expected one of " + ", ".join(names)
    return PolicyError(f"unknown {what} {name!r}", where=where or None, hint=hint)
