"""A connection to NATS: fenced appends, exact reads by sequence, wake-ups, purges.

Reading uses direct gets by sequence and takes the plain publication of a new message only as a hint to read again, so
there is no consumer whose state could be lost: a reader's position is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeVar

from nats.aio.client import Client
from nats.errors import AuthorizationError, NoRespondersError
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError

from headgate.closing import AsyncClosing
from headgate.diagnostics import FABRIC, noted
from headgate.fabric.address import reach
from headgate.fabric.administration import Administration, translated
from headgate.fabric.place import connect
from headgate.fabric.roles import GET
from headgate.fabric.serving import FAILED, Guard, RequestCall, receive, serve, serve_others
from headgate.fabric.streaming import LogStream, Opener, open_reader, stored_at
from headgate.fabric.tcp_figures import ConnectionFigures, address_of, figures_of
from headgate.protocol.codec import Codec, WireCodec
from headgate.protocol.port import (
    CARRIED,
    FabricError,
    FencedError,
    LogFullError,
    NoAnswerError,
    NoLogError,
    Stored,
    TooLargeError,
)
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.revisions import Revisions
from headgate.wire.logs import Log, Logs
from headgate.wire.sizes import EXPECTED, header_bytes

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 1.0
_WRONG_LAST = frozenset({10071, 10164})
_FULL = frozenset({10047, 10054, 10077, 10122})
_STORE_FAILED: Final = 10077
_ID: Final = "Nats-Msg-Id"
LASTS: Final = 512
_WILD: Final = frozenset("*>")
_LET_IN: Final = (
    "give --creds FILE, or HEADGATE_NATS_USER and HEADGATE_NATS_PASSWORD; on the machine of an embedded server give "
    "--state-dir instead of --nats: its owner is let in"
)
T = TypeVar("T")
F = TypeVar("F", bound="Fabric")
Arriving = Callable[[str, list[Stored]], Awaitable[list[Stored]]]
Travelling = Callable[[str], Awaitable[None]]


class Fabric(Administration, AsyncClosing):
    """One connection, one namespace. Owns the connection: use it as an async context manager or call `close`."""

    def __init__(self, client: Client, logs: Logs) -> None:
        self._client = client
        super().__init__(client.jetstream(timeout=_TIMEOUT_S))
        self.logs = logs
        self.codec: Codec = WireCodec()
        self.quarantine = Quarantine(time.time)
        self.revisions = Revisions()
        self.user = "operator"
        """Who is connected, by its credentials."""
        self.near: dict[str, Fabric] = {}
        """Servers of sites that are on this host, by site; they are closed with this connection."""
        self.guards: dict[str, Guard] = {}
        """By the subject of a service, what other sites may ask of it; nothing where there is none."""
        self.streams = True
        """Whether logs may be read as they grow (`headgate.fabric.streaming`)."""
        self.opener: Opener | None = None
        """Who makes the server's consumer for a log that is read as it grows; this connection itself where None."""
        self.arriving: Arriving | None = None
        """Holds back what is awaited, as a slow link would: for demonstrations on one host."""
        self.travelling: Travelling | None = None
        """Waited for before a request is sent and before its answer is given, for the same reason."""

    @classmethod
    async def connect(cls, url: str, logs: Logs | None = None, **options: Any) -> Self:
        """Connect by an address, also that of an embedded server; see `headgate.fabric.address` for the options."""
        found = reach(url, options)
        known: dict[str, Any] = {
            "error_cb": _log,
            "connect_timeout": _TIMEOUT_S,
            **found.options,
            "trust": found.trust,
        }
        try:
            # A client that may reconnect never gives up on its first connection either: try once without.
            once: dict[str, Any] = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
            await (await connect(found.url, found.file, **once, **known)).close()
            async with asyncio.timeout(_TIMEOUT_S):  # it would go on for ever, also where it is not let in any more
                client = await connect(
                    found.url, found.file, max_reconnect_attempts=-1, reconnect_time_wait=0.2, **known
                )
        except AuthorizationError as error:
            raise FabricError(f"NATS at {found.url} does not let this user in", hint=_LET_IN) from error
        except (NatsError, OSError, TimeoutError, ValueError) as error:
            said = f"cannot connect to NATS at {found.url}: {error!r}"
            raise FabricError(said, hint=_LET_IN if "uthoriz" in said else "is the server running?") from error
        return cls(client, logs or Logs())

    def share(self, kind: type[F]) -> F:
        """The same connection as another kind of fabric; whoever opened it closes it."""
        return kind(self._client, self.logs)

    async def release(self) -> None:
        """End what this does on a connection that others use too."""

    async def close(self) -> None:
        """Close the connection, and those to servers of sites."""
        for each in self.near.values():
            await each.close()
        await self._client.close()

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes."""
        return int(self._client.max_payload)

    @property
    def connected(self) -> bool:
        """Whether the server can be reached at the moment."""
        return bool(self._client.is_connected)

    @property
    def port(self) -> int:
        """The port of the server that this is connected to, 0 while it is not."""
        url = self._client.connected_url
        return 0 if url is None else int(url.port or 0)

    @property
    def local_address(self) -> str:
        """Where this end of the connection is, as ADDRESS:PORT; empty while there is none."""
        return address_of(self._socket)

    @property
    def figures(self) -> ConnectionFigures | None:
        """What the kernel knows of the connection."""
        return figures_of(self._socket)

    @property
    def _socket(self) -> Any:
        transport = getattr(self._client, "_transport", None)  # nats-py does not show it otherwise
        writer = getattr(transport, "_io_writer", None)
        return None if writer is None else writer.get_extra_info("socket")

    async def ping(self, timeout_s: float) -> float | None:
        """How long the server takes to answer a few bytes; None where it does not."""
        began_s = time.perf_counter()
        try:
            await self._client.flush(timeout=timeout_s)
        except (NatsError, OSError, TimeoutError):
            return None
        return time.perf_counter() - began_s

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        replace: bool = False,
        message_id: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Append to a log and return the sequence, once it is stored.

        `expect` fences the append; `replace` takes everything before it off the subject in the same step. A message
        with an id that the log knows (see `Log.id_window_s`) is not stored again.
        """
        headers = {} if expect is None else {EXPECTED: str(expect)}
        if message_id is not None:
            headers[_ID] = message_id
        if replace:
            headers["Nats-Rollup"] = "sub"
        return await self._append(subject, data, headers, timeout_s)

    async def carry(self, stored: Stored, expect: int) -> int:
        """Append a message as another server has stored it, with when that was, and when it came here."""
        came_s = stored.came_s or time.time()
        headers = {EXPECTED: str(expect), CARRIED: f"{stored.time_s} {came_s:.6f}"}
        return await self._append(stored.subject, stored.data, headers)

    async def _append(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float | None = None) -> int:
        size = len(data) + header_bytes(headers)
        if size > self.max_payload:  # the server would end the connection
            limit = f"the server takes {self.max_payload} with headers"
            raise TooLargeError(f"{subject}: a message of {size} bytes is too large: {limit}")
        try:
            ack = await self._js.publish(subject, data, timeout=timeout_s, headers=headers or None)
        except APIError as error:
            if error.err_code in _WRONG_LAST:
                raise FencedError(f"{subject}: {error.description}") from error
            if error.err_code in _FULL and (error.err_code != _STORE_FAILED or "maximum" in str(error.description)):
                raise LogFullError(f"{subject}: {error.description}") from error
            failed = error.err_code == _STORE_FAILED
            hint = "the server cannot write its files: is the disk full, or its store damaged?" if failed else None
            raise FabricError(f"{subject}: {error.description}", hint=hint) from error
        except NoStreamResponseError as error:
            raise NoLogError(
                f"{subject}: not stored: no log takes this subject", hint="is the deployment up?"
            ) from error
        except (NatsError, TimeoutError) as error:
            raise FabricError(f"{subject}: not stored: {error!r}") from error
        return int(ack.seq)

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        return await self._get(log, {"last_by_subj": subject})

    async def get(self, log: Log, sequence: int) -> Stored | None:
        """The message with that sequence, None when it was purged."""
        return await self._get(log, {"seq": sequence})

    async def _get(self, log: Log, request: Mapping[str, Any]) -> Stored | None:
        """One message; the answer comes to the connection's own inbox, which costs a third of one made for it."""
        asked, question = self._question(log, request)
        try:
            message = await self._client.request(asked, question, timeout=_TIMEOUT_S)
        except NoRespondersError as error:
            raise NoLogError(f"there is no log {log.name}", hint="is the deployment up?") from error
        except (NatsError, TimeoutError) as error:
            raise FabricError(f"cannot read {log.name}: {error!r}") from error
        return _stored(log, message)

    async def read(
        self, log: Log, subject: str, after: int, *, limit: int = 256, max_bytes: int = 16 << 20
    ) -> list[Stored]:
        """The next messages of a subject (wildcards allowed) after a sequence, until they reach `max_bytes`."""
        if log.latest_only and not _WILD & set(subject):
            newest = await self.last(log, subject)
            return [] if newest is None or newest.sequence <= after else [newest]
        request = {"seq": after + 1, "next_by_subj": subject, "batch": limit, "max_bytes": max_bytes}
        return await self._direct(log, request)

    async def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last message of each of at most `LASTS` subjects that has one."""
        request = {"multi_last": list(subjects), "batch": len(subjects), "max_bytes": 64 << 20}
        found = {stored.subject: stored for stored in await self._direct(log, request)} if subjects else {}
        for subject in set(subjects) - set(found):  # the server stops at so many bytes, without a word
            stored = await self.last(log, subject)
            if stored is not None:
                found[subject] = stored
        return found

    def _question(self, log: Log, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """Where messages of a log are asked for, and how: the last one of a subject by the subject itself."""
        last = str(request.get("last_by_subj", "*"))
        if not _WILD & set(last):
            return f"{GET}.{log.name}.{last}", b""
        return f"{GET}.{log.name}", json.dumps(dict(request)).encode()

    async def _direct(self, log: Log, request: Mapping[str, Any]) -> list[Stored]:
        inbox = self._client.new_inbox()
        answers: asyncio.Queue[Any] = asyncio.Queue()
        with translated(f"cannot read {log.name}"):
            subscription = await self._client.subscribe(inbox, cb=answers.put)
        found: list[Stored] = []
        try:
            asked, question = self._question(log, request)
            await self._client.publish(asked, question, reply=inbox)
            while True:
                async with asyncio.timeout(_TIMEOUT_S):
                    message = await answers.get()
                stored = _stored(log, message)
                if stored is None:
                    return found
                found.append(stored)
        except (NatsError, TimeoutError) as error:
            raise FabricError(f"cannot read {log.name}: {error!r}") from error
        finally:
            if not self._client.is_closed:
                await subscription.unsubscribe()

    async def follow(self, log: Log, subject: str, after: int = 0) -> AsyncIterator[list[Stored]]:
        """Messages of a subject after a sequence, for ever: what is there first, then what comes."""
        wake = asyncio.Event()
        end = await self.listen(subject, wake)
        try:
            while True:
                found = await self.awaited(log, subject, after, wake)
                after = found[-1].sequence
                yield found
        finally:
            await end()

    async def next(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence, as soon as there is one."""
        wake = asyncio.Event()
        end = await self.listen(subject, wake)
        try:
            return await self.awaited(log, subject, after, wake, limit=limit)
        finally:
            await end()

    async def awaited(
        self, log: Log, subject: str, after: int, wake: asyncio.Event, *, limit: int = 256
    ) -> list[Stored]:
        """As `next`, for who is woken by `listen` already."""
        while True:
            wake.clear()
            try:
                found = await self.read(log, subject, after, limit=limit)
            except FabricError as error:
                FABRIC.debug("reading %s again in %g s: %s", subject, _POLL_S, error)
                await asyncio.sleep(_POLL_S)
                continue
            if found:
                return found if self.arriving is None else await self.arriving(subject, found)
            with contextlib.suppress(TimeoutError):  # a hint can be lost: look again after a while
                async with asyncio.timeout(_POLL_S):
                    await wake.wait()

    def stream(self, log: Log, subject: str) -> LogStream:
        """A reader that the server sends messages to as they are stored; see `streamed`."""
        return LogStream(self._client, log, subject, self.opener)

    async def open_reader(self, log: Log, subject: str, after: int) -> str:
        """Have the server keep a consumer for somebody else, who may read by it and make none; its name."""
        return await open_reader(self._client, log, subject, after)

    async def streamed(self, stream: LogStream, log: Log, subject: str, after: int, limit: int) -> list[Stored]:
        """As `next`, by a reader of the log; where the server has fallen silent the log is looked at once.

        Raises:
            NoStreamError: The server does not let this connection read in this way.
        """
        while True:
            found = await stream.take(after, limit)
            if not found:
                with noted(FABRIC, "a log that fell silent is looked at again", FabricError):
                    found = await self.read(log, subject, after, limit=limit)
            if found:
                return found

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines side by side."""
        return list(await asyncio.gather(*work))

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        await asyncio.sleep(seconds)

    @property
    def now(self) -> float:
        """A clock that never goes back, in seconds."""
        return time.monotonic()

    @property
    def wall_s(self) -> float:
        """The wall clock, in seconds since the epoch."""
        return time.time()

    async def listen(self, subject: str, *wake: asyncio.Event) -> Callable[[], Awaitable[None]]:
        """Set events whenever something is published on a subject, and when the connection is back after a break.

        A hint to read again. Returns what ends it.
        """

        async def woken(_: Any) -> None:
            for event in wake:
                event.set()

        hints = await self._client.subscribe(subject, cb=woken)
        listening: set[asyncio.Event] = self._client.listening
        listening.update(wake)

        async def end() -> None:
            listening.difference_update(wake)
            if not self._client.is_closed:
                await hints.unsubscribe()

        return end

    async def request(self, subject: str, data: bytes, timeout_s: float = _TIMEOUT_S) -> bytes:
        """Ask a service and return its answer.

        Raises:
            NoAnswerError: It did not answer in time.
            FabricError: Nobody is there, the request is too large, or the service failed.
        """
        if len(data) > self.max_payload:
            raise FabricError(
                f"a request to {subject} has {len(data):,} bytes, more than the {self.max_payload:,} that NATS takes",
                hint="ask for less at a time",
            )
        if self.travelling is not None:
            await self.travelling(subject)
        try:
            reply = await self._client.request(subject, data, timeout=timeout_s)
        except NoRespondersError as error:
            raise FabricError(f"{subject} does not answer: nobody is there", hint="is the deployment up?") from error
        except (NatsError, TimeoutError) as error:
            raise NoAnswerError(f"{subject} does not answer: {error!r}", hint="is the deployment up?") from error
        if reply.headers and FAILED in reply.headers:
            raise FabricError(f"{subject}: {reply.headers[FAILED]}")
        if self.travelling is not None:
            await self.travelling(subject)
        return bytes(reply.data)

    async def serve(self, subject: str, handler: Callable[[bytes], Awaitable[bytes]]) -> Callable[[], Awaitable[None]]:
        """Answer requests side by side, every one, and those of sites that a guard lets through; what ends it."""
        stop = await serve(self._client, subject, handler)
        guard = self.guards.get(subject)
        others = await serve_others(self._client, subject, handler, guard) if guard else None

        async def end() -> None:
            await stop()
            if others is not None:
                await others()

        return end

    async def receive(
        self, subject: str, take: Callable[[RequestCall], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """Hand requests to a subject (wildcards allowed) to whoever decides when to answer. Returns what ends it."""
        return await receive(self._client, subject, take)


def _stored(log: Log, message: Any) -> Stored | None:
    """A stored message as the server answers with it; None where it says that there is none, or no other."""
    headers = message.headers or {}
    # A stored message may have any header of its own, but only a stored one has a sequence.
    status = None if "Nats-Sequence" in headers else headers.get("Status", "204")
    if status in ("404", "204"):
        return None
    if status == "503":
        raise NoLogError(f"there is no log {log.name}", hint="is the deployment up?")
    if status is not None:
        raise FabricError(f"cannot read {log.name}: {headers.get('Description', status)}")
    stored_s, came_s = stored_at(headers, datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp())
    place = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
    return Stored(*place, message.data, stored_s, header_bytes(headers), came_s, headers.get(_ID, ""))


async def _log(error: Exception) -> None:
    """Connection errors are seen by whoever waits for an answer: this is for those who look for their cause."""
    FABRIC.info("connection to NATS: %r", error)
