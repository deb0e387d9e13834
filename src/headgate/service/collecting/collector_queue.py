"""The way into a stream's input log: what has come waits here, is stored in order, and is acknowledged after that.

What waits is bounded. A broker that waits for acknowledgements is held back by them. From one that does not, messages
past the bound are dropped; they are counted and declared in the stream, at their place, as rows that were not sent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.diagnostics import stream_log
from headgate.fabric import Fabric, FabricError
from headgate.reduction import Digest
from headgate.wire.unsent import encode_unsent

MOST_MESSAGES: Final = 50_000
MOST_BYTES: Final = 64 << 20
_WINDOW: Final = 128
_AGAIN_S: Final = 1.0
_CUT: Final = 4096
DROPPED: Final = "the source sent faster than rows could be stored"
"""The reason by which dropped messages are declared."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has come. `stored` is called, if there is one, as soon as it need not be sent again."""

    data: bytes
    stored: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class _Numbered:
    """An arrival with what tells it from all others, so that a log which has it does not store it again."""

    identity: str
    arrival: Arrival


class CollectorQueue:
    """What has come for one stream and is not stored yet. `offer` is called within the loop that `run` runs in."""

    def __init__(self, fabric: Fabric, stream: str, most: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._fabric = fabric
        self._stream = stream
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[_Numbered] = deque()
        self._run, self._count = uuid.uuid4().hex, 0
        self._bytes = 0
        self._undeclared = 0
        self._came = asyncio.Event()
        self.stored = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """How many messages wait to be stored."""
        return len(self._waiting)

    def offer(self, arrival: Arrival) -> bool:
        """Take a message in; one that nobody will send again is dropped where too many wait, and False is said."""
        full = len(self._waiting) >= self._most or self._bytes + len(arrival.data) > self._most_bytes
        if full and arrival.stored is None:
            self.dropped += 1
            self._undeclared += 1
        else:
            self._count += 1
            self._waiting.append(_Numbered(f"collected {self._run} {self._count}", arrival))
            self._bytes += len(arrival.data)
        self._came.set()
        return not full or arrival.stored is not None

    async def run(self) -> None:
        """Store what comes, until cancelled; what cannot be stored now is tried again."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting or self._undeclared:
                try:
                    await self._store()
                except (FabricError, TimeoutError) as error:
                    stream_log(self._stream).warning("what came from its source is stored later: %s", error)
                    await asyncio.sleep(_AGAIN_S)

    async def _store(self) -> None:
        """Store a few messages at once, in order; those that were stored are not stored again where one fails."""
        logs = self._fabric.logs
        subject = logs.published(self._stream)
        some = [self._waiting[place] for place in range(min(_WINDOW, len(self._waiting)))]
        answers = await asyncio.gather(
            *(
                self._fabric.publish(subject, self._fitted(each.arrival.data), message_id=each.identity)
                for each in some
            ),
            return_exceptions=True,
        )
        for each, answer in zip(some, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            self._waiting.popleft()
            self._bytes -= len(each.arrival.data)
            self.stored += 1
            if each.arrival.stored is not None:
                each.arrival.stored()
        if self._undeclared and not self._waiting:
            count = self._undeclared
            digest = Digest(count, {DROPPED: count}, 0, 0)
            await self._fabric.publish(logs.unsent(self._stream), encode_unsent(digest))
            self._undeclared -= count

    def _fitted(self, data: bytes) -> bytes:
        """A message that no log can hold becomes one that nobody can read, so that it is a dead letter and not lost."""
        return data if len(data) <= self._fabric.max_payload - _CUT else b"\0" + data[:_CUT]
