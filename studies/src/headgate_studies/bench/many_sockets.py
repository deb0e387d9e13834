"""Many readers in few processes: raw sockets that speak server-sent events, NATS or MQTT, and note what comes when.

A reader keeps the numbers of its rows and when each came. It can be frozen: its socket is not read any more.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import resource
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ROW: Final = re.compile(rb'"n":(\d+)')
_AT_A_TIME: Final = 64
_PUBLISH: Final = 0x30


@dataclass(frozen=True, slots=True)
class ReaderWish:
    """What one reader wants: its number, and the subscription or topic that it reads."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class ReaderPlace:
    """Where readers connect, and what they speak: `sse`, `nats` or `mqtt`."""

    face: str
    port: int
    token: str = ""


Got = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""The numbers of rows in the order in which they came, and when each came."""


class SocketReader(asyncio.Protocol):
    """One reader."""

    def __init__(self, place: ReaderPlace, wish: ReaderWish) -> None:
        self._place = place
        self._wish = wish
        self._left = b""
        self.rows = array("q")
        self.times = array("d")
        self.bytes = 0
        self.lost = False
        self.transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take: Callable[[bytes], bytes] = getattr(self, f"_take_{place.face}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what is wanted."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._place.face == "sse":
            path = f"/api/subscriptions/{self._wish.name}/events"
            host = f"Host: 127.0.0.1:{self._place.port}\r\nAuthorization: Bearer {self._place.token}"
            transport.write(f"GET {path} HTTP/1.1\r\n{host}\r\n\r\n".encode())
        elif self._place.face == "nats":
            wanted = json.dumps({"verbose": False, "pedantic": False})
            transport.write(f"CONNECT {wanted}\r\nSUB {self._wish.name} 1\r\nPING\r\n".encode())
        else:
            name = f"r{self._wish.number}".encode()
            transport.write(_mqtt(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + _text(name)))
            transport.write(_mqtt(0x82, b"\x00\x01" + _text(self._wish.name.encode()) + b"\x00"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has ended it."""
        self.lost = True
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("ended before it began"))

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        self.bytes += len(data)
        self._left = self._take(self._left + data)

    def _note(self, text: bytes) -> None:
        now = time.time()
        for each in _ROW.findall(text):
            self.rows.append(int(each))
            self.times.append(now)

    def _open(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _take_sse(self, data: bytes) -> bytes:
        *lines, left = data.split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self._note(line)
            elif line.startswith(b"retry:"):
                self._open()
            elif line.startswith(b"HTTP/1.1 ") and b" 200 " not in line and not self.opened.done():
                self.opened.set_exception(ConnectionError(line.decode()))
        return left

    def _take_nats(self, data: bytes) -> bytes:
        while b"\r\n" in data:
            line, _, rest = data.partition(b"\r\n")
            if line.startswith(b"MSG "):
                size = int(line.rsplit(b" ", 1)[1])
                if len(rest) < size + 2:
                    break
                self._note(rest[:size])
                rest = rest[size + 2 :]
            elif line == b"PING":
                assert self.transport is not None
                self.transport.write(b"PONG\r\n")
            elif line == b"PONG":
                self._open()
            data = rest
        return data

    def _take_mqtt(self, data: bytes) -> bytes:
        while len(data) > 1:
            size, place, shift = 0, 1, 0
            while place < len(data):
                size |= (data[place] & 0x7F) << shift
                place, shift = place + 1, shift + 7
                if not data[place - 1] & 0x80:
                    break
            else:
                return data
            if len(data) < place + size:
                return data
            kind, body = data[0] & 0xF0, data[place : place + size]
            if kind == _PUBLISH:
                self._note(body[2 + int.from_bytes(body[:2]) :])
            elif kind == 0x90:  # the subscription is in force
                self._open()
            data = data[place + size :]
        return data


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


def _mqtt(kind: int, body: bytes) -> bytes:
    """A packet of at most 16,383 bytes."""
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([kind]) + length + body


def drive(pipe: Pipe, place: ReaderPlace, wishes: Sequence[ReaderWish], frozen: frozenset[int]) -> None:
    """The process of some readers: connects all of them, then does what it is told until it is to finish."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_drive(pipe, place, wishes, frozen))


async def _drive(pipe: Pipe, place: ReaderPlace, wishes: Sequence[ReaderWish], frozen: frozenset[int]) -> None:
    loop, readers = asyncio.get_running_loop(), {}
    turn = asyncio.Semaphore(_AT_A_TIME)

    async def connect(wish: ReaderWish) -> None:
        async with turn:
            _, reader = await loop.create_connection(lambda: SocketReader(place, wish), "127.0.0.1", place.port)
            readers[wish.number] = reader
            await reader.opened

    try:
        await asyncio.gather(*map(connect, wishes))
    except (OSError, ConnectionError) as error:
        pipe.send(repr(error))
        return
    pipe.send("ready")
    while True:
        told = await asyncio.to_thread(pipe.recv)
        for number in frozen & readers.keys() if told in ("freeze", "thaw") else ():
            transport = readers[number].transport
            assert transport is not None
            if told == "freeze":
                transport.pause_reading()
            else:
                transport.resume_reading()
        if told == "count":
            pipe.send((sum(len(each.rows) for each in readers.values()), sum(each.bytes for each in readers.values())))
        if told == "finish":
            pipe.send({number: (np.array(each.rows), np.array(each.times)) for number, each in readers.items()})
            return


class SocketReaders:
    """Readers in some processes; use `start`, then tell them what to do, and `finish`."""

    def __init__(
        self, place: ReaderPlace, wishes: Sequence[ReaderWish], frozen: frozenset[int], processes: int = 1
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes = []
        for index in range(processes):
            mine, theirs = context.Pipe()
            process = context.Process(target=drive, args=(theirs, place, wishes[index::processes], frozen), daemon=True)
            self._pipes.append(mine)
            self._processes.append(process)

    async def start(self, timeout_s: float) -> None:
        """Connect all of them."""
        for process in self._processes:
            process.start()
        async with asyncio.timeout(timeout_s):
            for pipe in self._pipes:
                told = await asyncio.to_thread(pipe.recv)
                if told != "ready":
                    raise ConnectionError(told)

    def tell(self, what: str) -> None:
        """Have them `freeze` or `thaw` those that are to be frozen."""
        for pipe in self._pipes:
            pipe.send(what)

    async def counted(self) -> tuple[int, int]:
        """Rows and bytes that all of them have got so far."""
        self.tell("count")
        found = [await asyncio.to_thread(pipe.recv) for pipe in self._pipes]
        return sum(rows for rows, _ in found), sum(size for _, size in found)

    async def finish(self) -> dict[int, Got]:
        """What each has got; all of them are gone then."""
        self.tell("finish")
        found: dict[int, Got] = {}
        for pipe in self._pipes:
            found |= await asyncio.to_thread(pipe.recv)
        self.close()
        return found

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process.is_alive():
                process.terminate()
            if process.pid is not None:
                process.join()
