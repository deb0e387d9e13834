"""From where on a site is owed a stream: the first commit of a range whose version gives the site something to pass on.

A site that meets a stream for the first time, or again after a time in nobody's tree, cannot tell from the first block
that arrives whether there is an earlier one on its way by another parent. The root can: its log has every commit with
the version that routed it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from headgate.protocol.port import LogPort
from headgate.protocol.records import Owed, RangeRequest
from headgate.relay.root import readable
from headgate.relay.tables import TableCache
from headgate.wire.manifest import Manifest

_BATCH: Final = 256


async def was_at(tables: TableCache, version: int, subscription: int, stay: int) -> bool:
    """Whether a version serves a subscription at a stay before this one."""
    snapshot = await tables.snapshot(version)
    names = {identity: name for name, identity in snapshot.subscription_ids.items()}
    return subscription in names and snapshot.deployment.subscriptions[names[subscription]].stay < stay


async def is_served(tables: TableCache, version: int, site: str, stream: str) -> bool:
    """Whether a site has anything of a stream to pass on under a version."""
    routes = await tables.routes(version, site, stream)
    return routes is not None and bool(routes.targets)


async def owed_from(port: LogPort, request: RangeRequest, serves: Callable[[int], Awaitable[bool]]) -> Owed:
    """The first commits of a range whose version `serves` whoever asks.

    Versions only grow along a root log, so a long run of commits of one version is passed over by bisection. What the
    root log no longer has cannot be sent again by anybody, and counts as not owed.
    """
    stream, after, upto = request.stream, request.after, request.upto
    logs, place = port.logs, 0
    served: dict[int, bool] = {}
    while batch := await port.read(logs.root(stream), logs.commit(stream), place, limit=_BATCH):
        place = batch[-1].sequence
        found = [manifest for _, manifest in readable(port, batch)]
        for manifest in found:
            if manifest.after >= upto:
                return Owed(begins=upto, ends=upto)
            if not manifest.evaluated or manifest.upto <= after:
                continue
            if manifest.version not in served:
                served[manifest.version] = await serves(manifest.version)
            if served[manifest.version]:
                last = [each for each in found if each.version == manifest.version][-1]
                if last is found[-1]:
                    last = await _last_of_run(port, stream, place, last, after)
                return Owed(begins=max(manifest.after, after), ends=min(last.upto, upto), version=manifest.version)
        if found and _alike(found[0], found[-1], after):
            place = await _end_of_run(port, stream, place, found[-1], after)
    return Owed(begins=upto, ends=upto)


def _alike(one: Manifest, other: Manifest, after: int) -> bool:
    """Whether two commits, and so all between them, are of one version, and on one side of a sequence number."""
    return one.version == other.version and (one.upto <= after) == (other.upto <= after)


async def _last_of_run(port: LogPort, stream: str, place: int, last: Manifest, after: int) -> Manifest:
    """The last commit that is like the one at `place`."""
    logs, end = port.logs, await _end_of_run(port, stream, place, last, after)
    batch = await port.read(logs.root(stream), logs.commit(stream), end - 1, limit=1)
    return next((manifest for _, manifest in readable(port, batch) if _alike(last, manifest, after)), last)


async def _end_of_run(port: LogPort, stream: str, place: int, last: Manifest, after: int) -> int:
    """The place of the last commit that is like the one at `place`."""
    logs = port.logs
    end = await port.last(logs.root(stream), logs.commit(stream))
    low, high = place, place if end is None else end.sequence
    while low < high:
        middle = (low + high) // 2
        batch = await port.read(logs.root(stream), logs.commit(stream), middle, limit=1)
        found = next(readable(port, batch), None)
        if found is not None and _alike(last, found[1], after):
            low = found[0]
        else:
            high = middle
    return low
