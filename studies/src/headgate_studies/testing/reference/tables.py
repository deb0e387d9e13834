"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    r"""The lines of a table; bars inside cells are escaped.

    >>> table(["key", "type"], [["a", "x | y"]])
    ['| key | type |', '|---|---|', '| a | x \\| y |']
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
