"""Planning around relays that have fallen silent, and taking that back when they report again.

The sites below a dead relay are served by a standby within seconds, whether the service runs or not
(`headgate.relay.silent_sites`). Here the plan follows: each member of the dead relay is put below the standby that
serves it, so that the next micro-batch is routed so. Nobody else moves, and no other plan is made while a relay is
silent. When the relay has reported for a while, its members come back, unless somebody has moved them on. What was
moved is remembered by the running service only; after its restart the planner decides by what it measures.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

from headgate.catalog import Catalog
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Plan
from headgate.planning.standby import Moved, plan_around, plan_back
from headgate.protocol.reports import RelayReport
from headgate.service.proposals import APPROVE
from headgate.service.reports import read_reports
from headgate.wire.snapshot import Snapshot

EVERY_S: Final = 1.0
SILENT_S: Final = 4.0
"""A relay reports every second; one that has not for so long is planned around, if another one has."""
BACK_S: Final = 5.0
"""A relay that has reported for so long again gets its members back."""


class Attendance:
    """Which relays report: by their newest report and when it came, as clocks of sites may differ.

    >>> there = Attendance()
    >>> [there.look({"a": second, "b": min(second, 2)}, float(second)) for second in range(1, 9)][-3:]
    [frozenset(), frozenset({'b'}), frozenset({'b'})]
    >>> there.back("b", 8.0), there.back("a", 8.0)
    (False, True)
    """

    def __init__(self) -> None:
        self._came: dict[str, tuple[int, float, float]] = {}  # the newest report, when it came, since when they come

    def look(self, reports: Mapping[str, int], now: float) -> frozenset[str]:
        """Take in the times of all newest reports; returns the relays that are silent while others are not."""
        for site, time_ms in reports.items():
            before, came_s, since_s = self._came.setdefault(site, (time_ms, now, inf))
            if before != time_ms:
                self._came[site] = (time_ms, now, now if now - came_s > SILENT_S else min(since_s, now))
        # Who has not reported since this service runs may never have run beside it: nothing is known of it.
        silent = {site for site in reports if now - self._came[site][1] > SILENT_S and self._came[site][2] < inf}
        return frozenset(silent) if len(silent) < len(reports) else frozenset()

    def back(self, site: str, now: float) -> bool:
        """Whether a relay has reported for a while without a pause."""
        came = self._came.get(site)
        return came is not None and now - came[1] <= SILENT_S and now - came[2] >= BACK_S


class Bypass:
    """Plans around silent relays; `moved` are the members that wait to come back."""

    def __init__(self, fabric: Fabric, catalog: Catalog, publish: Callable[[], Awaitable[Snapshot]]) -> None:
        self._fabric = fabric
        self._catalog = catalog
        self._publish = publish
        self._attendance = Attendance()
        self.moved: dict[tuple[str, str], tuple[str, str]] = {}

    @property
    def busy(self) -> bool:
        """Whether the plan goes around a relay now."""
        return bool(self.moved)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            with noted(SERVICE, "relays that fell silent were not looked for", HeadgateError, level=logging.WARNING):
                await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Change the plan once, if there is a reason."""
        reports = await read_reports(self._fabric, RelayReport)
        silent = self._attendance.look({site: report.time_ms for site, report in reports.items()}, now)
        in_use = {(stream, site): each for site, found in reports.items() for stream, each in found.standbys.items()}
        back = {before for before, _ in self.moved.values() if self._attendance.back(before, now)}
        if silent or back:
            changed = await asyncio.to_thread(self._change, silent, in_use, back)
            if changed:
                await self._publish()

    def _change(self, silent: frozenset[str], in_use: Mapping[tuple[str, str], str], back: set[str]) -> bool:
        """Put a plan around silent relays, or back to those that report again, into the catalog."""
        snapshot = self._catalog.snapshot()
        if snapshot.plan is None or snapshot.deployment.tuned or snapshot.deployment.options.get(APPROVE) is True:
            return False  # the tuner owns the plan, or an operator approves plans: standbys serve until then
        plan, moved = plan_around(snapshot.plan, silent, in_use)
        for site in back:
            plan = plan_back(plan, self.moved, site)
        self.moved = {key: found for key, found in self.moved.items() if found[0] not in back} | dict(moved)
        return plan != snapshot.plan and self._put(plan, snapshot.revision, moved, back)

    def _put(self, plan: Plan, revision: int, moved: Moved, back: set[str]) -> bool:
        with self._catalog.edit("plan") as edit:
            if edit.revision != revision:
                return False
            edit.set_plan(plan)
        for site in sorted({before for before, _ in moved.values()}):
            members = sorted({member for (_, member), (before, _) in moved.items() if before == site})
            print(f"headgate: the relay of {site} is silent: {', '.join(members)} served by others", file=sys.stderr)
        for site in sorted(back):
            print(f"headgate: the relay of {site} is back and serves its members again", file=sys.stderr)
        return True
