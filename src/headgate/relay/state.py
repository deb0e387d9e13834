"""The state of one site's relay: its queues, where it stands in its logs, and what it has measured.

It is changed by the coroutines of the relay's machine only (`headgate.relay.machine`). A restart begins with an empty
one: everything that has to survive is in the logs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from headgate.errors import HeadgateError
from headgate.protocol.acks import read_tally
from headgate.protocol.kernel import Machine, Mutex, Signal
from headgate.protocol.port import FabricError, MachinePort, Stored
from headgate.protocol.quarantine import PASSED_OVER
from headgate.protocol.reports import RelayReport
from headgate.relay.budget import Budgets
from headgate.relay.core import Key, RelayCore
from headgate.relay.last_heard import VitalSigns
from headgate.relay.meters import Meters
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver, Routes
from headgate.relay.tables import MachineTables
from headgate.wire.frame import WireError
from headgate.wire.logs import Log
from headgate.wire.snapshot import Snapshot
from headgate.wire.unreadable import UnreadableError

T = TypeVar("T")


class OvertakenError(HeadgateError):
    """Another relay of the same site has sent what this one had decided on: what this one knows is out of date."""

    def __init__(self, site: str, output: str) -> None:
        super().__init__(
            f"another relay of site {site!r} has written to {output}",
            hint="run one relay for each site; this one starts again from the logs",
        )


class AnewError(HeadgateError):
    """A stream began a new incarnation while this relay ran."""

    def __init__(self, site: str, stream: str) -> None:
        super().__init__(
            f"the stream {stream!r} has begun a new incarnation",
            hint=f"the relay of {site!r} starts again from the logs",
        )


@dataclass
class RelayTotals:
    """What a relay has done since it started."""

    messages: int = 0
    rows: int = 0
    link_bytes: dict[str, int] = field(default_factory=dict)
    link_messages: dict[str, int] = field(default_factory=dict)
    link_rows: dict[str, int] = field(default_factory=dict)
    inbox_bytes: int = 0
    inbox_messages: int = 0
    repairs: int = 0
    refused: int = 0
    oversize: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Intake:
    """A message that was taken from a log: the end of what it covers, its place, subject, version and size in bytes."""

    upto: int
    place: int
    subject: str
    version: int
    size: int


class SiteState:
    """What one relay knows."""

    stall_s: float = 0.5
    """How long to wait before something that failed is tried again."""

    def __init__(self, machine: Machine, port: MachinePort, site: str, limits: QueueLimits | None) -> None:
        self.port = port
        self.site = site
        self.tables = MachineTables(port)
        self.core = RelayCore(site, limits, defer=True)
        self.budgets: Budgets | None = None
        self.alone = True  # shares its process and its budgets with no other relay
        self.totals = RelayTotals()
        self.meters = Meters()
        self.targets: dict[Key, Child | Receiver] = {}
        # By stream, the outputs of its newest routes: others end when they are empty.
        self.current: dict[str, frozenset[Key]] = {}
        # By stream, the routes of the block that came last, while all of its outputs are restored.
        self.routed: dict[str, Routes] = {}
        # Held from restoring a block's outputs to routing it, so that none is forgotten in between.
        self.routing = Mutex(machine)
        self.taken: dict[str, list[Intake]] = {}
        self.roots: tuple[str, ...] = ()
        self.incarnations: dict[str, str] = {}
        self.stopped: dict[str, str] = {}
        self.newest: Snapshot | None = None
        self.vital = VitalSigns()
        self.standbys: dict[str, str] = {}  # by stream, who serves this site in place of its parent
        self.seconds: dict[str, str] = {}  # by stream, who serves this site besides its parent
        self._served: dict[str, tuple[tuple[int, tuple[str, ...]], Routes]] = {}
        self.stand_ins: dict[tuple[str, str], float] = {}  # by stream and site below, until when this one serves it
        # By inbox, the subscriptions that may still read it, and their stays; not where only its owner reads it.
        # Messages up to the given place are for others.
        self.members: dict[Key, dict[tuple[int, int], int]] = {}
        self.met: dict[int, int] = {}  # by subscription that shares an inbox, the newest version that was routed to it
        self.recorded: set[Key] = set()  # outputs with decisions in the site log, which may be out of date
        self.waiting = Signal(machine)  # set when an output may have something to send

    def is_real(self, parent: str) -> bool:
        """Whether a link from a parent leads from one process to another: else it is a budget and nothing more."""
        sites = self.newest.deployment.sites if self.newest else {}
        return self.alone or any(each in sites and sites[each].is_host for each in (parent, self.site))

    def subject(self, key: Key) -> str:
        """The subject of an output."""
        logs = self.port.logs
        if key.child is not None:
            return logs.link(self.site, key.child, key.stream)
        assert key.subscription is not None
        return logs.delivery(self.site, key.subscription, key.stay)

    def log_of(self, key: Key) -> Log:
        """The log of an output."""
        logs = self.port.logs
        return logs.site(key.child) if key.child is not None else logs.inbox(self.site)

    def put_aside(self, log: Log, stored: Stored, error: Exception, action: str = PASSED_OVER) -> None:
        """Count and name a message that cannot be read, and what is done instead."""
        self.port.quarantine.add(UnreadableError(log.name, stored.subject, stored.sequence, str(error)), action)

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """An answer, asked for until there is one: the server or another site may be away for a while."""
        while True:
            try:
                return await ask()
            except FabricError:
                self.totals.failures += 1
                await self.port.sleep(self.stall_s)

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject, however long the server takes to answer; a log that is missing is made."""

        async def ask() -> Stored | None:
            try:
                return await self.port.last(log, subject)
            except FabricError:
                await self.port.ensure(log)
                raise

        return await self.insist(ask)

    async def record(self, kind: Any, subject: str) -> Any:
        """A record of the state log, None where there is none or it cannot be read."""
        log = self.port.logs.state
        stored = await self.last(log, subject)
        if stored is None:
            return None
        try:
            return kind.decode(stored.data)
        except WireError as error:
            self.put_aside(log, stored, error)
            return None

    async def settled_before(self) -> dict[str, tuple[int, int]]:
        """What the last report of this site says is settled, of streams that have not begun anew since then.

        It counts decisions that were recorded in the site log. Where that was put back to an older copy, what they were
        about has to come again.
        """
        report: RelayReport | None = await self.record(RelayReport, self.port.logs.stats("relay", self.site))
        if report is None:
            return {}
        settled = {
            stream: found
            for stream, found in report.settled.items()
            if report.incarnations.get(stream) == self.incarnations.get(stream)
        }
        for token, upto in report.recorded.items():
            key = Key.parse(token)
            reached = max((await self.tail(key))[0] or 0, await self._recorded_upto(key))
            if key.stream in settled and reached < min(upto, settled[key.stream][0]):
                settled[key.stream] = (reached, settled[key.stream][1])
        return settled

    async def _recorded_upto(self, key: Key) -> int:
        """The end of what was decided about an output, as the site log has it; 0 where it has nothing to read."""
        log, subject = self.port.logs.site(self.site), self.port.logs.held(self.site, key.token)
        stored = await self.last(log, subject)
        try:
            return 0 if stored is None else self.port.codec.coverage(stored.data)[1]
        except WireError:
            return 0  # it is named when the output is restored

    async def serving(self, routes: Routes) -> Routes:
        """The routes with the sites below that this one serves in place of their parents for now."""
        wanted = [
            child
            for (stream, child), until_s in self.stand_ins.items()
            if stream == routes.stream
            and until_s > self.port.now
            and all(each.site != child for each in routes.children)
        ]
        if not wanted:
            return routes
        key = (routes.version, tuple(wanted))
        if routes.stream not in self._served or self._served[routes.stream][0] != key:
            found = [await self.tables.stand_in(routes.version, self.site, routes.stream, child) for child in wanted]
            added = tuple(child for child in found if child is not None)
            more = replace(routes, children=(*routes.children, *added)) if added else routes
            self._served[routes.stream] = (key, more)
        return self._served[routes.stream][1]

    def take_incarnations(self, snapshot: Snapshot) -> None:
        """Note which rows the streams have; where one began anew, what is known here is of others: start again."""
        for stream, incarnation in snapshot.identity.incarnations.items():
            if self.incarnations.setdefault(stream, incarnation.id) != incarnation.id:
                raise AnewError(self.site, stream)

    async def tail(self, key: Key) -> tuple[int | None, int]:
        """The coverage of an output's last message that can be read, and the sequence of its last message."""
        log, subject = self.log_of(key), self.subject(key)
        stored = await self.last(log, subject)
        if stored is None:
            return None, 0
        try:
            return self.port.codec.coverage(stored.data)[1], stored.sequence
        except WireError as error:
            self.put_aside(log, stored, error)
            reached = await self._readable_tail(log, subject)
            return await self._read_upto(key, stored.sequence, reached), stored.sequence

    async def _read_upto(self, key: Key, last: int, reached: int | None) -> int | None:
        """Where to go on behind a damaged last message: behind it, if its reader had counted it before.

        Sent anew it could end elsewhere, and what it declares would be counted twice.
        """
        if key.subscription is None:
            return reached
        found = []
        for subscription, stay in tuple(self.readers(key)):  # others may come while this one is asked about
            tally = await self.insist(partial(read_tally, self.port, subscription))
            if tally.place(stay) >= last:
                return max(reached or 0, tally.mark)
            if tally.stay == stay and tally.starts is not None:
                found.append(tally.mark)
        # Where nothing else is left, everything before it was read: it began at the end of that.
        return min(found) if reached is None and found else reached

    async def _readable_tail(self, log: Log, subject: str) -> int | None:
        """The coverage of the last message of a subject that can be read, where the very last one cannot."""
        reached, place = None, 0
        while batch := await self.insist(partial(self.port.read, log, subject, place)):
            place = batch[-1].sequence
            for stored in batch:
                try:
                    reached = self.port.codec.coverage(stored.data)[1]
                except WireError:
                    continue  # it was counted when it was met as the last one, or will be by its reader
        return reached

    def resume(self, key: Key, output: Output, coverage: int | None, sequence: int) -> None:
        """Let an output go on from its tail; a relay that another one has overtaken starts again from the logs."""
        if not output.resume(coverage, sequence):
            raise OvertakenError(self.site, key.token)

    async def read_out(self, key: Key) -> bool:
        """Whether a reader has come to the end of an inbox and gone on at another site: nobody will read it again."""
        for subscription, stay in tuple(self.readers(key)):  # others may come while this one is asked about
            if (await read_tally(self.port, subscription)).stay <= stay:
                return False
        return True

    def readers(self, key: Key) -> Collection[tuple[int, int]]:
        """The subscriptions that may still read an inbox, and in which of their stays."""
        assert key.subscription is not None
        return self.members.get(key) or ((key.subscription, key.stay),)

    def meet(self, key: Key, target: Child | Receiver, version: int) -> None:
        """Know the members of an inbox before the first block of a version is routed to them.

        Who is new is there for what is sent from now on. After a start the log may have some of that already.
        """
        self.targets[key] = target
        if isinstance(target, Receiver) and (target.members or key in self.members):
            output = self.core.outputs.get(key)
            place = 0 if output is None or output.sequence == output.began else output.sequence
            for reader in target.readers:
                self.admit(key, reader, place)
                self.met[reader[0]] = max(version, self.met.get(reader[0], 0))

    def admit(self, key: Key, reader: tuple[int, int], place: int = 0) -> None:
        """Know that a subscription reads an inbox in a stay, from behind a place on."""
        assert key.subscription is not None
        self.members.setdefault(key, {(key.subscription, key.stay): 0}).setdefault(reader, place)

    async def pack_overfull(self) -> None:
        """Give up rows where that takes long, beside everything else; `routing` is held, so nothing comes in."""
        while self.core.overfull:
            output = self.core.overfull.pop()
            work = output.begin_pack(self.port.now)
            if work is not None:
                output.end_pack(await self.port.work(work))
            self.core.release(self.port.now)  # blocks that were held behind a gap may fill a queue again
        self.waiting.set()
