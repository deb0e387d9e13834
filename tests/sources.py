"""Reading modules as syntax trees, for tests that look at the code itself."""

from __future__ import annotations

import ast
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """A module; CPython 3.11 may trip over itself where garbage is collected while it parses, and is asked again."""
    text = path.read_text(encoding="utf-8")
    try:
        return ast.parse(text, str(path))
    except SystemError:
        return ast.parse(text, str(path))
