"""What a process has set aside because it could not be read: counted, named, and published for `status` and `ledger`.

Every `Fabric` has one registry, `fabric.quarantine`. A reader calls `take` with the log, the message and a decoder, and
gets what the message says, or None after the message was recorded. `headgate.fabric.quarantine` publishes the registry
of a process under `quarantine.<process>` in the state log, and reads those of all processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from headgate.protocol.records import Record
from headgate.wire.logs import Log
from headgate.wire.record import Count
from headgate.wire.unreadable import Message, UnreadableError, decode_message

T = TypeVar("T")
MOST: Final = 64
"""So many messages are named; older ones are only counted."""
_KNOWN: Final = 4096
_FORGET_S: Final = 3600.0
PASSED_OVER: Final = "passed over"


@dataclass(frozen=True, slots=True)
class SetAside:
    """One message that could not be read, what its reader did instead, and when it was last met."""

    log: str
    subject: str
    sequence: Count
    cause: str
    action: str
    time_ms: Count

    @property
    def key(self) -> tuple[str, int]:
        """Which message it is."""
        return self.log, self.sequence


class QuarantineReport(Record, frozen=True, kw_only=True):
    """What a process has set aside, and how many messages it was in all."""

    kind_name = "quarantine"
    time_ms: Count = 0
    count: Count = 0
    messages: tuple[SetAside, ...] = ()


class Quarantine:
    """The messages that one process has set aside. `count` counts each of them once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives the wall clock in seconds."""
        self._clock = clock
        self._named: dict[tuple[str, int], SetAside] = {}
        self._seen: dict[tuple[str, int], None] = {}
        self.count = 0
        self.changed = False
        self.restored = False

    def take(self, log: Log, message: Message, reader: Callable[[bytes], T], action: str = PASSED_OVER) -> T | None:
        """What a message says, or None when it cannot be read: then it is recorded with what is done instead."""
        try:
            return decode_message(log.name, message, reader)
        except UnreadableError as error:
            self.add(error, action)
            return None

    def add(self, error: UnreadableError, action: str = PASSED_OVER) -> None:
        """Record a message that could not be read; one that was met before is only brought up to date."""
        found = SetAside(error.log, error.subject, error.sequence, error.cause, action, int(self._clock() * 1000))
        known = self._named.pop(found.key, None)
        self._named[found.key] = found
        if found.key not in self._seen:
            self.count += 1
            self._seen[found.key] = None
        self.changed = self.changed or known is None or known.action != action
        self._trim()

    def _trim(self) -> None:
        """Forget what was met longest ago."""
        for held, most in ((self._named, MOST), (self._seen, _KNOWN)):
            while len(held) > most:
                del held[next(iter(held))]

    @property
    def messages(self) -> tuple[SetAside, ...]:
        """The messages that were met within the last hour, the one met last at the end."""
        limit_ms = (self._clock() - _FORGET_S) * 1000
        return tuple(each for each in self._named.values() if each.time_ms >= limit_ms)

    def report(self) -> QuarantineReport:
        """What is published of it."""
        return QuarantineReport(time_ms=int(self._clock() * 1000), count=self.count, messages=self.messages)

    def restore(self, report: QuarantineReport) -> None:
        """Go on from what this process published before it was started again."""
        before = {each.key: each for each in report.messages}
        self.count += report.count - len(before.keys() & self._seen.keys())
        self._named = {**{key: each for key, each in before.items() if key not in self._named}, **self._named}
        self._seen = {**dict.fromkeys(before), **self._seen}
        self.restored = True
        self._trim()
