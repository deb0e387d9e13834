"""What a user can get wrong about grids, regions and resolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.errors import HeadgateError, nearest


class GridError(HeadgateError):
    """A `grid:`, `region:` or `resolution:` document that cannot be used; `where` names the key."""


def at(where: str | None, key: str) -> str:
    """The place of a key inside a document."""
    return f"{where}.{key}" if where else key


def check_keys(document: Any, known: Iterable[str], where: str | None, example: str) -> Mapping[str, Any]:
    """The document as a mapping with known keys only; anything else is refused with the nearest key."""
    names = tuple(known)
    if not isinstance(document, Mapping):
        raise GridError(f"expected a mapping, got {document!r}", where=where, hint=f"write for example {example}")
    for key in document:
        if key not in names:
            close = nearest(str(key), names)
            hint = f"did you mean {close!r}?" if close else "known keys are " + ", ".join(names)
            raise GridError(f"unknown key {key!r}", where=where, hint=hint)
    return document
