"""A site as a host of its own: its server, its connections, and what a start does about a disk that is empty.

A server without the site's logs is a new one, or has lost its disk. What the site had stated to be settled was in those
logs and is gone with them, unless it was taken by readers and children: so the site takes its statement back to what
they have, and the relay fetches the rest again as after any gap.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import structs

from headgate.diagnostics import FABRIC, noted, site_log
from headgate.fabric import EmbeddedServer, Fabric, FabricError, cancel_all
from headgate.fabric.host_notes import lacking, take_seen, write_seen
from headgate.fabric.hosting import Hosting
from headgate.fabric.listening import Listening
from headgate.fabric.place import write_whole
from headgate.fabric.placed import HostFabric
from headgate.protocol.acks import read_tally
from headgate.protocol.outlets import inbox_numbers
from headgate.protocol.reports import RelayReport
from headgate.relay.core import Key
from headgate.wire.frame import WireError
from headgate.wire.identity import DEPLOYMENT_KEY
from headgate.wire.sealed import seal, unseal
from headgate.wire.snapshot import Snapshot

_LOOK_S: Final = 1.0
_INCARNATIONS: Final = "incarnations.json"


@asynccontextmanager
async def open_host(
    home: Fabric, site: str, directory: Path, listening: Listening, snapshot: Snapshot
) -> AsyncIterator[HostFabric]:
    """Start a site's server in a directory and connect to it; at the end it is stopped. `home` stays open."""
    server = EmbeddedServer(directory, listening=listening)
    await asyncio.to_thread(server.start)
    watching: list[asyncio.Task[None]] = []
    try:
        async with await Fabric.connect(server.url, home.logs) as own:
            own.marks = home.marks = {DEPLOYMENT_KEY: snapshot.identity.deployment}
            fabric = HostFabric(home, own, server.directory)
            fabric.marks = own.marks
            await _say_lacking(own, site, server)
            await fit_logs(fabric, site, snapshot)
            watching.append(asyncio.create_task(_keep(server, site), name="server"))
            async with Hosting(fabric, site, server):
                yield fabric
            with noted(FABRIC, "how far the logs of a site are is not noted", FabricError, OSError):
                write_seen(server.directory, await own.infos(own.logs.everything))
    finally:
        await cancel_all(watching)
        await asyncio.to_thread(server.stop)


async def _say_lacking(own: Fabric, site: str, server: EmbeddedServer) -> None:
    """Tell what the site's logs have lost since the last stop. Rows are fetched again, publications are not."""
    infos = await own.infos(own.logs.everything)
    missing = lacking(infos, take_seen(server.directory))
    for name, state in infos.items():
        missing[name] = max(missing.get(name, 0), len(state.lost))
    for name, count in missing.items():
        if count:
            how = (
                "what was published here and not yet at the root is lost"
                if "_OUTBOX_" in name
                else "rows are fetched again"
            )
            site_log(site).warning("the log %s has lost %s messages to damaged files: %s", name, f"{count:,}", how)


async def _keep(server: EmbeddedServer, site: str) -> None:
    """Start the server again when it has ended."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if server.pid is None:
            site_log(site).warning("the NATS server of %s has ended and is started again", site)
            with noted(FABRIC, "the server of a site is started again later", FabricError):
                await asyncio.to_thread(server.start)
        server.renew()


async def fit_logs(fabric: HostFabric, site: str, snapshot: Snapshot) -> None:
    """Make the site's logs where there are none, and drop what they hold of streams that have begun anew."""
    own, logs, known = fabric.own, fabric.logs, fabric.directory / _INCARNATIONS
    if await own.info(logs.inbox(site)) is None:
        if await take_back(fabric.home, site, snapshot):
            site_log(site).warning("the logs of %s are gone: what its readers do not have is fetched again", site)
        await own.ensure(logs.inbox(site), first=first_place())
    await own.ensure(logs.site(site))
    if any(each.source.published for each in snapshot.deployment.streams.values()):
        await own.ensure(logs.outbox(site), first=first_place())
    now = {name: each.id for name, each in snapshot.identity.incarnations.items()}
    before = _known(known) or now
    anew = {name for name, each in now.items() if before.get(name, each) != each}
    if anew:
        await _clear(own, site, snapshot, anew)
    write_whole(known, seal(json.dumps(now).encode()))


def first_place() -> int:
    """The number of the first message of a log that is made now, behind all numbers of one that was there before.

    Readers know their place in an inbox by its number, and roots what they have taken of an outbox.
    """
    return int(time.time() * 1e6)


def _known(path: Path) -> dict[str, str]:
    """The incarnations of streams whose rows the logs hold; none where that is not known."""
    with noted(FABRIC, "which incarnations a server holds is not known", OSError, ValueError, WireError):
        return dict(json.loads(unseal(path.read_bytes())))
    return {}


async def _clear(own: Fabric, site: str, snapshot: Snapshot, streams: set[str]) -> None:
    """Delete what a server holds of some streams."""
    logs = own.logs
    ids = inbox_numbers(snapshot, streams)
    for child in snapshot.deployment.sites:
        for stream in streams:
            await own.clear(logs.site(child), logs.links_of(child, stream))
    for subject in await own.subjects(logs.site(site), logs.held_at(site)):
        if Key.parse(subject.rsplit(".", 1)[1]).stream in streams:
            await own.clear(logs.site(site), subject)
    for subject in await own.subjects(logs.inbox(site), logs.inboxes_at(site)):
        if subject.rsplit(".", 1)[1].partition("-")[0] in ids:
            await own.clear(logs.inbox(site), subject)


async def take_back(home: Fabric, site: str, snapshot: Snapshot) -> bool:
    """State that a site has passed on no more than its readers have acknowledged and its children have settled.

    Returns whether it had stated more.
    """
    logs = home.logs
    report = await _report(home, site)
    if report is None or not report.settled:
        return False
    kept = {
        stream: (min(upto, await _reached(home, site, stream, snapshot)), version)
        for stream, (upto, version) in report.settled.items()
    }
    await home.publish(logs.stats("relay", site), structs.replace(report, settled=kept).encode())
    return kept != report.settled


async def _reached(home: Fabric, site: str, stream: str, snapshot: Snapshot) -> int:
    """The end of what all who get a stream from a site have of it; 0 where one of them has nothing."""
    marks: list[int] = []
    for name, each in snapshot.deployment.subscriptions.items():
        if each.stream == stream and each.site == site:
            marks.append((await read_tally(home, snapshot.subscription_ids[name])).mark)
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    for child in () if tree is None else tree.children(site):
        report = await _report(home, child)
        marks.append(0 if report is None else report.settled.get(stream, (0, 0))[0])
    return min(marks, default=0)


async def _report(home: Fabric, site: str) -> RelayReport | None:
    stored = await home.last(home.logs.state, home.logs.stats("relay", site))
    try:
        return None if stored is None else RelayReport.decode(stored.data)
    except WireError:
        return None
