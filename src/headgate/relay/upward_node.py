"""A site's part in publishing from anywhere, on a real connection (`headgate.relay.upward`)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, Final

from headgate.diagnostics import site_log
from headgate.fabric import Fabric, FabricError
from headgate.fabric.placed import HostFabric
from headgate.fabric.runner import Runner
from headgate.protocol import port
from headgate.protocol.trace import Trace
from headgate.relay.courier import Couriers, place_of
from headgate.relay.upward import UpwardMachine
from headgate.relay.way_up import way_up
from headgate.wire.frame import WireError
from headgate.wire.parcel import Parcel

_PAUSE_S: Final = 1.0


class UpwardRunner(Runner):
    """Runs the machine; what it sends up goes to the server of the next site, by the link that its blocks come by."""

    def __init__(self, fabric: Fabric, machine: UpwardMachine, couriers: Couriers, **options: Any) -> None:
        super().__init__(fabric, machine, couriers.tables.snapshot, **options)
        self._couriers = couriers
        self._site = machine.site

    async def _do(self, command: Any) -> Any:
        prefix = self._fabric.logs.upward("x")[:-1]
        if not isinstance(command, port.Ask) or not command.subject.startswith(prefix):
            return await super()._do(command)
        deployment = (await self._couriers.tables.newest()).deployment
        above = command.subject.removeprefix(prefix)
        source = self._couriers.server_of(place_of(deployment, above))
        return await source.request(command.subject, command.data, command.timeout_s)


class UpwardNode:
    """Runs beside the relay of a site until cancelled; everything that counts is in logs."""

    def __init__(self, fabric: Fabric, site: str, couriers: Couriers, tracer: Trace | None = None) -> None:
        self._tracer = tracer
        self._fabric = fabric
        self._site = site
        self._couriers = couriers
        self._machine: UpwardMachine | None = None

    async def run(self, budgets: Any) -> None:
        """Carry, pass on and take until cancelled, from the first stream on that takes rows of publishers.

        What fails is told and started again.
        """
        await self._couriers.has_input.wait()
        fabric, log = self._fabric, site_log(self._site)
        serving = fabric.own if isinstance(fabric, HostFabric) else fabric
        while True:
            machine = self._machine = UpwardMachine(
                self._site,
                fabric.logs,
                max_payload=fabric.max_payload,
                budgets=budgets,
                codec=fabric.codec,
                quarantine=fabric.quarantine,
            )
            machine.tracer = self._tracer
            serving.guards[machine.service] = self._may_send
            try:
                async with UpwardRunner(
                    fabric, machine, self._couriers, services=(machine.service,), log=log
                ) as runner:
                    await runner.failure
            except Exception as error:  # noqa: BLE001 - rows that go down do not depend on it: it is told, and tried again
                log.warning("what is published at %s waits: %r", self._site, error)
            await asyncio.sleep(_PAUSE_S)

    async def _may_send(self, asker: str, data: bytes) -> bool:
        """Whether a parcel comes from the site that its way up leads through, just below this one."""
        try:
            parcel = Parcel.decode(data)
            way = way_up(await self._couriers.tables.newest(), parcel.origin, parcel.stream)
        except (WireError, FabricError):
            return False
        return (asker, self._site) in pairwise(way)
