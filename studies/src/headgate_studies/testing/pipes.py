"""A connection between two programs of this machine that can be cut and narrowed: a port that passes bytes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 16 << 10


class Pipe:
    """Listens on a port of its own. `rate_bytes_per_s` bounds what it passes on, both ways together."""

    def __init__(self, target: Callable[[], int | None]) -> None:
        """`target` is the port that it leads to, None while there is none."""
        self._target = target
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._free_s = 0.0
        self.rate_bytes_per_s: float | None = None
        self.bytes = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """End what is connected, and pass nothing on any more."""
        self._cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def join(self) -> None:
        """Pass everything on again."""
        self._cut, self.rate_bytes_per_s = False, None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self._target()
        if self._cut or port is None:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            self._writers |= {writer, far_writer}
            try:
                await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
            finally:
                self._writers -= {writer, far_writer}
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(_PIECE):
                self.bytes += len(data)
                if self.rate_bytes_per_s is not None:
                    self._free_s = max(self._free_s, loop.time()) + len(data) / self.rate_bytes_per_s
                    await asyncio.sleep(self._free_s - loop.time())
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()
