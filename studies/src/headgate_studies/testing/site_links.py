"""A hook of MkDocs: links from the pages into the code become names of files, since a site has no code beside it."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links that lead out of the directory of documents; other links stay."""
    return without_links_to_code(markdown, page.file.src_uri)


def without_links_to_code(markdown: str, page: str) -> str:
    """The text of a page, by its path in the directory of documents, without links that lead out of it.

    >>> without_links_to_code("see [`Output`](../src/headgate/relay/output.py)", "walkthrough.md")
    'see `Output` (`src/headgate/relay/output.py`)'
    >>> without_links_to_code("see [grids](../grid.md) and [examples/a](../../examples/a/a.py)", "howto/weather.md")
    'see [grids](../grid.md) and `examples/a/a.py`'
    """

    def plain(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), match[2].partition("#")[0]))
        if path.startswith("docs/"):
            return match[0]
        return f"`{path}`" if match[1] in path else f"{match[1]} (`{path}`)"

    return _LINK.sub(plain, markdown)
