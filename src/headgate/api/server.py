"""Serving the application on a socket that somebody else has opened, as a client of a deployment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvicorn

from headgate.api.access import Access, hosts_of
from headgate.api.app import make_app
from headgate.api.gateway import Gateway
from headgate.api.users import Users
from headgate.client import Client
from headgate.fabric import cancel_all

_GRACE_S: Final = 3
_SEND_BYTES: Final = 128 << 10
"""What the system keeps for a client that reads slowly; more waits in the client's own inbox."""


def limit_buffers(listening: socket.socket) -> None:
    """Bound what the system buffers for each connection that this socket accepts."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)


class _Server(uvicorn.Server):
    """Uvicorn without handlers of signals: who runs it stops it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, and say so."""
        await super().startup(sockets)
        self.ready.set()

    async def run_here(self, listening: socket.socket) -> None:
        """Serve until `should_exit` is set; `serve` would take over the process's signals."""
        await self._serve([listening])


@asynccontextmanager
async def serving(
    client: Client, listening: socket.socket, token: str, state_dir: Path | None
) -> AsyncIterator[Gateway]:
    """Serve the API on a listening socket for as long as the block lasts."""
    limit_buffers(listening)
    host, port = listening.getsockname()[:2]
    gateway = Gateway(client, state_dir)
    app = make_app(gateway, Access(token, port, Users(state_dir)), hosts_of(host, port))
    config = uvicorn.Config(
        app,
        http="h11",
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        ws_max_size=1 << 20,
        ws_per_message_deflate=False,
    )
    server = _Server(config)
    running = asyncio.create_task(server.run_here(listening), name="http")
    try:
        first = asyncio.create_task(server.ready.wait())
        await asyncio.wait([first, running], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        if running.done():
            await running
        sampling = asyncio.create_task(gateway.sample(), name="samples")
        try:
            yield gateway
        finally:
            await cancel_all([sampling])
    finally:
        server.should_exit = True
        await gateway.close()
        await asyncio.wait([running], timeout=2 * _GRACE_S)
        await cancel_all([running])
