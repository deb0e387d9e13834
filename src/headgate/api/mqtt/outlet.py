"""One subscription for those who listen to its topic: what they acknowledge is what counts as delivered.

A row is stored in the server's log of acknowledged messages, one message a row, and confirmed when every session that
it was stored for has acknowledged it. Where only connections without acknowledgement listen, a row counts as delivered
when one that was there when it was written is still there ten seconds later, as over HTTP. A session that ends with
rows that it has not acknowledged gets, or its successor does, all of them again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from headgate.api.deliveries import given_up, rows
from headgate.api.mqtt.audience import Audience
from headgate.api.problems import problem_of
from headgate.api.readers import HOLD_S, HttpReader, HttpReaders
from headgate.client import Client, Delivery
from headgate.client.delivery import read_position
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import FabricError
from headgate.fabric.devices import TOPICS
from headgate.fabric.mqtt import DeviceFabric
from headgate.protocol.acks import read_tally
from headgate.protocol.reports import DeviceDelivery, DevicesReport
from headgate.wire.message import json_text

WINDOW: Final = 1000
"""Rows that are on their way to sessions; the server has at most 1,024 unacknowledged for each."""
_BATCH_ROWS: Final = 100
_PENDING_BYTES: Final = 1 << 20
_LOOK_S: Final = 0.1
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Outstanding:
    """A delivery on its way: for whom, its places in the server's log by row, the last one, and when it was written."""

    position: str
    sessions: frozenset[str]
    place: int
    places: dict[str, int]
    connections: frozenset[int]
    written_s: float
    count: int

    @property
    def report(self) -> DeviceDelivery:
        """What a restart needs to know of it."""
        return DeviceDelivery(
            position=self.position, sessions=sorted(self.sessions), last=self.place, places=self.places
        )


class Outlet:
    """Passes one subscription on. `audience` is kept up by its owner."""

    def __init__(self, name: str, client: Client, readers: HttpReaders, devices: DeviceFabric) -> None:
        self.name = name
        self.audience = Audience()
        self._client = client
        self._readers = readers
        self._devices = devices
        self._acknowledged: set[str] = set()
        self._subject = f"{TOPICS}.{name}"
        self._sent: deque[_Outstanding] = deque()
        self._place = 0

    async def run(self) -> None:
        """Pass rows on until cancelled. Whoever takes the subscription over by other means has it."""
        while True:
            reader: HttpReader | None = None
            try:
                self._sent.clear()
                position = await self._resume()
                reader = await self._readers.open(self.name, position, max_rows=_BATCH_ROWS, held=False)
                await self._pass(reader)
            except FabricError as error:
                SERVICE.warning("MQTT, subscription %r: %s; tried again", self.name, error)
            except HeadgateError as error:
                with noted(SERVICE, "a device was not told of an error", FabricError):
                    await self._devices.tell(f"{self._subject}.error", json_text(problem_of(error)).encode())
                if error.kind in ("conflict", "unknown"):
                    return
            finally:
                if reader is not None:
                    reader.end()
                    self._readers.closed(reader)
            await asyncio.sleep(_AGAIN_S)

    async def _resume(self) -> str | None:
        """Where to go on after a restart, None for behind what was last confirmed.

        Sessions that are still there may have acknowledged more than was confirmed: the last delivery that they have
        all of, and single rows of later ones, which need not be sent again.
        """
        found: str | None = None
        self._acknowledged.clear()
        fabric, logs = self._client.fabric, self._client.fabric.logs
        stored = await fabric.last(logs.state, logs.stats("devices", self.name))
        report = None if stored is None else fabric.quarantine.take(logs.state, stored, DevicesReport.decode)
        identity = (await self._client.snapshot()).subscription_ids.get(self.name)
        if report is None or identity is None:  # nothing was sent, or it has several roots
            return None
        floors = await self._devices.floors({name for each in report.sent for name in each.sessions})
        tally = await read_tally(fabric, identity)
        for each in report.sent:
            if set(each.sessions) - floors.keys():
                break
            floor = min(floors[name] for name in each.sessions)
            place = read_position(each.position)
            if floor >= each.last and place.mark > tally.mark and place.incarnation == tally.incarnation:
                found = each.position
            self._acknowledged |= {seq for seq, at in each.places.items() if at <= floor}
        return found

    async def _pass(self, reader: HttpReader) -> None:
        """Pass deliveries on, and confirm them; returns when somebody left who owes an acknowledgement."""
        looking = asyncio.create_task(self._confirm(reader), name=f"acknowledgements of {self.name}")
        looking.add_done_callback(lambda _: reader.nudge())
        deliveries = reader.__aiter__()
        try:
            while not looking.done():
                delivery = await anext(deliveries)
                if delivery is None:
                    continue
                await self._wait_for_room(looking)
                if not looking.done():
                    await self._send(delivery)
            await looking
        finally:
            looking.cancel()
            await asyncio.wait([looking])
            await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator

    async def _wait_for_room(self, looking: asyncio.Task[None]) -> None:
        while not self._room() and not looking.done():
            await asyncio.wait([looking], timeout=_LOOK_S)

    def _room(self) -> bool:
        """Whether more may be on its way: to somebody who is there and keeps up."""
        pending = self.audience.connections.values()
        waiting = sum(each.count for each in self._sent if each.sessions)
        return bool(self.audience) and waiting < WINDOW and max(pending, default=0) < _PENDING_BYTES

    async def _send(self, delivery: Delivery) -> None:
        sessions, found = self.audience.sessions, given_up(delivery)
        listeners = hashlib.sha256(" ".join(sorted(sessions)).encode()).hexdigest()[:16]
        messages = [] if found is None else [(f"{self._subject}.given-up", f"given-up {delivery.upto}", found)]
        messages += [(self._subject, str(row["_seq"]), row) for row in (rows(delivery) or {"rows": []})["rows"]]
        messages = [each for each in messages if each[1] not in self._acknowledged]
        places: dict[str, int] = {}
        for subject, what, document in messages:
            data = json_text(document).encode()
            if sessions:
                # Stored once, also where the row is read again after a restart, unless others listen by now.
                places[what] = await self._devices.store(subject, data, f"{self.name} {what} {listeners}")
            else:
                await self._devices.tell(subject, data)
        self._place = max([self._place, *places.values()])
        self._sent.append(
            _Outstanding(
                delivery.position,
                sessions,
                self._place,
                places,
                frozenset(self.audience.connections),
                time.monotonic(),
                len(messages),
            )
        )
        if sessions:
            report = DevicesReport(sent=[each.report for each in self._sent if each.sessions])
            fabric = self._client.fabric
            await fabric.publish(fabric.logs.stats("devices", self.name), report.encode())

    async def _confirm(self, reader: HttpReader) -> None:
        """Confirm what was acknowledged, in order, until somebody is gone whose acknowledgement is missing."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._sent:
                continue
            floors = await self._devices.floors(self._sent[0].sessions)
            while self._sent:
                first = self._sent[0]
                if first.sessions - floors.keys():
                    return
                if first.sessions and min(floors[each] for each in first.sessions) < first.place:
                    break
                if not first.sessions and first.count:
                    if not first.connections & self.audience.connections.keys():
                        return
                    if time.monotonic() - first.written_s < HOLD_S:
                        break
                reader.confirm(first.position)
                self._sent.popleft()
                if self._sent and self._sent[0].sessions != first.sessions:
                    break
