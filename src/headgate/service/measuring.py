"""A look at a running deployment, long enough to measure it: what the tuner needs in place of declared figures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from headgate.fabric import Crew, Fabric
from headgate.planning import Problem
from headgate.planning.measured import Measured as Flows
from headgate.planning.measured import measured_problem
from headgate.relay.tables import Tables
from headgate.service.observer import WINDOW_S, Observer
from headgate.service.status import read_status
from headgate.tuning.measured import from_status, read_measured
from headgate.tuning.scene import BYTES, MeasuredScene
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """The deployment and plan in force, the planner's problem as measured, and measured links and sites."""

    snapshot: Snapshot
    problem: Problem
    measured: MeasuredScene


async def look(fabric: Fabric, tables: Tables, seconds: float) -> Look:
    """Measure for so long. Rows, bytes and bandwidths come from the same observer as replanning's."""
    observer = Observer(fabric, tables, max(seconds, WINDOW_S))
    before = await read_status(fabric, tables)
    async with Crew() as crew:
        watching = crew.spawn(observer.run())
        await asyncio.wait([watching], timeout=seconds)
        if watching.done():
            watching.result()
        after = await read_status(fabric, tables)
        snapshot = await tables.newest()
        return looked(snapshot, before, after, observer.measured(snapshot))


def looked(snapshot: Snapshot, before: dict[str, object], after: dict[str, object], flows: Flows) -> Look:
    """What two status documents and the observer say together; streams that it has not seen are counted only."""
    links = snapshot.deployment.links
    document = from_status(before, after, lambda one, other: links.between(one, other).delay_s)
    measured, sizes = read_measured(document, snapshot.deployment.sites)
    uploads = {
        name: found.upload_bytes_per_s for name, found in flows.sites.items() if found.upload_bytes_per_s is not None
    }
    seen = [name for name, stream in flows.streams.items() if stream.classes]
    return Look(
        snapshot,
        measured_problem(snapshot.deployment, snapshot.class_ids, flows, sizes),
        replace(
            measured,
            sites={**measured.sites, **({"upload_bandwidth": uploads} if uploads else {})},
            rates={**measured.rates, **dict.fromkeys(seen, BYTES)},
        ),
    )
