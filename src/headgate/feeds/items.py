"""What a feed gives: items as rows of a stream, and what could not be read with the reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headgate.model import Schema

# The columns of a stream of feed items. `key` is the same for the same item whenever it is polled; `topic` is the feed
# and its entry's first category (`news/weather`), which the profile type `topics` takes patterns over.
SCHEMA = Schema.of(
    {
        "feed": "string",
        "topic": "string",
        "key": "string",
        "title": "string",
        "link": "string",
        "summary": "string",
        "topics": "array<string>",
        "published": "timestamp",
        "fetched": "timestamp",
    }
)
MAX_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a feed. Times are seconds since 1970; an entry without a date has none."""

    feed: str
    key: str
    title: str
    link: str
    summary: str
    topics: tuple[str, ...]
    published_s: float | None

    @property
    def topic(self) -> str:
        """The feed and the first category, as levels of a topic."""
        first = "-".join(self.topics[0].split()).replace("/", "-").lower() if self.topics else "other"
        return f"{self.feed}/{first}"

    def row(self, fetched_s: float) -> dict[str, Any]:
        """The item as a row of the stream, with times in ISO 8601 and UTC."""
        return {
            "feed": self.feed,
            "topic": self.topic,
            "key": self.key,
            "title": self.title,
            "link": self.link,
            "summary": self.summary,
            "topics": list(self.topics),
            "published": None if self.published_s is None else _iso(self.published_s),
            "fetched": _iso(fetched_s),
        }


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something of a feed that is not an item: which feed, why, and how it begins."""

    feed: str
    reason: str
    sample: str = ""

    @property
    def key(self) -> str:
        """The same for the same dead letter at every poll."""
        return key_of(self.feed, f"dead\0{self.reason}\0{self.sample}")

    def row(self, fetched_s: float) -> dict[str, Any]:
        """The dead letter as a JSON-ready document."""
        return {"feed": self.feed, "reason": self.reason, "sample": self.sample, "fetched": _iso(fetched_s)}


def key_of(feed: str, identity: str) -> str:
    """A short key of an item that is the same at every poll.

    >>> len(key_of("news", "tag:example,2006:1"))
    20
    """
    return hashlib.sha256(f"{feed}\0{identity}".encode()).hexdigest()[:20]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
