"""Bytes of a feed become items and dead letters. Nothing in a feed can raise: what is wrong is a dead letter."""

from __future__ import annotations

import calendar
import io
from typing import Any

from headgate.feeds.items import MAX_TEXT, DeadLetter, Item, key_of

MAX_ITEMS = 5000
_SAMPLE = 200


def parse_feed(feed: str, body: bytes) -> tuple[list[Item], list[DeadLetter]]:
    """Items in the feed's own order (usually the newest first), and what could not be read.

    A document with entries but bad XML gives the entries that could be read and one dead letter; a document without
    any entry that is not a feed at all gives one dead letter. An entry without identity, link and title is one too.
    """
    import feedparser

    sample = body[:_SAMPLE].decode("utf-8", "replace")
    try:
        found = feedparser.parse(io.BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
    except Exception as error:  # noqa: BLE001 - a parser's failure on hostile input is a dead letter
        return [], [DeadLetter(feed, f"unreadable: {type(error).__name__}: {error}", sample)]
    dead: list[DeadLetter] = []
    entries = list(found.get("entries", ()))
    if not found.get("version") and not entries:
        return [], [DeadLetter(feed, f"not a feed{_why(found)}", sample)]
    if found.get("bozo") and _serious(found):
        dead.append(DeadLetter(feed, f"malformed{_why(found)}", sample))
    if len(entries) > MAX_ITEMS:
        dead.append(DeadLetter(feed, f"{len(entries) - MAX_ITEMS} entries beyond the first {MAX_ITEMS}"))
    items: dict[str, Item] = {}
    for number, entry in enumerate(entries[:MAX_ITEMS]):
        item = _item(feed, entry)
        if item is None:
            dead.append(DeadLetter(feed, f"entry {number + 1} has no id, link or title", str(dict(entry))[:_SAMPLE]))
        else:
            items.setdefault(item.key, item)
    return list(items.values()), dead


def _item(feed: str, entry: Any) -> Item | None:
    link, title = _text(entry.get("link")), _text(entry.get("title"))
    identity = _text(entry.get("id")) or link or title
    if not identity:
        return None
    topics = tuple(dict.fromkeys(_text(tag.get("term")) for tag in entry.get("tags", ()) if tag.get("term")))
    return Item(feed, key_of(feed, identity), title, link, _text(entry.get("summary")), topics, _published(entry))


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
