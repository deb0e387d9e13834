"""Bytes of a feed become items and dead letters. Nothing in a feed can raise: what is wrong is a dead letter."""

from __future__ import annotations

import calendar
import io
from dataclasses import dataclass
from typing import Any

from headgate.feeds.items import MAX_TEXT, DeadLetter, Item, key_of

MAX_ITEMS = 5000
_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a document holds: items in its own order (usually the newest first), and what could not be read.

    `is_feed` is False when the document as a whole could not be read as a feed. A feed whose entries are all bad is
    still a feed: its server answered as it should.
    """

    items: tuple[Item, ...]
    dead: tuple[DeadLetter, ...]
    is_feed: bool = True


def parse_feed(feed: str, body: bytes) -> Parsed:
    """Read a document.

    A document with entries but bad XML gives the entries that could be read and one dead letter; a document that is not
    a feed at all gives one dead letter. An entry with neither id, link, title nor text is a dead letter too.
    """
    import feedparser

    sample = body[:_SAMPLE].decode("utf-8", "replace")
    try:
        found = feedparser.parse(io.BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
    except Exception as error:  # noqa: BLE001 - a parser's failure on hostile input is a dead letter
        return Parsed((), (DeadLetter(feed, f"unreadable: {type(error).__name__}: {error}", sample),), is_feed=False)
    dead: list[DeadLetter] = []
    entries = list(found.get("entries", ()))
    if not found.get("version") and not entries:
        return Parsed((), (DeadLetter(feed, f"not a feed{_why(found)}", sample),), is_feed=False)
    if found.get("bozo") and _serious(found):
        dead.append(DeadLetter(feed, f"malformed{_why(found)}", sample))
    if len(entries) > MAX_ITEMS:
        dead.append(DeadLetter(feed, f"{len(entries) - MAX_ITEMS} entries beyond the first {MAX_ITEMS}"))
    items: dict[str, Item] = {}
    for entry in entries[:MAX_ITEMS]:
        item = _item(feed, entry)
        if item is None:
            dead.append(DeadLetter(feed, "an entry has no id, link, title or text", str(dict(entry))[:_SAMPLE]))
        else:
            items.setdefault(item.key, item)
    return Parsed(tuple(items.values()), tuple(dead))


def _item(feed: str, entry: Any) -> Item | None:
    link, title, text = _text(entry.get("link")), _text(entry.get("title")), _summary(entry)
    identity = _text(entry.get("id")) or link or title or text
    if not identity:
        return None
    topics = tuple(dict.fromkeys(_text(tag.get("term")) for tag in entry.get("tags", ()) if tag.get("term")))
    return Item(feed, key_of(feed, identity), title, link, text, topics, _published(entry))


def _summary(entry: Any) -> str:
    """The entry's description, or its whole text where it has no description."""
    whole = (_text(each.get("value")) for each in entry.get("content", ()))
    return _text(entry.get("summary")) or next(filter(None, whole), "")


def _published(entry: Any) -> float | None:
    parsed = entry.get("published_parsed") or entry.get("updated_parsed")
    if parsed is None:
        return None
    try:
        return float(calendar.timegm(parsed))
    except (OverflowError, ValueError):
        return None


def _text(value: Any) -> str:
    return str(value).strip()[:MAX_TEXT] if value else ""


def _why(found: Any) -> str:
    error = found.get("bozo_exception")
    return f": {error}" if error else ""


def _serious(found: Any) -> bool:
    """Whether the parser's complaint is about the document and not about its declared encoding or media type."""
    import feedparser

    gentle = (feedparser.CharacterEncodingOverride, feedparser.NonXMLContentType)
    return not isinstance(found.get("bozo_exception"), gentle)
