"""What a filter's author did wrong, with the place in the text."""

from __future__ import annotations

from headgate.errors import HeadgateError

_SHOWN = 400  # characters of a message: it may quote a part of the filter


def shortened(text: str, most: int = _SHOWN) -> str:
    """The text, its middle left out when it is long.

    >>> shortened("a filter of many words", 15)
    'a filte...words'
    """
    end = most // 3
    return text if len(text) <= most else f"{text[: most - 3 - end]}...{text[-end:]}"


class FilterError(HeadgateError):
    """A filter that is refused. `line` and `column` count from 1, `position` is the character counted from 0.

    Nothing has been changed or stored when it is raised.
    """

    def __init__(self, message: str, text: str = "", position: int = 0, *, hint: str | None = None) -> None:
        before = text[:position]
        self.position = position
        self.line = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        super().__init__(shortened(message), where=f"filter, line {self.line}, column {self.column}", hint=hint)


class RefusedError(ValueError):
    """A rule of types or arguments that was broken; the parser adds the position and raises a `FilterError`."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)
