"""What a machine can ask for: appends, reads, purges, other sites, tables, time.

`LogPort` is what coroutines of the protocol are written against. `MachinePort` turns each call into a command of a
machine; `headgate.fabric.Fabric` answers the same calls at once, so that a script on a real connection can use the
same coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from headgate.errors import HeadgateError
from headgate.protocol.codec import Codec, WireCodec
from headgate.protocol.kernel import Machine
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.revisions import Revisions
from headgate.wire.logs import Log, Logs
from headgate.wire.snapshot import Snapshot

T = TypeVar("T")
CARRIED = "Headgate-Stored"
"""The header of a message that was carried here from another server: when that one had stored it."""


class FabricError(HeadgateError):
    """The fabric could not do what was asked, or nobody knows whether it has."""

    usual_kind = "unavailable"


class FencedError(FabricError):
    """An append expected another last message: somebody else has written to the subject."""


class NoAnswerError(FabricError):
    """A service took a request and did not answer in time: whether it has done it is not known."""


class LogFullError(FabricError):
    """An append was refused because the log, the subject or the disk is full."""

    usual_kind = "full"


class NoLogError(FabricError):
    """There is no log with this name, or none that takes this subject."""


class TooLargeError(FabricError):
    """A message is larger, with its headers, than the server takes."""

    usual_kind = "too-large"


class GoneError(FabricError):
    """A version of the catalog was deleted, as no log that is still to be read named it."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"version {version} of the catalog is gone, as nothing that is still to be read needed it",
            hint="read on from what was last acknowledged",
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a log, and when the server stored it (seconds since the epoch).

    `came_s` is when it came over a link, by the receiver's clock; 0 where nobody noted it. `identity` is the id that
    its publisher gave it, empty where it has none or was not asked for.
    """

    sequence: int
    subject: str
    data: bytes
    time_s: float = 0.0
    header_bytes: int = 0
    came_s: float = 0.0
    identity: str = ""

    @property
    def size(self) -> int:
        """The bytes that it took on its way: payload, headers and subject."""
        return len(self.data) + self.header_bytes + len(self.subject)

    def headers(self) -> dict[str, str]:
        """The headers with which the server gives a stored message, and whoever reads it for somebody else."""
        at = datetime.fromtimestamp(self.time_s, UTC).isoformat()
        return {"Nats-Sequence": str(self.sequence), "Nats-Subject": self.subject, "Nats-Time-Stamp": at}


@dataclass(frozen=True, slots=True)
class LogInfo:
    """How full a log is."""

    bytes: int
    messages: int


class Append(NamedTuple):
    """Append to a log. `expect` fences it, `replace` takes everything before it off the subject in the same step."""

    subject: str
    data: Any
    expect: int | None = None
    replace: bool = False


class Last(NamedTuple):
    """Read the last message of a subject."""

    log: Log
    subject: str


class Get(NamedTuple):
    """Read a message by its sequence."""

    log: Log
    sequence: int


class Read(NamedTuple):
    """Read the next messages of a subject after a sequence."""

    log: Log
    subject: str
    after: int
    limit: int


class Next(NamedTuple):
    """As `Read`, but answered only when there is at least one message."""

    log: Log
    subject: str
    after: int
    limit: int


class Listen(NamedTuple):
    """Be woken when something is published on one of some subjects, or when the time is over.

    A hint only: it may be lost, so the time should be short enough to look without one.
    """

    subjects: tuple[str, ...]
    timeout_s: float


class Lasts(NamedTuple):
    """Read the last message of each of some subjects."""

    log: Log
    subjects: tuple[str, ...]


class Subjects(NamedTuple):
    """List the subjects of a log that hold messages, and how many."""

    log: Log
    pattern: str


class Names(NamedTuple):
    """List the logs that take messages of a subject."""

    subject: str


class Purge(NamedTuple):
    """Delete the messages of a subject with a sequence below this one."""

    log: Log
    subject: str
    below: int


class Ensure(NamedTuple):
    """Make a log if there is none."""

    log: Log


class Info(NamedTuple):
    """Ask how full a log is."""

    log: Log


class Ask(NamedTuple):
    """Ask a service for something and wait for its answer."""

    subject: str
    data: Any
    timeout_s: float


class NeedTable(NamedTuple):
    """Get a version of the catalog, as soon as it is there."""

    version: int


class Computation(NamedTuple):
    """Compute something that takes long; it may run beside other things and touches nothing but its own values."""

    run: Callable[[], Any]


class HandOver(NamedTuple):
    """Give something to the consumer of a machine; answered when the consumer is done with it."""

    item: Any


class LogPort(Protocol):
    """Logs as coroutines of the protocol use them. Whatever fails raises a `FabricError`."""

    @property
    def logs(self) -> Logs:
        """The table of logs and subjects."""
        ...

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes."""
        ...

    @property
    def codec(self) -> Codec:
        """How messages are written and read."""
        ...

    @property
    def quarantine(self) -> Quarantine:
        """Messages that could not be read."""
        ...

    @property
    def revisions(self) -> Revisions:
        """Revisions of the catalog that were read lately."""
        ...

    async def publish(self, subject: str, data: bytes, *, expect: int | None = None, replace: bool = False) -> int:
        """Append to a log and return the sequence, once it is stored."""
        ...

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        ...

    async def get(self, log: Log, sequence: int) -> Stored | None:
        """The message with that sequence, None when it was purged."""
        ...

    async def read(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence."""
        ...

    async def next(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence, as soon as there is one."""
        ...

    async def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last message of each of some subjects that has one."""
        ...

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages, and how many."""
        ...

    async def names(self, subject: str) -> list[str]:
        """The names of all logs that take messages of a subject."""
        ...

    async def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one."""
        ...

    async def ensure(self, log: Log) -> None:
        """Make a log, or bring it to the table's limits."""
        ...

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is, None when there is none."""
        ...

    async def request(self, subject: str, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Ask a service and return its answer."""
        ...

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines side by side."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        ...

    @property
    def now(self) -> float:
        """A clock that never goes back, in seconds."""
        ...

    @property
    def wall_s(self) -> float:
        """The wall clock."""
        ...


class MachinePort:
    """The port of a machine: every call is a command, and the machine waits for its answer."""

    def __init__(
        self,
        machine: Machine,
        logs: Logs,
        max_payload: int,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """The machines of a process share its quarantine."""
        self.machine = machine
        self.logs = logs
        self.max_payload = max_payload
        self.codec: Codec = codec or WireCodec()
        self.quarantine = quarantine or Quarantine(lambda: self.wall_s)
        self.revisions = Revisions()

    @property
    def now(self) -> float:
        """A clock that never goes back, in seconds."""
        return self.machine.now.monotonic_s

    @property
    def wall_s(self) -> float:
        """The wall clock, in seconds since the epoch."""
        return self.machine.now.wall_s

    async def publish(self, subject: str, data: Any, *, expect: int | None = None, replace: bool = False) -> int:
        """Append to a log and return the sequence, once it is stored."""
        return int(await self.machine.perform(Append(subject, data, expect, replace)))

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        found: Stored | None = await self.machine.perform(Last(log, subject))
        return found

    async def get(self, log: Log, sequence: int) -> Stored | None:
        """The message with that sequence, None when it was purged."""
        found: Stored | None = await self.machine.perform(Get(log, sequence))
        return found

    async def read(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence."""
        found: list[Stored] = await self.machine.perform(Read(log, subject, after, limit))
        return found

    async def next(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence, as soon as there is one."""
        found: list[Stored] = await self.machine.perform(Next(log, subject, after, limit))
        return found

    async def listen(self, subjects: Sequence[str], timeout_s: float) -> None:
        """Wait until something comes on one of some subjects, or for some time."""
        await self.machine.perform(Listen(tuple(subjects), timeout_s))

    async def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last message of each of some subjects that has one."""
        found: dict[str, Stored] = await self.machine.perform(Lasts(log, tuple(subjects)))
        return found

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages, and how many."""
        found: dict[str, int] = await self.machine.perform(Subjects(log, pattern))
        return found

    async def names(self, subject: str) -> list[str]:
        """The names of all logs that take messages of a subject."""
        found: list[str] = await self.machine.perform(Names(subject))
        return found

    async def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one."""
        await self.machine.perform(Purge(log, subject, below))

    async def ensure(self, log: Log) -> None:
        """Make a log if there is none."""
        await self.machine.perform(Ensure(log))

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is, None when there is none."""
        found: LogInfo | None = await self.machine.perform(Info(log))
        return found

    async def request(self, subject: str, data: Any, timeout_s: float = 10.0) -> Any:
        """Ask a service and return its answer."""
        return await self.machine.perform(Ask(subject, data, timeout_s))

    async def table(self, version: int) -> Snapshot:
        """A version of the catalog, as soon as it is there."""
        found: Snapshot = await self.machine.perform(NeedTable(version))
        return found

    async def work(self, run: Callable[[], T]) -> T:
        """Compute something that takes long."""
        found: T = await self.machine.perform(Computation(run))
        return found

    async def hand_over(self, item: Any) -> Any:
        """Give something to the consumer, and wait until it is done with it."""
        return await self.machine.perform(HandOver(item))

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        await self.machine.sleep(seconds)

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines side by side."""
        return await self.machine.gather(*work)

    def serve(self, subject: str, handler: Callable[[Any], Awaitable[Any]]) -> None:
        """Answer what others ask."""
        self.machine.serve(subject, handler)
