"""A site's relay on a real connection: the machine of `headgate.relay.machine`, run by `headgate.fabric.runner`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from headgate.diagnostics import site_log
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.fabric.placed import HostFabric
from headgate.fabric.runner import run_machine
from headgate.protocol.records import RangeRequest
from headgate.protocol.trace import Trace
from headgate.relay.askers import may_ask
from headgate.relay.budget import Budgets
from headgate.relay.courier import Couriers
from headgate.relay.hosted import fit_logs
from headgate.relay.link_watch import ConnectionWatch
from headgate.relay.machine import RelayMachine
from headgate.relay.output import QueueLimits
from headgate.relay.state import AnewError, OvertakenError
from headgate.relay.tables import Tables
from headgate.relay.upward_node import UpwardNode
from headgate.wire.frame import WireError

_PAUSE_S: Final = 1.0


class RelayNode:
    """One site's relay. `run` works until it is cancelled; everything it knows is in its logs."""

    def __init__(
        self,
        fabric: Fabric,
        site: str,
        *,
        tables: Tables | None = None,
        budgets: Budgets | None = None,
        limits: QueueLimits | None = None,
        tracer: Trace | None = None,
        connecting: Mapping[str, Any] | None = None,
    ) -> None:
        """`connecting` are the options of connections to servers of parents."""
        self.fabric = fabric
        self.site = site
        self.tables = tables or Tables(fabric)
        self._budgets = budgets
        self._limits = limits
        self._tracer = tracer
        self.couriers = Couriers(fabric, site, self.tables, connecting)
        home = fabric.home if isinstance(fabric, HostFabric) else fabric
        home.guards[home.logs.repair(site)] = self._may_ask
        self.machine = self._make()
        self.couriers.standbys = self._others_above

    def _others_above(self) -> set[str]:
        """Who serves the site in place of its parents, or besides them."""
        state = self.machine.state
        return {*state.standbys.values(), *state.seconds.values()}

    async def _may_ask(self, asker: str, data: bytes) -> bool:
        try:
            return may_ask(RangeRequest.decode(data), asker, await self.tables.newest())
        except (WireError, FabricError):
            return False

    def _make(self) -> RelayMachine:
        machine = RelayMachine(
            self.site,
            self.fabric.logs,
            max_payload=self.fabric.max_payload,
            budgets=self._budgets,
            limits=self._limits,
            codec=self.fabric.codec,
            quarantine=self.fabric.quarantine,
        )
        machine.tracer = self._tracer
        return machine

    async def run(self) -> None:
        """Relay until cancelled."""
        log, services, logs = site_log(self.site), (self.machine.service,), self.fabric.logs
        streams = {logs.links_into(self.site): logs.site(self.site)} if self.fabric.streams else {}
        log.info("the relay of %s is started", self.site)
        carrying = asyncio.create_task(self.couriers.run(), name=f"couriers of {self.site}")
        upward = UpwardNode(self.fabric, self.site, self.couriers, self._tracer).run(lambda: self.machine.state.budgets)
        rising = asyncio.create_task(upward, name=f"outbox of {self.site}")
        watch = ConnectionWatch(self.fabric, self.site, self.couriers)
        watching = asyncio.create_task(watch.run(), name=f"links of {self.site}")
        try:
            while True:
                try:
                    await run_machine(
                        self.fabric, self.machine, self.tables.snapshot, services=services, streams=streams, log=log
                    )
                except (AnewError, OvertakenError) as error:
                    log.warning("%s", error)
                    await asyncio.sleep(_PAUSE_S)
                    if isinstance(self.fabric, HostFabric):
                        await fit_logs(self.fabric, self.site, await self.tables.newest())
                    self.machine = self._make()
        finally:
            await cancel_all([carrying, rising, watching])
