"""Delivery classes: subscriptions that always match the same rows share one class, matched once and named by one id.

A class with a context is its subscriber's own: its values change while it runs, without a new id, and two subscribers
that have equal values now need not have them in a minute.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import sqlalchemy as sa

from headgate.catalog import tables
from headgate.catalog.engines import misses_at_most, read_grid
from headgate.catalog.profiles import read_filter
from headgate.model import Stream, Subscription
from headgate.wire import codec


def definition(subscription: Subscription, stream: Stream, limit_us: float = math.inf) -> str:
    """The one text of a subscription's delivery class: stream, profile, filter, bound context, resolution, region.

    A class that may miss less, or more, than others of its stream is another one than theirs of the same filter.

    `limit_us` is what its filter was accepted by.

    Site, columns, policy, format and quality belong to the subscription and are not part of it.
    """
    bound, grid = read_filter(subscription, stream.schema, limit_us), read_grid(subscription, stream)
    context = {**bound.context, **({} if grid is None else grid.context)}
    parts: list[Any] = [stream.name, subscription.profile, bound.text, context, None if grid is None else grid.text]
    share = misses_at_most(subscription, stream)
    if share is not None:
        parts.append(f"misses at most {share:g}" if share else "never shed")
    return codec.dumps([*parts, subscription.name] if context else parts)


def class_id(connection: sa.Connection, text: str) -> int:
    """The id of a class, a new one when there was none like it. Call it in a writing transaction."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    table = tables.delivery_class
    found = connection.execute(sa.select(table.c.id).where(table.c.digest == digest)).scalar()
    if found is None:
        made = connection.execute(sa.insert(table).values(digest=digest, definition=text).returning(table.c.id))
        found = made.scalar_one()
    return int(found)
