"""The index of the decisions: number, title and the first sentence of each, by number."""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = """<!-- Generated from the pages by `make docs`; change the pages, not this one. -->

# Decisions

Choices that a newcomer would question: the problem, what was measured, what was decided. A decision that is overturned
keeps its page and says by which one.

| number | decision |
|---|---|
"""


def decisions_page(directory: Path) -> str:
    """The text of ``docs/decisions/README.md``."""
    lines = []
    for path in sorted(directory.glob("[0-9]*.md")):
        title = re.sub(r"^# *\d+[.:] *", "", path.read_text(encoding="utf-8").splitlines()[0])
        lines.append(f"| {path.name[:3]} | [{title}]({path.name}) |\n")
    return _HEAD + "".join(lines)
