"""Writes the reference pages into a directory, and the index of the decisions that stand beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate_studies.testing.reference.decisions import decisions_page
from headgate_studies.testing.reference.pages import write_pages


def main(arguments: list[str]) -> int:
    """Write the pages; says how many changed."""
    if len(arguments) != 1:
        print("usage: python -m headgate_studies.testing.reference DIRECTORY", file=sys.stderr)
        return 2
    changed = write_pages(Path(arguments[0]))
    decisions = Path(arguments[0]).parent / "decisions"
    if decisions.is_dir():
        (decisions / "README.md").write_text(decisions_page(decisions), encoding="utf-8")
    print(f"{arguments[0]}: {changed} pages changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
