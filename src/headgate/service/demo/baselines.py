"""What the same rows would have cost without a plan: one copy per subscriber, and one copy per site.

Both are computed from the rows that the root logs hold, with the same encoding and cut into messages as links of that
rate cut them, so they are bytes and not estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.fabric import Fabric
from headgate.relay.budget import MESSAGE_S, Budgets
from headgate.relay.root import load_block
from headgate.relay.routes import Child, Routes, stream_receivers
from headgate.relay.split import for_child, for_local
from headgate.relay.tables import Tables
from headgate.wire.block import Block
from headgate.wire.manifest import decode_manifest
from headgate.wire.message import encode_block


@dataclass(frozen=True, slots=True)
class Baselines:
    """Bytes that leave each root site without a plan. Receivers at a stream's own root cost nothing in either."""

    per_subscriber: dict[str, int]
    per_site: dict[str, int]


NETWORK_NOTE = (
    "No plan carries less in all than one copy per site, because every site's rows reach it over a link; "
    "what a plan saves is the upload of the roots."
)
"""Why the first row of the summary's table of bytes is not the smallest in its first column."""


def sent_bytes(block: Block, rate_bytes_per_s: float | None) -> int:
    """Bytes of a block in messages as a link of that rate sends them; in one message where the rate is unknown."""
    whole = len(encode_block(block))
    if rate_bytes_per_s is None or not len(block.seqs):
        return whole
    rows = max(int(rate_bytes_per_s * MESSAGE_S * len(block.seqs) / whole), 1)
    return sum(len(encode_block(piece)) for piece in block.pieces(rows))


async def measure(fabric: Fabric, tables: Tables, streams: list[str]) -> Baselines:
    """Encode every committed block as it would go to each subscriber, and to each site, straight from the root."""
    per_subscriber: dict[str, int] = {}
    per_site: dict[str, int] = {}
    logs = fabric.logs
    for stream in streams:
        place = 0
        while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
            place = batch[-1].sequence
            for stored in batch:
                manifest = fabric.quarantine.take(logs.root(stream), stored, decode_manifest)
                if manifest is None:
                    continue
                snapshot = await tables.snapshot(manifest.version)
                root = snapshot.deployment.streams[stream].root
                schema = snapshot.deployment.streams[stream].schema.arrow
                routes = Routes(root, stream, manifest.version, None, schema, (), ())
                block = await load_block(fabric, manifest, schema, routes)
                for site, receivers in stream_receivers(snapshot, stream).items():
                    if site == root or not manifest.evaluated:
                        continue
                    wanted = [name for name in schema.names if any(name in each.schema.names for each in receivers)]
                    child = Child(site, tuple(receivers), block.rows.select(wanted).schema)
                    rate = Budgets(snapshot.deployment).rate(root, site)
                    copy = sent_bytes(for_child(block, child), rate)
                    copies = sum(sent_bytes(each, rate) for _, each in for_local(block, tuple(receivers)))
                    per_site[root] = per_site.get(root, 0) + copy
                    per_subscriber[root] = per_subscriber.get(root, 0) + copies
    return Baselines(per_subscriber, per_site)
