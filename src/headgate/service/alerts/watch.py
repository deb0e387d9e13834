"""Watches a running deployment for what somebody has to be told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError
from headgate.model import Deployment
from headgate.model.alerts import AlertRules
from headgate.protocol.reports import AlertsReport
from headgate.service.alerts.book import AlertBook
from headgate.service.alerts.conditions import conditions
from headgate.service.alerts.hooks import Hooks
from headgate.service.reports import read_reports
from headgate.wire.logs import Log
from headgate.wire.snapshot import Snapshot

EVERY_S: Final = 5.0


class AlertWatch:
    """Looks at the status now and then, publishes the alerts, and tells hooks of each that begins or ends."""

    def __init__(
        self,
        fabric: Fabric,
        rules: AlertRules,
        current: Callable[[], Snapshot],
        status: Callable[[], Awaitable[dict[str, Any]]],
        every_s: float = EVERY_S,
    ) -> None:
        self._fabric = fabric
        self._rules = rules
        self._current = current
        self._status = status
        self._every_s = every_s
        self._started_ms = int(time.time() * 1000)
        self._hooks = Hooks(rules, current().identity.deployment)

    async def run(self) -> None:
        """Watch until cancelled; less often where a status takes long to read."""
        known = (await read_reports(self._fabric, AlertsReport)).get("_")
        book = AlertBook(self._rules, known.alerts if known else ())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hooks.run())
            while True:
                began_s = time.monotonic()
                with noted(SERVICE, "alerts were not looked for, the next time counts", HeadgateError, TimeoutError):
                    await self._look(book)
                await asyncio.sleep(max(self._every_s, 10 * (time.monotonic() - began_s)))

    async def _look(self, book: AlertBook) -> None:
        deployment, status = self._current().deployment, await self._status()
        found = conditions(
            self._rules, deployment, status, await self._fullness(deployment), book.raised, self._started_ms
        )
        for alert in book.update(found, status["time_ms"]):
            self._hooks.tell(msgspec.to_builtins(alert))
        report = AlertsReport(time_ms=status["time_ms"], alerts=book.alerts, failures=dict(self._hooks.failures))
        await self._fabric.publish(self._fabric.logs.stats("alerts", "_"), report.encode())

    async def _fullness(self, deployment: Deployment) -> dict[str, float]:
        """How full the logs are that somebody else than us may fill."""
        logs = self._fabric.logs
        wanted: list[Log] = [logs.state, logs.tables, *(logs.root(name) for name in deployment.streams)]
        wanted += [logs.input(name) for name, each in deployment.streams.items() if each.source.has_input]
        wanted += [log for site in deployment.sites for log in (logs.site(site), logs.inbox(site))]
        found = {}
        for log in wanted:
            with noted(SERVICE, "a log was not asked how full it is", FabricError):
                usage = await self._fabric.usage(log)
                if usage is not None and log.max_bytes > 0:
                    found[log.name] = usage.bytes / log.max_bytes
        return found
