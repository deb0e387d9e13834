"""Inboxes of readers who are away, or who have moved on: what is read is purged, what waits too long expires.

A subscription that moves leaves an inbox at its old site, which its reader drains before the one at the new site
(PACK section 2). No output writes to it any more, so the relay looks after it here, by what the catalog says was left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.fabric import Fabric, Stored
from headgate.model import Subscription
from headgate.relay.core import Key
from headgate.relay.expiry import expire_messages
from headgate.relay.tables import head_revision
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate.wire.message import block_range, block_version, decode_block, encode_block

if TYPE_CHECKING:
    from headgate.relay.node import RelayNode


async def read_tally(fabric: Fabric, subscription: int) -> Tally:
    """What a subscriber has acknowledged last."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.ack(subscription))
    return (Tally.read(stored.data) if stored is not None else None) or Tally(subscription)


@dataclass(frozen=True, slots=True)
class Overdue:
    """What takes the place of an inbox's unread messages, and the place of the last of them."""

    block: Block
    sequence: int


async def overdue(node: RelayNode, key: Key, subscription: Subscription, tally: Tally) -> Overdue | None:
    """The unread rows of an inbox as one declaration, None while they need not expire.

    A reader who said how long it would be away is given that time, others what the subscription says.
    """
    detached = tally.detached_ms and tally.grace_s is not None
    grace_s = tally.grace_s if detached else subscription.expires_s
    if grace_s is None:
        return None
    log, place = node.fabric.logs.inbox(node.site), tally.place(key.stay)
    first = await node.fabric.read(log, node.subject(key), place, limit=1)
    if not first or time.time() - max(tally.time_ms / 1000, first[0].time_s) < grace_s:
        return None
    found: list[Stored] = []
    while batch := await node.fabric.read(log, node.subject(key), place):
        found += batch
        place = batch[-1].sequence
    unread = [each for each in found if tally.starts is None or block_range(each.data)[1] > tally.mark]
    # A reader may have stopped inside its last message: what it was handed is not expired.
    blocks = [(await _decode(node, each.data, subscription)).since(tally.mark) for each in unread]
    if sum(len(block.seqs) for block in blocks) == 0:
        return None
    return Overdue(expire_messages(blocks, tally.subscription), found[-1].sequence)


async def _decode(node: RelayNode, data: bytes, subscription: Subscription) -> Block:
    deployment = (await node.tables.snapshot(block_version(data))).deployment
    mine = deployment.subscriptions.get(subscription.name, subscription)
    return decode_block(data, deployment.streams[mine.stream].schema.select(mine.select).arrow)


class LeftInboxes:
    """The inboxes that moved subscriptions have left at one site."""

    def __init__(self, node: RelayNode) -> None:
        self._node = node
        self._revision: int | None = None
        self._keys: dict[Key, Subscription] = {}
        self._read: dict[Key, int] = {}

    async def keep(self) -> None:
        """Look after each of them once."""
        await self._refresh()
        for key, subscription in self._keys.items():
            if key not in self._node.core.outputs:
                await self._keep(key, subscription)

    async def _refresh(self) -> None:
        """Take what the newest revision says was left here."""
        revision = await head_revision(self._node.fabric)
        if revision is None or revision == self._revision:
            return
        snapshot = await self._node.tables.snapshot(revision)
        self._keys = {
            Key(each.stream, subscription=snapshot.subscription_ids[name], stay=stay.number): each
            for name, each in snapshot.deployment.subscriptions.items()
            for stay in each.left
            if stay.site == self._node.site
        }
        self._read = {key: read for key, read in self._read.items() if key in self._keys}
        self._revision = revision

    async def _keep(self, key: Key, subscription: Subscription) -> None:
        fabric, subject = self._node.fabric, self._node.subject(key)
        log = fabric.logs.inbox(self._node.site)
        assert key.subscription is not None
        tally = await read_tally(fabric, key.subscription)
        done = tally.stay > key.stay
        stored = await fabric.last(log, subject)
        if stored is None:
            return
        # A stay that was read to its end needs no tail: nothing will be written behind it.
        read = stored.sequence + 1 if done else tally.place(key.stay)
        if read > self._read.get(key, 0):
            await fabric.purge(log, subject, read)
            self._read[key] = read
        gone = None if done else await overdue(self._node, key, subscription, tally)
        if gone is not None and gone.sequence == stored.sequence:
            await fabric.publish(subject, encode_block(gone.block), expect=stored.sequence, replace=True)
