"""The subscriptions of one user, and from where they are counted."""

from __future__ import annotations

from functools import partial
from typing import Any

from headgate.catalog.granting import as_asked, is_stopped
from headgate.fabric import Fabric
from headgate.service.rights import owned_by
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched


async def list_owned(fabric: Fabric, snapshot: Snapshot, owner: str) -> dict[str, Any]:
    """What belongs to an owner, by name, as it was asked for."""
    found = owned_by(snapshot, owner)
    starts: dict[int, int] = {}
    for stream in {each.stream for each in found.values()}:
        starts |= await read_starts(fabric, stream)
    shown = {}
    for name, each in found.items():
        number = snapshot.subscription_ids[name]
        figures = {"id": number, "starts": starts.get(number)}
        asked = as_asked(each).resume()
        shown[name] = {**figures, "stream": each.stream, "site": each.site, "where": asked.where}
        if each.suspended or is_stopped(each):
            shown[name]["stopped"] = each.suspended or "it names what you may not see"
    return shown


async def read_starts(fabric: Fabric, stream: str) -> dict[int, int]:
    """From where the subscriptions to a stream are counted, by id, as far as the ledger says."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.ledger(stream))
    reader = partial(Matched.decode, stream=stream)
    found = None if stored is None else fabric.quarantine.take(fabric.logs.state, stored, reader, "not shown")
    return {} if found is None else dict(found.starts)
