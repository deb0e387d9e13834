"""Putting the announcement of the newest revision right when somebody has published garbage over it."""

from __future__ import annotations

from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FencedError
from headgate.protocol.published import head_revision
from headgate.wire.sealed import read_number, write_number


async def mend_head(fabric: Fabric) -> None:
    """Follow the announcements until cancelled; one that is garbage, or that goes back, is replaced by the newest."""
    logs, newest = fabric.logs, 0
    async for batch in fabric.follow(logs.state, logs.head):
        stored = batch[-1]
        try:
            said = fabric.quarantine.take(logs.state, stored, read_number, "announced again")
            there = await head_revision(fabric)
            newest = max(newest, there or 0)
            if newest and said != newest:
                await fabric.publish(logs.head, write_number(newest), expect=stored.sequence)
        except FencedError:
            continue  # a newer announcement was made meanwhile, and comes next
        except HeadgateError:
            continue  # NATS is away: the service announces its revision again with the next change
