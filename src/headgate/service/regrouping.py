"""Subscriptions that share an inbox are parted where some read on and others do not (decision 101).

A reader that stays away holds what it has not read. The relay says of which inboxes that takes half of the room, and
who of their readers is ahead; those get another inbox together, from the next revision on, as if they had moved. So the
others fill an inbox of their own, and their policies give up rows for nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.catalog import Edit
from headgate.diagnostics import SERVICE
from headgate.protocol.acks import read_tally
from headgate.protocol.reports import RelayReport
from headgate.relay.core import Key
from headgate.service.report_watch import ReportWatch
from headgate.service.reports import read_reports
from headgate.wire.snapshot import Snapshot


class Regrouper(ReportWatch):
    """Looks at the reports of relays, and gives readers that are ahead of others an inbox of their own."""

    every_s = 2.0
    later = "readers that are held up by others are looked at again later"

    async def look(self) -> list[list[str]]:
        """Part what the newest reports are about; the subscriptions that were given inboxes together."""
        reports = await read_reports(self._fabric, RelayReport)
        ahead = {
            (site, token): frozenset(ids) for site, report in reports.items() for token, ids in report.ahead.items()
        }
        found = parted(self._current(), ahead) if ahead else []
        if not found:
            return []
        ids = self._current().subscription_ids
        stays = {name: (await read_tally(self._fabric, ids[name])).stay for names in found for name in names}

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            for names in parted(before, ahead):
                edit.part({name: stays.get(name, 0) for name in names})
            return {}

        count = sum(map(len, found))
        SERVICE.info("%d subscriptions get other inboxes, as others do not read those that they share", count)
        await self._make(f"part {count} subscriptions from others in their inboxes", {}, change)
        return found


def parted(snapshot: Snapshot, ahead: Mapping[tuple[str, str], frozenset[int]]) -> list[list[str]]:
    """By inbox, the subscriptions that go: those who are ahead and still read it, unless nobody else is left in it."""
    inside: dict[tuple[str, str], list[str]] = {key: [] for key in ahead}
    for name, each in snapshot.deployment.subscriptions.items():
        owner, stay = each.present.inbox_of(snapshot.subscription_ids[name])
        key = (each.site, Key(each.stream, subscription=owner, stay=stay).token)
        if key in inside:
            inside[key].append(name)
    going = []
    for key, names in inside.items():
        gone = [name for name in names if snapshot.subscription_ids[name] in ahead[key]]
        if gone and len(gone) < len(names):
            going.append(gone)
    return going
