"""Delivery classes: subscriptions that always match the same rows share one class, matched once and named by one id.

A class with a context is its subscriber's own: its values change while it runs, without a new id, and two subscribers
that have equal values now need not have them in a minute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa

from headgate.catalog import tables
from headgate.catalog.engines import misses_at_most, read_grid
from headgate.catalog.profiles import BoundFilter, read_filter
from headgate.model import Stream, Subscription
from headgate.wire import codec

_AT_A_TIME: Final = 500  # databases limit how many values a question may have


def definition(
    subscription: Subscription, stream: Stream, limit_us: float = math.inf, bound: BoundFilter | None = None
) -> str:
    """The one text of a subscription's delivery class: stream, profile, filter, bound context, resolution, region.

    A class that may miss less, or more, than others of its stream is another one than theirs of the same filter.

    `limit_us` is what its filter was accepted by. Who has read the filter gives it as `bound`.

    Site, columns, policy, format and quality belong to the subscription and are not part of it.
    """
    bound = bound or read_filter(subscription, stream.schema, limit_us)
    grid = read_grid(subscription, stream)
    context = {**bound.context, **({} if grid is None else grid.context)}
    parts: list[Any] = [stream.name, subscription.profile, bound.text, context, None if grid is None else grid.text]
    share = misses_at_most(subscription, stream)
    if share is not None:
        parts.append(f"misses at most {share:g}" if share else "never shed")
    return codec.dumps([*parts, subscription.name] if context else parts)


def class_ids(connection: sa.Connection, texts: Iterable[str]) -> dict[str, int]:
    """The ids of classes by their texts, new ones where there were none like them. Call it in a writing transaction."""
    table = tables.delivery_class
    digests = {hashlib.sha256(text.encode()).hexdigest(): text for text in dict.fromkeys(texts)}
    known = _ids_of(connection, list(digests))
    missing = [digest for digest in digests if digest not in known]
    if missing:
        connection.execute(sa.insert(table), [{"digest": each, "definition": digests[each]} for each in missing])
        known |= _ids_of(connection, missing)
    return {text: known[digest] for digest, text in digests.items()}


def _ids_of(connection: sa.Connection, digests: list[str]) -> dict[str, int]:
    table = tables.delivery_class
    found: dict[str, int] = {}
    for start in range(0, len(digests), _AT_A_TIME):
        part = digests[start : start + _AT_A_TIME]
        query = sa.select(table.c.digest, table.c.id).where(table.c.digest.in_(part))
        found |= {digest: int(identity) for digest, identity in connection.execute(query)}
    return found
