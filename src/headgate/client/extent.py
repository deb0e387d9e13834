"""How far a subscription can be read: the end of what its inbox holds, and positions by sequence number."""

from __future__ import annotations

from headgate.client.delivery import encode_position
from headgate.client.lineage_check import read_runs
from headgate.fabric import Fabric
from headgate.protocol.port import NoLogError
from headgate.wire.ledger import Tally
from headgate.wire.snapshot import Snapshot


async def held_upto(fabric: Fabric, snapshot: Snapshot, name: str) -> int:
    """The sequence number up to which a subscription's inbox covers its stream; 0 while it is empty."""
    number, logs = snapshot.subscription_ids[name], fabric.logs
    for stay in reversed(snapshot.deployment.subscriptions[name].stays):
        try:
            stored = await fabric.last(logs.inbox(stay.site), logs.delivery(stay.site, *stay.inbox_of(number)))
        except NoLogError:  # its site has never been up
            continue
        if stored is not None:
            return fabric.codec.coverage(stored.data)[1]
    return 0


async def position_at(fabric: Fabric, snapshot: Snapshot, name: str, after: int) -> str:
    """A position right behind a sequence number, for who reads a range and acknowledges nothing."""
    stream = snapshot.deployment.subscriptions[name].stream
    now = snapshot.identity.incarnations.get(stream)
    runs = [] if now is None else await read_runs(fabric)
    tally = Tally(snapshot.subscription_ids[name], after, after, mark=after)
    tally.incarnation, tally.run = "" if now is None else now.id, runs[-1].id if runs else ""
    return encode_position(tally)
