"""What a subscription's readers have acknowledged, and becoming its one reader."""

from __future__ import annotations

import time

from headgate.client.lineage_check import read_runs
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError, FencedError, Stored, report_quarantine
from headgate.wire.identity import new_id
from headgate.wire.ledger import Tally
from headgate.wire.snapshot import Snapshot


async def read_place(fabric: Fabric, snapshot: Snapshot, stream: str) -> tuple[str, str]:
    """What a reader's tallies are of now: the stream's incarnation, and the service's run."""
    now = snapshot.identity.incarnations.get(stream)
    runs = [] if now is None else await read_runs(fabric)
    return "" if now is None else now.id, runs[-1].id if runs else ""


async def last_acknowledged(fabric: Fabric, identity: int, place: tuple[str, str] | None = None) -> tuple[Tally, int]:
    """What was last acknowledged, and the place of it; nothing where that was of another incarnation than `place`.

    The tally is marked with the place.
    """
    stored = await fabric.last(fabric.logs.state, fabric.logs.ack(identity))
    tally = Tally(identity) if stored is None else await _decoded(fabric, identity, stored)
    if place is not None and tally.incarnation != place[0] and not tally.lost:
        tally = Tally(identity)
    if place is not None:
        tally.incarnation, tally.run = place
    return tally, 0 if stored is None else stored.sequence


async def take_over(
    fabric: Fabric,
    identity: int,
    place: tuple[str, str] | None = None,
    *,
    detach: bool = False,
    grace_s: float | None = None,
) -> tuple[Tally, int]:
    """Repeat the last acknowledgement under this reader: the one before is fenced off by its next one."""
    while True:
        tally, sequence = await last_acknowledged(fabric, identity, place)
        tally.time_ms, tally.reader = int(time.time() * 1000), new_id()
        tally.detached_ms, tally.grace_s = (tally.time_ms, grace_s) if detach else (0, None)
        with noted(CLIENT, "another reader acknowledges at the same time, once more", FencedError):
            subject = fabric.logs.ack(identity)
            return tally, await fabric.publish(subject, tally.encode(), expect=sequence)


async def _decoded(fabric: Fabric, identity: int, stored: Stored) -> Tally:
    """An acknowledgement as it was stored; what cannot be read is named, and the inbox is read from its start."""
    log = fabric.logs.state
    tally = fabric.quarantine.take(log, stored, Tally.decode, "read from the first message in the inbox")
    if tally is not None and tally.subscription == identity:
        return tally
    with noted(CLIENT, "what could not be read is reported later", FabricError):
        await report_quarantine(fabric, f"reader-{identity}")
    return Tally(identity, lost=stored.sequence)
