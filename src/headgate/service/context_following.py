"""Contexts that follow a stream: the rows of one subscription set the context of another.

`context_from: me` makes the service the reader of subscription `me`. Of each delivery the last row counts: its columns
that the other subscription's context names are the new values. So a position, a limit or a watch list that is published
as a stream is filtered, planned, carried and accounted for like any other rows, and gets its place in the order of the
stream that it decides about when it arrives at the service.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headgate.client import Client
from headgate.client.delivery import closing
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, cancel_all
from headgate.relay.tables import Tables
from headgate.wire.snapshot import Snapshot

Setter = Callable[[Mapping[str, Mapping[str, Any]]], Awaitable[object]]


class Following:
    """Reads every subscription that a context follows, for as long as one does."""

    def __init__(self, fabric: Fabric, tables: Tables, set_contexts: Setter) -> None:
        self._client = Client(fabric)
        self._tables = tables
        self._set = set_contexts
        self._snapshot: Snapshot | None = None
        self._readers: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the catalog; what it no longer names is no longer read."""
        try:
            async for snapshot in self._tables.heads():
                self._snapshot = snapshot
                subscriptions = snapshot.deployment.subscriptions
                wanted = {each.context_from for each in subscriptions.values()} & set(subscriptions)
                gone = [task for name, task in self._readers.items() if name not in wanted]
                self._readers = {name: task for name, task in self._readers.items() if name in wanted}
                await cancel_all(gone)
                for name in wanted - set(self._readers):
                    assert name is not None
                    self._readers[name] = asyncio.create_task(self._read(name), name=f"context from {name}")
        finally:
            await cancel_all(list(self._readers.values()))

    async def _read(self, name: str) -> None:
        try:
            inbox = await self._client.subscribe(name, after_loss=True)
            async with closing(inbox) as deliveries:
                async for delivery in deliveries:
                    if len(delivery):
                        await self._apply(name, delivery.rows.slice(delivery.rows.num_rows - 1).to_pylist()[0])
        except HeadgateError as error:
            print(f"headgate: contexts no longer follow {name!r}: {error}", file=sys.stderr, flush=True)

    async def _apply(self, source: str, row: Mapping[str, Any]) -> None:
        assert self._snapshot is not None
        for name, subscription in self._snapshot.deployment.subscriptions.items():
            if subscription.context_from != source:
                continue
            values = {
                key: _like(row[key], old) for key, old in subscription.context.items() if row.get(key) is not None
            }
            try:
                await self._set({name: values})
            except HeadgateError as error:
                print(f"headgate: {name!r} keeps its context: {error}", file=sys.stderr, flush=True)


def _like(value: Any, old: Any) -> Any:
    """A column's value as the context has it: whole numbers stay whole, others are doubles, times are text.

    >>> _like(3, 2.5), _like(4.0, 1), _like(4.5, 1)
    (3.0, 4, 4.5)
    """
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(old, int) and isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value if isinstance(value, bool | int | float | str | list | dict) else str(value)
