"""Reading a log as it grows: the server sends messages as they are stored, without being asked for each.

Asking for every batch costs a round trip in which nothing is carried. Here the server is told once how many messages it
may send ahead, and told again as they are taken, so a long link is never idle while messages wait. The server's
consumer is thrown away at any doubt and made again behind the last message that was taken: nothing depends on it, a
reader's position stays its own.

How many bytes are sent ahead follows from how many come: what lies in the buffers of a slow link is in the way of
everything else on the connection, such as answers that the relay waits for, and too little leaves a long link idle.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC, noted
from headgate.protocol.port import CARRIED, FabricError, Stored
from headgate.wire.logs import Log
from headgate.wire.sizes import header_bytes

AHEAD: Final = 128
"""So many messages may be on their way or wait to be taken, at most."""
FIRST_BYTES: Final = 256 << 10
"""So many bytes may be on their way at any rate."""
AHEAD_S: Final = 0.6
"""And as many as come in so long: twice the longest round trip that should be filled, as the half is asked for anew."""
_EXPIRES_S: Final = 30.0
_HEARTBEAT_S: Final = 1.0
_SILENT_S: Final = 2.5
_TIMEOUT_S: Final = 10.0
_AGAIN_S: Final = 30.0
_NS: Final = 1_000_000_000
_OLD_FORM: Final = 9
_LEAST: Final = 2  # messages ahead
_MESSAGE_BYTES: Final = 65536.0  # of the largest message, until one has come
_SHRINK: Final = 0.95  # how much of the largest message still counts after another one
_CONTROL: Final = ("100", "404", "408", "409")


Opener = Callable[[int], Awaitable[str]]
"""Has the server give messages after a sequence, and returns the name of the consumer that does."""


class NoStreamError(FabricError):
    """The server does not let this reader have a consumer, or does not answer."""


class LogStream:
    """Messages of a subject (wildcards allowed) of a log, in order. `close` it at the end."""

    def __init__(self, client: Client, log: Log, subject: str, opener: Opener | None = None) -> None:
        """`opener` has somebody else make the server's consumer, for who may not."""
        self._client = client
        self._opener = opener or partial(open_reader, client, log, subject)
        self._log = log
        self._subject = subject
        self._name = ""
        self._inbox: Any = None
        self._waiting: deque[Stored] = deque()
        self._arrived = asyncio.Event()
        self._after = -1
        self._count = 0
        self._open = 0
        self._message_bytes = _MESSAGE_BYTES
        self._rate = 0.0
        self._counted: tuple[float, int] = (0.0, 0)
        self._broken = True
        self._refused_s = -math.inf

    async def take(self, after: int, limit: int) -> list[Stored]:
        """The next messages after a sequence, as soon as there is one; none when the server has fallen silent.

        Raises:
            NoStreamError: Messages cannot be read in this way.
        """
        if after != self._after or (self._broken and not self._waiting):
            await self._begin(after)
        while not self._waiting:
            self._arrived.clear()
            try:
                async with asyncio.timeout(_SILENT_S):
                    await self._arrived.wait()
            except TimeoutError:
                self._broken = True
            if self._broken and not self._waiting:
                return []
        found = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._after = found[-1].sequence
        await self._ask_for_more()
        return found

    async def _begin(self, after: int) -> None:
        """Have the server send what comes after a sequence; where it has refused that, it is not asked again soon."""
        await self.close()
        if time.monotonic() - self._refused_s < _AGAIN_S:
            raise NoStreamError(f"cannot follow {self._log.name}: refused before")
        self._waiting.clear()
        self._after, self._count, self._open, self._broken = after, 0, 0, False
        inbox = self._client.new_inbox()
        try:
            self._name = await self._opener(after)
            self._inbox = await self._client.subscribe(inbox, cb=self._take_in)
            await self._ask_for_more()
        except (FabricError, NatsError, TimeoutError) as error:
            self._refused_s = time.monotonic()
            raise NoStreamError(f"cannot follow {self._log.name}: {error}") from error

    async def _ask_for_more(self) -> None:
        """Let the server send on, once half of what it may send has been taken."""
        ahead = self._ahead()
        wanted = min(ahead, AHEAD - len(self._waiting)) - self._open
        if wanted < ahead // 2 or self._broken or wanted <= 0:
            return
        pull = {"batch": wanted, "expires": int(_EXPIRES_S * _NS), "idle_heartbeat": int(_HEARTBEAT_S * _NS)}
        self._open += wanted
        try:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._log.name}.{self._name}"
            await self._client.publish(subject, json.dumps(pull).encode(), reply=self._inbox.subject)
        except NatsError:
            self._broken = True

    def _ahead(self) -> int:
        """How many messages may be on their way."""
        size = max(FIRST_BYTES, AHEAD_S * self._rate)
        return int(min(max(size / self._message_bytes, _LEAST), AHEAD))

    def _count_bytes(self, size: int) -> None:
        """How large messages are at most, and how many bytes come a second."""
        self._message_bytes = max(float(size), _SHRINK * self._message_bytes)
        (began_s, counted), now = self._counted, time.monotonic()
        self._counted = began_s, counted + size
        if now - began_s >= 1.0:
            self._rate = counted / (now - began_s)
            self._counted = now, size

    async def _take_in(self, message: Any) -> None:
        """A message of the log, or a word of the server about a request for messages."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status in _CONTROL and not message.reply.startswith("$JS.ACK."):
            await self._hear(status, headers)
            return
        sequence, count, time_ns = _place(message.reply)
        self._count += 1
        self._open -= 1
        self._count_bytes(len(message.data))
        if count != self._count:  # one was lost on the way
            self._broken = True
        if not self._broken:
            size = header_bytes(headers)
            stored_s, came_s = stored_at(headers, time_ns / _NS)
            came_s = came_s or time.time()
            self._waiting.append(Stored(sequence, message.subject, message.data, stored_s, size, came_s))
        self._arrived.set()
        await self._ask_for_more()

    async def _hear(self, status: str, headers: Any) -> None:
        if status == "409" and "Deleted" in headers.get("Description", ""):
            self._broken = True
        elif status in ("404", "408", "409"):  # a request has ended, with so many messages not sent
            self._open -= int(headers.get("Nats-Pending-Messages", self._open))
            await self._ask_for_more()
        self._arrived.set()

    async def close(self) -> None:
        """End it, and let the server forget about it."""
        inbox, self._inbox = self._inbox, None
        if inbox is None or self._client.is_closed:
            return
        with noted(FABRIC, "a reader of a log is left to its server, which forgets it", NatsError):
            await inbox.unsubscribe()
            await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._log.name}.{self._name}", b"")


async def open_reader(client: Client, log: Log, subject: str, after: int) -> str:
    """Have the server keep a consumer of a log's messages after a sequence; its name. It gives them to who asks."""
    name: str = client.new_inbox().rsplit(".", 1)[-1]
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "ack_policy": "none",
        "filter_subject": subject,
        "inactive_threshold": int(2 * _EXPIRES_S * _NS),
        "mem_storage": True,
        "num_replicas": 1,
    }
    asked = json.dumps({"stream_name": log.name, "config": config}).encode()
    try:
        answer = await client.request(f"$JS.API.CONSUMER.CREATE.{log.name}.{name}.{subject}", asked, timeout=_TIMEOUT_S)
    except (NatsError, TimeoutError) as error:
        raise FabricError(repr(error)) from error
    found = json.loads(answer.data)
    if "error" in found:
        raise FabricError(str(found["error"].get("description")))
    return name


def stored_at(headers: Any, time_s: float) -> tuple[float, float]:
    """When a message was stored first, here or by the server that it was carried from, and when it came from there.

    The second is 0 where it was not carried.

    >>> stored_at({}, 5.0), stored_at({"Headgate-Stored": "4.5 4.75"}, 5.0), stored_at({"Headgate-Stored": "x"}, 5.0)
    ((5.0, 0.0), (4.5, 4.75), (5.0, 0.0))
    """
    try:
        stored_s, came_s = map(float, headers[CARRIED].split())
    except (KeyError, ValueError):
        return time_s, 0.0
    return stored_s, came_s


def _place(reply: str) -> tuple[int, int, int]:
    """From a reply subject the message's sequence in the log, its number at the consumer, and when it was stored.

    >>> _place("$JS.ACK.LOG.reader.1.7.3.1700000000000000000.0")
    (7, 3, 1700000000000000000)
    >>> _place("$JS.ACK.domain.hash.LOG.reader.1.7.3.1700000000000000000.0.token")
    (7, 3, 1700000000000000000)
    """
    parts = reply.split(".")
    sequence, count, time_ns = parts[5:8] if len(parts) == _OLD_FORM else parts[7:10]
    return int(sequence), int(count), int(time_ns)
