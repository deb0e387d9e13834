"""A real nats-server and the simulated one behind the same few synchronous calls, for the contract of logs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.fabric import EmbeddedServer, FabricError, NoLogError, Stored, SyncFabric
from headgate.virtual.logs import VirtualLogInfo
from headgate.virtual.messages import VirtualMessage
from headgate.virtual.server import SimulatedServer
from headgate.wire.logs import Log
from headgate_studies.testing.log_files import cut_tail, damage

MAX_BYTES = 16 << 20
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a reader sees it. The time at which it was stored is the one thing that may differ."""

    sequence: int
    subject: str
    data: bytes
    header_bytes: int
    size: int


def _seen(message: VirtualMessage | Stored) -> Seen:
    return Seen(message.sequence, message.subject, message.data, message.header_bytes, message.size)


class LogStore(Protocol):
    """The operations of a server that Headgate relies on. Refusals are those of `headgate.fabric`."""

    timeout_s: float
    """How long an append waits for its answer."""

    @property
    def max_payload(self) -> int:
        """The largest message, with its headers."""

    def ensure(self, log: Log) -> None:
        """Make a log, or bring it to other limits."""

    def publish(
        self, subject: str, data: bytes, expect: int | None = None, replace: bool = False, message_id: str | None = None
    ) -> int:
        """Append and return the sequence."""

    def last(self, log: Log, subject: str) -> Seen | None:
        """The last message of a subject."""

    def get(self, log: Log, sequence: int) -> Seen | None:
        """The message with that sequence."""

    def read(self, log: Log, pattern: str, after: int, limit: int = 256, max_bytes: int = MAX_BYTES) -> list[Seen]:
        """The next messages after a sequence."""

    def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Seen]:
        """The last message of each subject that has one."""

    def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects with messages, and how many."""

    def names(self, pattern: str) -> list[str]:
        """Logs that take a subject."""

    def purge(self, log: Log, pattern: str, below: int) -> None:
        """Delete messages below a sequence."""

    def remove(self, log: Log, sequence: int) -> bool:
        """Delete one message."""

    def info(self, log: Log) -> VirtualLogInfo | None:
        """How much the log holds."""

    def delete(self, log: Log) -> None:
        """Delete a whole log."""

    def restart(self) -> None:
        """Stop the server and start it again."""

    def lose_tail(self, log: Log, count: int, *, numbers_survive: bool = False) -> None:
        """Lose the last messages of a log at a power failure: they were not synced, and perhaps their numbers were."""

    def rot(self, log: Log, sequence: int) -> bool:
        """Flip a bit in the file of a message between a stop and a start of the server."""

    def pass_time(self, seconds: float) -> None:
        """Come to a later time."""


class SimulatedStore:
    """The simulated server, which should not sync always; `now` is its virtual time."""

    def __init__(self, server: SimulatedServer) -> None:
        self.server = server
        self.timeout_s = 0.0
        self.now = 0.0
        self.ensure, self.subjects, self.names = server.ensure, server.subjects, server.names
        self.purge, self.remove, self.info = server.purge, server.remove, server.info
        self.delete, self.restart = server.delete, server.restart
        self.max_payload = server.max_payload

    def publish(
        self, subject: str, data: bytes, expect: int | None = None, replace: bool = False, message_id: str | None = None
    ) -> int:
        """Append and return the sequence."""
        return self.server.publish(
            subject, data, size=len(data), expect=expect, replace=replace, message_id=message_id, now=self.now
        )  # fmt: skip

    def last(self, log: Log, subject: str) -> Seen | None:
        """The last message of a subject."""
        found = self.server.last(log, subject)
        return _seen(found) if found else None

    def get(self, log: Log, sequence: int) -> Seen | None:
        """The message with that sequence."""
        found = self.server.get(log, sequence)
        return _seen(found) if found else None

    def read(self, log: Log, pattern: str, after: int, limit: int = 256, max_bytes: int = MAX_BYTES) -> list[Seen]:
        """The next messages after a sequence."""
        return [_seen(found) for found in self.server.read(log, pattern, after, limit=limit, max_bytes=max_bytes)]

    def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Seen]:
        """The last message of each subject that has one."""
        return {subject: _seen(found) for subject, found in self.server.lasts(log, subjects).items()}

    def lose_tail(self, log: Log, count: int, *, numbers_survive: bool = False) -> None:
        """Lose the last messages of a log at a power failure."""
        self.server.log(log).lose(count, numbers_survive=numbers_survive)

    def rot(self, log: Log, sequence: int) -> bool:
        """Flip a bit in the file of a message between a stop and a start of the server."""
        if not self.server.rot(log, sequence):
            return False
        self.server.restart()
        return True

    def pass_time(self, seconds: float) -> None:
        """Come to a later time."""
        self.now += seconds


class NatsStore:
    """A real server that the contract may stop and start, and a connection to it."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.timeout_s = 10.0
        self.server = server
        self.fabric = SyncFabric(server.url)

    @property
    def max_payload(self) -> int:
        """The largest message, with its headers."""
        return self.fabric.max_payload

    def close(self) -> None:
        """Close the connection; the server stays."""
        self.fabric.close()

    def ensure(self, log: Log) -> None:
        """Make a log, or bring it to other limits."""
        self.fabric.ensure(log)

    def publish(
        self, subject: str, data: bytes, expect: int | None = None, replace: bool = False, message_id: str | None = None
    ) -> int:
        """Append and return the sequence."""
        publish = self.fabric.fabric.publish
        options: Any = {"expect": expect, "replace": replace, "message_id": message_id}
        return self.fabric.run(publish(subject, data, timeout_s=self.timeout_s, **options))

    def last(self, log: Log, subject: str) -> Seen | None:
        """The last message of a subject."""
        found = self.fabric.last(log, subject)
        return _seen(found) if found else None

    def get(self, log: Log, sequence: int) -> Seen | None:
        """The message with that sequence."""
        found = self.fabric.get(log, sequence)
        return _seen(found) if found else None

    def read(self, log: Log, pattern: str, after: int, limit: int = 256, max_bytes: int = MAX_BYTES) -> list[Seen]:
        """The next messages after a sequence."""
        read = self.fabric.fabric.read(log, pattern, after, limit=limit, max_bytes=max_bytes)
        return [_seen(found) for found in self.fabric.run(read)]

    def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Seen]:
        """The last message of each subject that has one."""
        return {
            subject: _seen(found)
            for subject, found in self.fabric.run(self.fabric.fabric.lasts(log, subjects)).items()
        }  # fmt: skip

    def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects with messages, and how many."""
        return self.fabric.run(self.fabric.fabric.subjects(log, pattern))

    def names(self, pattern: str) -> list[str]:
        """Logs that take a subject."""
        return self.fabric.run(self.fabric.fabric.names(pattern))

    def purge(self, log: Log, pattern: str, below: int) -> None:
        """Delete messages below a sequence."""
        self.fabric.purge(log, pattern, below)

    def remove(self, log: Log, sequence: int) -> bool:
        """Delete one message."""
        asked = json.dumps({"seq": sequence}).encode()
        answer = json.loads(self.fabric.request(f"$JS.API.STREAM.MSG.DELETE.{log.name}", asked))
        if answer.get("error", {}).get("code") == _NOT_FOUND:
            raise NoLogError(f"there is no log {log.name}")
        return bool(answer.get("success", False))

    def info(self, log: Log) -> VirtualLogInfo | None:
        """How much the log holds."""
        found = self.fabric.run(self.fabric.fabric.info(log))
        if found is None:
            return None
        state = found.state
        return VirtualLogInfo(state.messages, state.bytes, state.first_seq, state.last_seq)

    def delete(self, log: Log) -> None:
        """Delete a whole log."""
        self.fabric.run(self.fabric.fabric.delete(log))

    def restart(self) -> None:
        """Stop the server and start it again."""
        with self._stopped():
            self.server.stop()

    def lose_tail(self, log: Log, count: int, *, numbers_survive: bool = False) -> None:
        """Lose the last messages of a log at a power failure."""
        with self._stopped():
            if numbers_survive:
                self.server.stop()  # which writes the index
            else:
                self.server.kill()
            cut_tail(self.server.directory, log, count, index=numbers_survive)

    def rot(self, log: Log, sequence: int) -> bool:
        """Flip a bit in the file of a message between a stop and a start of the server."""
        if self.get(log, sequence) is None:
            return False
        with self._stopped():
            self.server.stop()
            return damage(self.server.directory, log, sequence)

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """Close the connection, let the caller end the server, start both again."""
        self.fabric.close()
        yield
        self.server.start()
        self.fabric = SyncFabric(self.server.url)

    def pass_time(self, seconds: float) -> None:
        """Wait: the server's time is the wall clock's."""
        time.sleep(seconds)


def outcome(call: object, *arguments: object, **options: object) -> object:
    """What a call returns, or the kind of its refusal."""
    assert callable(call)
    try:
        return call(*arguments, **options)
    except FabricError as error:
        return type(error)
