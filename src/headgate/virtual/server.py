"""A NATS server in virtual time: several logs in one namespace of subjects, and what can happen to all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headgate.protocol.port import FabricError, NoLogError, TooLargeError
from headgate.virtual.logs import READ_BYTES, LogBackup, SimulatedLog, VirtualLogInfo
from headgate.virtual.messages import VirtualMessage, header_bytes
from headgate.virtual.subjects import matches, overlap
from headgate.wire.logs import Log

MAX_PAYLOAD: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class ServerBackup:
    """Everything that a server held at one moment."""

    logs: tuple[LogBackup, ...]


class SimulatedServer:
    """Logs by name. A log is given as `headgate.wire.logs.Log`, of which only the name counts after `ensure`.

    With `sync_always` (the product's setting) nothing that was acknowledged is lost at a power failure. `disk_full`
    refuses every append of every log.
    """

    def __init__(self, *, max_payload: int = MAX_PAYLOAD, sync_always: bool = True) -> None:
        self.max_payload = max_payload
        self.sync_always = sync_always
        self.disk_full = False
        self._logs: dict[str, SimulatedLog] = {}
        self._routes: dict[str, SimulatedLog] = {}

    def ensure(self, log: Log) -> None:
        """Make a log, or bring it to other limits."""
        for other in self._logs.values():
            if other.log.name != log.name and any(overlap(a, b) for a in log.subjects for b in other.log.subjects):
                raise FabricError(f"cannot make the log {log.name}: subjects overlap with an existing stream")
        self._routes.clear()
        known = self._logs.get(log.name)
        if known is None:
            self._logs[log.name] = SimulatedLog(log, synced=self.sync_always)
        elif known.log != log:
            known.change(log)

    def log(self, log: Log) -> SimulatedLog:
        """The log itself."""
        found = self._logs.get(log.name)
        if found is None:
            raise NoLogError(f"there is no log {log.name}", hint="is the deployment up?")
        return found

    def log_of(self, subject: str) -> SimulatedLog:
        """The log that takes messages of a subject."""
        found = self._routes.get(subject)
        if found is not None:
            return found
        for log in self._logs.values():
            if any(matches(pattern, subject) for pattern in log.log.subjects):
                self._routes[subject] = log
                return log
        raise NoLogError(f"{subject}: not stored: no log takes this subject", hint="is the deployment up?")

    @property
    def logs(self) -> tuple[SimulatedLog, ...]:
        """All logs in the order in which they were made."""
        return tuple(self._logs.values())

    def publish(
        self,
        subject: str,
        data: Any,
        *,
        size: int,
        expect: int | None = None,
        replace: bool = False,
        message_id: str | None = None,
        now: float = 0.0,
    ) -> int:
        """Append to the log that takes the subject and return the sequence, as `headgate.fabric.Fabric.publish`.

        `data` may be any object; it is kept as it is. `size` is the payload's length in bytes. Raises `FencedError`,
        `LogFullError`, `NoLogError`, `TooLargeError`, or `FabricError` when the disk is full.
        """
        if size > self.max_payload or size + header_bytes(expect, replace, message_id) > self.max_payload:
            raise TooLargeError(f"{subject}: a message of {size} bytes, the server takes {self.max_payload}")
        log = self._routes.get(subject) or self.log_of(subject)
        if self.disk_full:
            raise FabricError(f"{subject}: not stored: no space left on device")
        return log.append(
            subject, data, size=size, expect=expect, replace=replace, message_id=message_id, now=now
        )  # fmt: skip

    def last(self, log: Log, subject: str) -> VirtualMessage | None:
        """The last message of a subject."""
        return self.log(log).last(subject)

    def get(self, log: Log, sequence: int) -> VirtualMessage | None:
        """The message with that sequence, None when there is none."""
        return self.log(log).get(sequence)

    def read(
        self, log: Log, subject: str, after: int, *, limit: int = 256, max_bytes: int = READ_BYTES
    ) -> list[VirtualMessage]:
        """The next messages of a subject (wildcards allowed) after a sequence."""
        return self.log(log).read(subject, after, limit, max_bytes)

    def lasts(self, log: Log, subjects: Iterable[str]) -> dict[str, VirtualMessage]:
        """The last message of each subject that has one."""
        return self.log(log).lasts(subjects)

    def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages, and how many; none when there is no such log."""
        found = self._logs.get(log.name)
        return found.subjects(pattern) if found else {}

    def names(self, subject: str) -> list[str]:
        """The names of all logs that take messages of a subject (wildcards allowed), in order."""
        logs = self._logs.values()
        return sorted(found.log.name for found in logs if any(overlap(subject, each) for each in found.log.subjects))

    def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one."""
        if below > 1:
            self.log(log).purge(subject, below)

    def remove(self, log: Log, sequence: int) -> bool:
        """Delete one message; False when there is none with this sequence."""
        return self.log(log).remove(sequence)

    def info(self, log: Log) -> VirtualLogInfo | None:
        """How much a log holds, None when it does not exist."""
        found = self._logs.get(log.name)
        return found.info() if found else None

    def delete(self, log: Log) -> None:
        """Delete a whole log."""
        self.log(log)
        del self._logs[log.name]
        self._routes.clear()

    def sync(self) -> None:
        """Make everything durable that was done so far."""
        for log in self._logs.values():
            log.sync()

    def power_failure(
        self, random: Random, *, removals_survive: bool = False, numbers_survive: bool = False
    ) -> dict[str, int]:
        """Lose a random tail of what was not synced, in each log another; returns the changes undone by log."""
        return {
            name: log.power_failure(random, removals_survive=removals_survive, numbers_survive=numbers_survive)
            for name, log in self._logs.items()
        }

    def restart(self) -> None:
        """Start again: nothing is lost but the ids of messages that are no longer stored."""
        for log in self._logs.values():
            log.restart()

    def backup(self, log: Log | None = None) -> ServerBackup:
        """A copy of one log, or of all of them."""
        logs = self._logs.values() if log is None else (self.log(log),)
        return ServerBackup(tuple(each.backup() for each in logs))

    def restore(self, backup: ServerBackup, log: Log | None = None) -> None:
        """Put one log back to what it was, or the whole server: logs that the backup does not hold are then gone."""
        if log is not None:
            self.log(log).restore(next(each for each in backup.logs if each.log.name == log.name))
            return
        self._routes.clear()
        known, self._logs = self._logs, {}
        for each in backup.logs:
            found = known.get(each.log.name) or SimulatedLog(each.log, synced=self.sync_always)
            found.log = each.log
            found.restore(each)
            self._logs[each.log.name] = found

    def wipe(self, log: Log | None = None) -> None:
        """Lose what one log holds, or all logs with everything in them."""
        if log is not None:
            self.log(log).wipe()
            return
        self._logs.clear()
        self._routes.clear()

    def exchange(self, other: SimulatedServer) -> None:
        """Exchange the disks of two servers."""
        self._logs, other._logs = other._logs, self._logs
        self._routes.clear()
        other._routes.clear()

    def flip(self, log: Log, sequence: int) -> bool:
        """Damage a message where no checksum of the server sees it: it is read, and its data is `Unreadable`."""
        return self.log(log).flip(sequence)

    def rot(self, log: Log, sequence: int) -> bool:
        """Damage the file of a message: reads leave it out without a word; see `logs`."""
        return self.log(log).rot(sequence)

    def fill(self, log: Log, filled: bool = True) -> None:
        """Let a log refuse every append as full, whatever its limits say, or end that."""
        self.log(log).filled = filled
