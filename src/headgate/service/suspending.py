"""Subscriptions whose filters take far longer than was estimated are suspended, and their owners are told.

The Spark job measures what each class takes (`headgate.matching.metering`). It leaves rows out for a class that has
spent its allowance of a micro-batch, so that the stream goes on; a class that does so again and again is suspended
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.catalog import Edit
from headgate.diagnostics import SERVICE
from headgate.protocol.reports import JobReport, SlowClass
from headgate.service.report_watch import ReportWatch
from headgate.service.reports import read_reports
from headgate.wire.snapshot import Snapshot

STRIKES: Final = 3
"""Micro-batches in a row in which a class takes too long before it is suspended."""


class Suspender(ReportWatch):
    """Looks at the reports of the Spark job, and suspends what takes too long."""

    every_s = 1.0
    later = "filters that take too long are looked at again later"

    async def look(self) -> list[str]:
        """Suspend what the newest reports are about; the subscriptions that were."""
        reports = (await read_reports(self._fabric, JobReport)).values()
        slow = {each.identity: each for report in reports for each in report.slow if each.batches >= STRIKES}
        found = affected(self._current(), slow)
        if not found:
            return []

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            for name, why in affected(before, slow).items():
                edit.change(edit.subscription(name).suspend(why, before.class_ids[name]))
            return {}

        for name, why in found.items():
            SERVICE.warning("subscription %r is suspended: %s", name, why)
        await self._make(f"suspend {', '.join(found)}"[:200], {}, change)
        return list(found)


def affected(snapshot: Snapshot, slow: Mapping[int, SlowClass]) -> dict[str, str]:
    """The subscriptions of slow classes, and what their owners are told."""
    return {
        name: said(slow[identity])
        for name, identity in snapshot.class_ids.items()
        if identity in slow and not snapshot.deployment.subscriptions[name].suspended
    }


def said(slow: SlowClass) -> str:
    """What an owner is told."""
    return (
        f"evaluating its filter took {slow.row_us:,.0f} us a row in {slow.batches} micro-batches in a row, at most "
        f"{slow.limit_us:,.0f} are allowed; change the filter, or ask an operator to resume it"
    )
