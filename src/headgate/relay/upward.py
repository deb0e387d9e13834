"""What is published at sites, as one site sees it: its own outbox, parcels that pass through, the door of its streams.

The walk of a published message: a client stores it in the outbox of a site (`headgate.client`). `Outbox` sends it in a
parcel to the next site on the way up (`Ask`), which passes it on (`Asked`, `Ask`), each within its bandwidth, until the
root's `Door` stores it in the input log of the stream (`Append`). The answer goes back the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine, Mutex
from headgate.protocol.port import FabricError, MachinePort
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.records import ParcelAnswer
from headgate.protocol.reports import OutboxReport, UpwardReport
from headgate.relay.budget import Budgets
from headgate.relay.door import Door
from headgate.relay.outbox import Outbox
from headgate.relay.tables import MachineTables
from headgate.relay.way_up import next_up
from headgate.wire.frame import WireError
from headgate.wire.logs import Logs
from headgate.wire.parcel import Parcel
from headgate.wire.snapshot import Snapshot

_TICK_S: Final = 0.02
_LOOK_S: Final = 2.0
_SOON_S: Final = 0.25
_FORWARD_S: Final = 600.0
"""A parcel that passes through waits so long for an answer; who has sent it gives up before."""


class UpwardMachine(Machine):
    """One site's part in publishing from anywhere."""

    def __init__(
        self,
        site: str,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        budgets: Callable[[], Budgets | None] = lambda: None,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """`budgets` are those of the site's relay, as what goes up and what goes down share the site's upload."""
        super().__init__(f"upward {site}")
        self.site = site
        self.service = logs.upward(site)
        self.newest: Snapshot | None = None
        self._port = MachinePort(self, logs, max_payload, codec, quarantine)
        self._tables = MachineTables(self._port)
        self._budgets = budgets
        self._paying = Mutex(self)
        self._door = Door(self._port)
        self._outbox = Outbox(self._port, site, self._rise, lambda: self.newest)
        self._sent: dict[str, int] = {}
        self._reported: dict[str, OutboxReport] = {}
        self._port.serve(self.service, self._pass_on)
        self.spawn(self._begin(), "start")

    async def _begin(self) -> None:
        self.newest = await self._tables.newest()
        self.spawn(self._follow_head(), "head")
        self.spawn(self._watch(), "outbox")

    async def _follow_head(self) -> None:
        place = 0
        while True:
            place = (await self._port.next(self._port.logs.state, self._port.logs.head, place))[-1].sequence
            self.newest = await self._tables.newest()

    def _published(self) -> list[str]:
        """The streams that rows are published into."""
        streams = {} if self.newest is None else self.newest.deployment.streams
        return [name for name, stream in streams.items() if stream.source.published]

    async def _watch(self) -> None:
        """Carry what waits in the outbox as it comes, and report it."""
        port, logs = self._port, self._port.logs
        while True:
            streams, waiting = self._published(), dict[str, int]()
            if streams:
                try:
                    counts = await port.subjects(logs.outbox(self.site), logs.outbox_of(self.site, "*"))
                    for subject, count in counts.items():
                        stream = subject.split(".")[-2]
                        waiting[stream] = waiting.get(stream, 0) + count
                    self._outbox.wake(waiting)
                    await self._report(waiting)
                except FabricError:
                    await port.sleep(_LOOK_S)
                heard = [subject for each in streams for subject in self._subjects(each)]
                await port.listen(heard, _SOON_S if waiting else _LOOK_S)
            await port.sleep(_SOON_S if streams else _LOOK_S)

    def _subjects(self, stream: str) -> tuple[str, str]:
        logs = self._port.logs
        return logs.published_at(self.site, stream), logs.unsent_at(self.site, stream)

    async def _report(self, waiting: dict[str, int]) -> None:
        """Publish what waits, where it is not what was said last."""
        outbox = self._outbox.report(waiting)
        if outbox == self._reported:
            return
        port = self._port
        usage = await port.usage(port.logs.outbox(self.site))
        report = UpwardReport(
            site=self.site,
            time_ms=int(port.wall_s * 1000),
            outbox=outbox,
            outbox_bytes=0 if usage is None else usage.bytes,
            sent=dict(self._sent),
        )
        await port.publish(port.logs.stats("upward", self.site), report.encode())
        self._reported = outbox

    async def _pass_on(self, data: bytes) -> bytes:
        """Answer a site below: with the root's answer, or with why there is none."""
        try:
            found = await self._rise(Parcel.decode(data), _FORWARD_S)
        except (FabricError, WireError) as error:
            found = ParcelAnswer(error=f"{self.site}: {error}")
        return found.encode()

    async def _rise(self, parcel: Parcel, wait_s: float) -> ParcelAnswer:
        """Pass a parcel on towards the root; at the root, through the door."""
        newest = self.newest
        stream = None if newest is None else newest.deployment.streams.get(parcel.stream)
        if newest is None or stream is None or not stream.source.published:
            raise FabricError(f"there is no stream {parcel.stream!r} that rows are published into")
        if stream.root == self.site:
            return await self._door.take(parcel)
        above = next_up(newest, self.site, parcel.origin, parcel.stream)
        if above is None:
            raise FabricError(f"what is published at {parcel.origin!r} does not go up through {self.site!r}")
        data = parcel.encode()
        await self._pay(above, len(data))
        answer = ParcelAnswer.decode(await self._port.request(self._port.logs.upward(above), data, wait_s))
        if answer.error:
            raise FabricError(answer.error)
        return answer

    async def _pay(self, above: str, size: int) -> None:
        """Wait until the link has room for a parcel."""
        budgets = self._budgets()
        self._sent[above] = self._sent.get(above, 0) + size
        if budgets is None:
            return
        async with self._paying:
            while not budgets.ready(self.site, above, self._port.now):
                await self._port.sleep(_TICK_S)
            budgets.spend(self.site, above, size, self._port.now)
