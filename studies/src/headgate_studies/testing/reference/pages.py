"""All reference pages by file name, and the way they get onto the disk."""

from __future__ import annotations

from pathlib import Path

from headgate_studies.testing.reference.api import api_pages
from headgate_studies.testing.reference.commands import commands_page
from headgate_studies.testing.reference.deployment import deployment_page
from headgate_studies.testing.reference.language import language_page

_NOTE = "<!-- Generated from the code by `make docs`; change the code, not this page. -->\n\n"


def pages() -> dict[str, str]:
    """The text of every page by its path below the directory."""
    found = {
        "commands.md": commands_page(),
        "deployment-file.md": deployment_page(),
        "filters.md": language_page(),
        **api_pages(),
    }
    found["README.md"] = _contents(found)
    return {name: _NOTE + text.rstrip() + "\n" for name, text in sorted(found.items())}


def _contents(found: dict[str, str]) -> str:
    lines = ["# Reference", ""]
    for name, text in sorted(found.items()):
        lines.append(f"- [{text.splitlines()[0].removeprefix('# ')}]({name})")
    return "\n".join(lines)


def write_pages(directory: Path) -> int:
    """Write what differs and remove pages that are no more; returns how many files changed."""
    changed = 0
    wanted = pages()
    for name, text in wanted.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed += 1
    for path in sorted(directory.rglob("*.md")):
        if path.relative_to(directory).as_posix() not in wanted:
            path.unlink()
            changed += 1
    return changed
