"""From where on a site is owed a stream: the first commit of a range whose version gives the site something to pass on.

A site that meets a stream for the first time, or again after a time in nobody's tree, cannot tell from the first block
that arrives whether there is an earlier one on its way by another parent. The root can: its log has every commit with
the version that routed it.
"""

from __future__ import annotations

import json
from typing import Final

from headgate.fabric import Fabric, FabricError
from headgate.relay.tables import Tables
from headgate.wire.manifest import Manifest, decode_manifest

_TIMEOUT_S: Final = 20.0
_BATCH: Final = 256


async def fetch_owed(fabric: Fabric, root: str, stream: str, after: int, upto: int, child: str) -> int:
    """Ask a stream's root where in (after, upto] the rows begin that a site is owed; `upto` if nothing there is."""
    request = {"stream": stream, "after": after, "upto": upto, "owed": child}
    answer = await fabric.request(fabric.logs.repair(root), json.dumps(request).encode(), _TIMEOUT_S)
    if not answer:
        raise FabricError(f"{root} cannot say what of {stream!r} in ({after}, {upto}] is owed to {child}")
    return int(answer)


async def is_served(tables: Tables, version: int, site: str, stream: str) -> bool:
    """Whether a site has anything of a stream to pass on under a version."""
    routes = await tables.routes(version, site, stream)
    return routes is not None and bool(routes.targets)


async def owed_from(fabric: Fabric, tables: Tables, stream: str, after: int, upto: int, child: str) -> int:
    """Where in (after, upto] the first commit begins that a site was to pass on; `upto` if none was.

    Versions only grow along a root log, so a long run of commits of one version is passed over by bisection. What the
    root log no longer has cannot be sent again by anybody, and counts as not owed.
    """
    logs, place = fabric.logs, 0
    served: dict[int, bool] = {}
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place, limit=_BATCH):
        place = batch[-1].sequence
        found = [decode_manifest(stored.data) for stored in batch]
        for manifest in found:
            if manifest.after >= upto:
                return upto
            if not manifest.evaluated or manifest.upto <= after:
                continue
            if manifest.version not in served:
                served[manifest.version] = await is_served(tables, manifest.version, child, stream)
            if served[manifest.version]:
                return max(manifest.after, after)
        if _alike(found[0], found[-1], after):
            place = await _end_of_run(fabric, stream, place, found[-1], after)
    return upto


def _alike(one: Manifest, other: Manifest, after: int) -> bool:
    """Whether two commits, and so all between them, are of one version, and on one side of a sequence number."""
    return one.version == other.version and (one.upto <= after) == (other.upto <= after)


async def _end_of_run(fabric: Fabric, stream: str, place: int, last: Manifest, after: int) -> int:
    """The place of the last commit that is like the one at `place`."""
    logs = fabric.logs
    end = await fabric.last(logs.root(stream), logs.commit(stream))
    low, high = place, place if end is None else end.sequence
    while low < high:
        middle = (low + high) // 2
        found = await fabric.read(logs.root(stream), logs.commit(stream), middle, limit=1)
        if found and _alike(last, decode_manifest(found[0].data), after):
            low = found[0].sequence
        else:
            high = middle
    return low
