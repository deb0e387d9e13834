"""As much of MQTT 3.1.1 as the comparison with a broker needs: connect, subscribe, publish with acknowledgement."""

from __future__ import annotations

import asyncio
from typing import Final

_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE = 0x10, 0x32, 0x40, 0x82
_PUBLISH_KIND: Final = 3
_WINDOW: Final = 1000


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _packet(head: int, body: bytes) -> bytes:
    size, length = len(body), bytearray()
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | 0x80 if size else digit)
        if not size:
            return bytes([head]) + bytes(length) + body


class Mqtt:
    """One connection with quality of service 1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, name: str) -> Mqtt:
        """Connect to a broker on loopback."""
        found = cls(*await asyncio.open_connection("127.0.0.1", port))
        body = _text("MQTT") + bytes([4, 2]) + (60).to_bytes(2, "big") + _text(name)
        found._writer.write(_packet(_CONNECT, body))
        await found._read()
        return found

    async def _read(self) -> tuple[int, bytes]:
        head = (await self._reader.readexactly(1))[0]
        size = shift = 0
        while True:
            digit = (await self._reader.readexactly(1))[0]
            size |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                return head, await self._reader.readexactly(size)

    async def subscribe(self, topic: str) -> None:
        """Subscribe and wait for the broker's word."""
        self._writer.write(_packet(_SUBSCRIBE, (1).to_bytes(2, "big") + _text(topic) + b"\x01"))
        await self._read()

    async def publish_all(self, topic: str, payloads: list[bytes], rate: float) -> int:
        """Publish at a rate, at most a window unacknowledged; returns how many the broker acknowledged."""
        loop = asyncio.get_running_loop()
        began, acknowledged = loop.time(), 0
        for number, payload in enumerate(payloads):
            while number - acknowledged >= _WINDOW:
                acknowledged += (await self._read())[0] == _PUBACK
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            identity = (number % 65_535 + 1).to_bytes(2, "big")
            self._writer.write(_packet(_PUBLISH, _text(topic) + identity + payload))
            await self._writer.drain()
        while acknowledged < len(payloads):
            acknowledged += (await self._read())[0] == _PUBACK
        return acknowledged

    async def receive(self, timeout_s: float) -> bytes | None:
        """The next message's payload, acknowledged by `done`; None when none comes for that long."""
        while True:
            try:
                head, body = await asyncio.wait_for(self._read(), timeout_s)
            except TimeoutError:
                return None
            if head >> 4 == _PUBLISH_KIND:
                start = 2 + int.from_bytes(body[:2], "big")
                self._pending = body[start : start + 2]
                return body[start + 2 :]

    def done(self) -> None:
        """Acknowledge the message that was received last."""
        self._writer.write(_packet(_PUBACK, self._pending))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
