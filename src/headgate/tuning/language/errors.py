"""Errors in an objective, with the place in its text."""

from __future__ import annotations

from headgate.errors import HeadgateError


class ObjectiveError(HeadgateError):
    """An objective or constraint that cannot be read. `position` counts characters of `text` from 0."""

    def __init__(self, message: str, *, text: str = "", position: int | None = None, hint: str | None = None) -> None:
        self.text = text
        self.position = position
        where = None
        if position is not None:
            shown = text[max(0, position - 20) : position + 20].replace("\n", " ").strip()
            where = f"character {position + 1}, near {shown!r}" if shown else f"character {position + 1}, at the end"
        super().__init__(message, where=where, hint=hint)
