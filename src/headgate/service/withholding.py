"""Messages that were sent under another grant than their reader has now: what it may no longer have is taken out.

Rows that were matched under a wider grant may still lie in an inbox, or come from a site that repairs a gap. They are
shown to a user as its grant is now: columns that it may not see are left out, and rows that it may not have are
withheld, which the reader counts as given up with the reason `grant`. Where the columns that the grant's filter reads
were not sent, nobody can tell here which rows they are: all rows of the message are withheld then. So they are where
the subscription chose its rows by a column that its owner may no longer see.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headgate.catalog.granting import allows, is_stopped, narrow_or_stop
from headgate.fabric.registry import User, UserError
from headgate.filters import parse_filter
from headgate.model import Grant, Stream, Subscription
from headgate.protocol.codec import WireCodec
from headgate.relay.tables import Tables
from headgate.service.grants import grant_of, granted_name
from headgate.wire.block import Block

_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Passed:
    """A subscription and its stream as they were when a message was sent."""

    subscription: Subscription
    stream: Stream

    @property
    def grant(self) -> Grant:
        """The grant that the rows were matched under."""
        narrowed = self.subscription.narrowed
        return Grant() if narrowed is None else narrowed.grant

    def tells(self, grant: Grant) -> bool:
        """Whether the choice of the rows tells something that a grant does not show."""
        return is_stopped(narrow_or_stop(self.subscription, self.stream, grant))


class Withholder:
    """Shows messages of inboxes to users."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._codec = WireCodec()
        self._sent: OrderedDict[tuple[int, int], Passed] = OrderedDict()
        self._streams: OrderedDict[int, str] = OrderedDict()
        """By subscription, the name that its stream is granted by: an id stays with its stream."""

    async def shown(self, user: User, number: int, data: bytes) -> bytes:
        """A message of the subscription with this id as its owner may have it."""
        if number in self._streams and user.grant(self._streams[number]).whole:
            return data
        sent = await self._as_sent(self._codec.version(data), number)
        now = grant_of(user, sent.stream)
        if sent.grant == now or allows(now, sent.grant, sent.stream):
            return data
        return self._reduced(data, number, sent, now)

    async def _as_sent(self, version: int, number: int) -> Passed:
        found = self._sent.get((version, number))
        if found is None:
            snapshot = await self._tables.snapshot(version)
            name = next((name for name, each in snapshot.subscription_ids.items() if each == number), None)
            if name is None:
                raise UserError("this message is of before the subscription")
            subscription = snapshot.deployment.subscriptions[name]
            found = self._sent[version, number] = Passed(subscription, snapshot.deployment.streams[subscription.stream])
            self._streams[number] = granted_name(found.stream)
            for table in (self._sent, self._streams):
                if len(table) > _KEPT:
                    table.popitem(last=False)
        return found

    def _reduced(self, data: bytes, number: int, sent: Passed, grant: Grant) -> bytes:
        schema = sent.stream.schema.select(sent.subscription.select)
        block = self._codec.block(data, schema.arrow)
        return self._codec.encode(withheld(block, number, sent, grant), as_json=data[:1] == b"{")


def withheld(block: Block, number: int, sent: Passed, grant: Grant) -> Block:
    """A message for the subscription with this id, without what the grant does not allow.

    Digests go: nobody can take the rows or columns that are not allowed out of them.
    """
    visible = [name for name in block.rows.schema.names if grant.shows(name)]
    where = parse_filter(grant.where, sent.stream.schema)
    if visible and where.columns <= set(block.rows.schema.names) and not sent.tells(grant):
        keep = where.evaluate(block.rows)
    else:
        keep = np.zeros(len(block.seqs), dtype=np.bool_)
    kept = block.take(np.flatnonzero(keep))
    digests = {receiver: digest for receiver, digest in block.digests.items() if receiver != number}
    gone = np.concatenate([block.withheld, block.seqs[~keep]])
    columns = block.columns if len(visible) == len(block.rows.schema.names) else tuple(visible)
    return replace(kept, rows=kept.rows.select(visible), digests=digests, withheld=gone, columns=columns)
