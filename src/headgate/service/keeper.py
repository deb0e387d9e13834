"""The ledger's keeper: follows one stream's manifests and stores the sums, so that manifests need not be kept for it.

What it stores is fenced by what it stored last. Where another keeper has stored meanwhile, an older one that still runs
or this one before an answer got lost, the sums that have counted more manifests go on.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError
from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import FabricError, FencedError, LogPort, MachinePort
from headgate.protocol.quarantine import Quarantine
from headgate.relay.tables import MachineTables, TableCache
from headgate.service.books import Acknowledgements, ManifestSums, stored_sums
from headgate.wire.logs import Logs
from headgate.wire.sums import Matched

_STORE_S: Final = 1.0
_REST: Final = 10.0
_SELDOM_S: Final = 20.0


class Keeper:
    """Keeps the sums of one stream. `reading` has them once `begin` is through."""

    def __init__(self, port: LogPort, tables: TableCache, stream: str) -> None:
        self._port = port
        self._tables = tables
        self._stream = stream
        self._sequence = 0
        self._acknowledged = Acknowledgements(port)
        self.reading = ManifestSums(port, tables, Matched(stream))

    async def begin(self) -> None:
        """Go on from what is stored."""
        self.reading.matched, self._sequence = await stored_sums(self._port, self._stream)

    async def follow(self) -> None:
        """Add manifests as they come, for ever."""
        logs = self._port.logs
        while True:
            reading = self.reading
            try:
                place = reading.matched.place
                batch = await self._port.next(logs.root(self._stream), logs.commit(self._stream), place)
                done = await reading.take(batch)
            except HeadgateError as error:
                reading.stopped, done = error, False
            if not done:  # what stops it may be taken out, or be followed by a commit that goes on
                await self._port.sleep(_STORE_S)

    async def store(self) -> None:
        """Fold what every subscriber has passed, and store."""
        matched = self.reading.matched
        tallies = await self._acknowledged.look()
        passed = [
            tallies[subscription].boundary if subscription in tallies else starts
            for subscription, starts in matched.starts.items()
        ]
        matched.fold(min(passed, default=matched.head))
        matched.limit()
        subject = self._port.logs.ledger(self._stream)
        try:
            self._sequence = await self._port.publish(subject, matched.encode(), expect=self._sequence)
        except FencedError:
            await self._take_over(subject)

    async def _take_over(self, subject: str) -> None:
        """Store behind what another one has stored, and go on from it where it has counted more."""
        port, log = self._port, self._port.logs.state
        stored = await port.last(log, subject)
        self._sequence = 0 if stored is None else stored.sequence
        if stored is None:
            return
        found = port.quarantine.take(log, stored, partial(Matched.decode, stream=self._stream), "stored again")
        if found is not None and found.place > self.reading.matched.place:
            self.reading = ManifestSums(port, self._tables, found)


class KeeperMachine(Machine):
    """The keeper of one stream's books as a machine."""

    def __init__(
        self,
        stream: str,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(f"books {stream}")
        self._port = MachinePort(self, logs, max_payload, codec, quarantine)
        self.keeper = Keeper(self._port, MachineTables(self._port), stream)
        self.spawn(self._keep(), "begin")

    async def _keep(self) -> None:
        while True:
            try:
                await self.keeper.begin()
                break
            except FabricError as error:
                SERVICE.debug("the books are begun again: %s", error)
                await self._port.sleep(_STORE_S)
        self.spawn(self.keeper.follow(), "follow")
        pause_s = _STORE_S
        while True:
            await self._port.sleep(pause_s)
            began_s = self._port.now
            try:
                await self.keeper.store()
            except FabricError as error:
                SERVICE.debug("sums of the books are stored later: %s", error)
                continue
            # Of many subscriptions the sums are large: they are not stored all the time.
            pause_s = min(max(_STORE_S, _REST * (self._port.now - began_s)), _SELDOM_S)


async def store_books(port: LogPort, tables: TableCache, stream: str) -> None:
    """Bring the stored sums of a stream up to its last manifest, once."""
    keeper = Keeper(port, tables, stream)
    await keeper.begin()
    await keeper.reading.catch_up()
    await keeper.store()
