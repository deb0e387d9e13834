"""Outboxes of sites: made where they are missing, and what waits in them to go up, for status and ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.fabric import Fabric
from headgate.protocol.port import NoLogError
from headgate.protocol.reports import UpwardReport
from headgate.relay.hosted import first_place
from headgate.wire.parcel import Parcel, SiteIntake
from headgate.wire.snapshot import Snapshot


async def make_outboxes(fabric: Fabric, snapshot: Snapshot, made: set[str]) -> None:
    """Make the outboxes of sites whose logs are at home, where rows can be published; `made` are those that exist."""
    if any(each.source.published for each in snapshot.deployment.streams.values()):
        for name, site in snapshot.deployment.sites.items():
            if not site.is_host and name not in made:
                await fabric.ensure(fabric.logs.outbox(name), first=first_place())
                made.add(name)


async def read_outboxes(fabric: Fabric, stream: str, reports: Mapping[str, UpwardReport]) -> dict[str, dict[str, Any]]:
    """By site, what was published there into a stream and is not yet at its root.

    A site counts all that was ever published there, the root all that it has taken: the difference waits, so that
    nothing is counted at both places, however old the site's report is.
    """
    taken = await read_taken(fabric, stream)
    found = {}
    for site in sorted(taken.keys() | {name for name, each in reports.items() if stream in each.outbox}):
        report = reports.get(site)
        here, there = report.outbox.get(stream) if report else None, taken.get(site, SiteIntake())
        published = None if here is None else here.published
        # A site that has not heard of the root does not know what was taken: where it was, the report is outdated.
        waiting = 0 if here is None or 0 < here.first <= there.upto else here.waiting
        if published is not None:
            waiting = max(published - there.messages, 0)
        found[site] = {
            "waiting": waiting,
            "taken": there.messages,
            "repeated": there.repeated,
            "oldest_ms": here.oldest_ms if here is not None and waiting else None,
            "problem": here.problem if here is not None and waiting else "",
            "time_ms": None if report is None else report.time_ms,
        }
    return found


async def read_taken(fabric: Fabric, stream: str) -> Mapping[str, SiteIntake]:
    """By site, what the root of a stream has taken."""
    log = fabric.logs.input(stream)
    try:
        last = await fabric.last(log, fabric.logs.carried(stream))
    except NoLogError:
        return {}
    parcel = None if last is None else fabric.quarantine.take(log, last, Parcel.decode)
    return {} if parcel is None else parcel.taken
