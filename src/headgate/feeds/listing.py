"""The list of feeds: one a line, a name and an address, or an address alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headgate.errors import HeadgateError

SCHEMES = ("http", "https", "file")


class FeedsError(HeadgateError):
    """A list of feeds that cannot be used."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed by its name (the `feed` column) and its address."""

    name: str
    url: str

    @property
    def host(self) -> str:
        """The host that serves it; empty for a file."""
        return urlsplit(self.url).netloc


def read_feeds(path: Path) -> tuple[Feed, ...]:
    """The feeds of a list; `#` starts a comment. Two feeds of one name are refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FeedsError(f"cannot read the list of feeds {path}", hint=str(error)) from None
    return parse_feeds(text, str(path))


def parse_feeds(text: str, name: str = "feeds") -> tuple[Feed, ...]:
    """The feeds of a text.

    >>> parse_feeds("news http://example.org/rss")
    (Feed(name='news', url='http://example.org/rss'),)
    """
    found: dict[str, Feed] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split() if not line.lstrip().startswith("#") else []
        if not words:
            continue
        url = words[-1]
        where = f"{name}:{number}"
        if len(words) > 2 or urlsplit(url).scheme not in SCHEMES:
            raise FeedsError(f"{line.strip()!r} is not a feed", where=where, hint="write NAME and an http or file URL")
        feed = Feed(words[0], url)
        if feed.name in found:
            raise FeedsError(f"two feeds are called {feed.name!r}", where=where, hint="give each its own name")
        found[feed.name] = feed
    return tuple(found.values())
