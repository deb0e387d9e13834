"""Writes the reference pages into a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate_studies.testing.reference.pages import write_pages


def main(arguments: list[str]) -> int:
    """Write the pages; says how many changed."""
    if len(arguments) != 1:
        print("usage: python -m headgate_studies.testing.reference DIRECTORY", file=sys.stderr)
        return 2
    changed = write_pages(Path(arguments[0]))
    print(f"{arguments[0]}: {changed} pages changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
