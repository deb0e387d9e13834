"""As much of an MQTT 3.1.1 client as a trespasser needs: log in, subscribe to anything, publish anywhere, listen."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any, Final, Self

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
REFUSED: Final = 0x80
"""What the server answers to a subscription that it refuses."""


class MqttProbe:
    """One connection. What is published to it is in `heard`, by topic."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._listening: asyncio.Task[None] | None = None
        self.heard: list[tuple[str, bytes]] = []

    @classmethod
    async def connect(cls, port: int, name: str, password: str) -> Self:
        """Log in on this machine; `ConnectionError` where the server refuses."""
        found = cls(*await asyncio.open_connection("127.0.0.1", port))
        texts = b"".join(_text(each) for each in (f"probe-{id(found)}", name, password))
        found._send(_CONNECT, _text("MQTT") + bytes((4, 0xC2)) + struct.pack(">H", 60) + texts)
        try:
            kind, body = await found._receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            kind, body = 0, b""
        if kind != _CONNACK or body[1] != 0:
            await found.close()
            raise ConnectionError(f"the server refused {name!r}")
        found._listening = asyncio.create_task(found._listen())
        return found

    @property
    def gone(self) -> bool:
        """Whether the server has ended the connection."""
        return self._listening is None or self._listening.done()

    async def subscribe(self, topic: str) -> bool:
        """Ask for a topic at quality of service 1; whether the server lets us."""
        number = self._next()
        self._send(_SUBSCRIBE, struct.pack(">H", number) + _text(topic) + b"\x01")
        return await self._answered(number) not in (REFUSED, -1)

    async def publish(self, topic: str, payload: bytes) -> bool:
        """Publish at quality of service 1; whether the server says that it has it."""
        number = self._next()
        self._send(_PUBLISH | 0x02, _text(topic) + struct.pack(">H", number) + payload)
        return await self._answered(number) != -1

    async def close(self) -> None:
        """End the connection."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def _next(self) -> int:
        self._number = self._number % 60_000 + 1
        self._answers[self._number] = asyncio.get_running_loop().create_future()
        return self._number

    async def _answered(self, number: int) -> int:
        """The code of an answer, -1 where none comes: what is not allowed is dropped, or ends the connection."""
        answer = self._answers[number]
        waiting: list[asyncio.Future[Any]] = [answer]
        waiting += [self._listening] if self._listening is not None else []
        await asyncio.wait(waiting, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        del self._answers[number]
        return answer.result() if answer.done() else -1

    def _send(self, kind: int, body: bytes) -> None:
        size, left = b"", len(body)
        while True:
            left, digit = left >> 7, left & 0x7F
            size += bytes((digit | (0x80 if left else 0),))
            if not left:
                break
        self._writer.write(bytes((kind,)) + size + body)

    async def _receive(self) -> tuple[int, bytes]:
        kind = (await self._reader.readexactly(1))[0]
        size, shift = 0, 0
        while True:
            digit = (await self._reader.readexactly(1))[0]
            size, shift = size | (digit & 0x7F) << shift, shift + 7
            if not digit & 0x80:
                return kind, await self._reader.readexactly(size)

    async def _listen(self) -> None:
        while True:
            try:
                kind, body = await self._receive()
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if kind & 0xF0 == _PUBLISH:
                self._take(kind, body)
            elif kind in (_SUBACK, _PUBACK):
                answer = self._answers.get(struct.unpack(">H", body[:2])[0])
                if answer is not None and not answer.done():
                    answer.set_result(body[2] if kind == _SUBACK else 0)

    def _take(self, kind: int, body: bytes) -> None:
        end = 2 + struct.unpack(">H", body[:2])[0]
        acknowledged = kind & 0x06
        self.heard.append((body[2:end].decode(), body[end + 2 * bool(acknowledged) :]))
        if acknowledged:
            self._send(_PUBACK, body[end : end + 2])


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
