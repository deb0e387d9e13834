"""Serving the application on a socket that somebody else has opened, as a client of a deployment."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvicorn

from headgate.api.access import Access, hosts_of
from headgate.api.app import make_app
from headgate.api.gateway import Gateway, ServedPart
from headgate.client import Client
from headgate.diagnostics import SERVICE, noted
from headgate.fabric import cancel_all
from headgate.service.access import TokenBook

_GRACE_S: Final = 3
_RENEW_S: Final = 2.0
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


async def _renew(context: ssl.SSLContext, files: tuple[str, str]) -> None:
    """Read a certificate and its key again when they were replaced; a pair that does not fit is left for the next."""
    known = await asyncio.to_thread(_marks, files)
    while True:
        await asyncio.sleep(_RENEW_S)
        marks = await asyncio.to_thread(_marks, files)
        if marks is not None and marks != known:
            with noted(SERVICE, "the new certificate of the HTTP API cannot be used", OSError, level=logging.WARNING):
                context.load_cert_chain(*files)
            known = marks


def _marks(files: tuple[str, str]) -> list[tuple[int, int]] | None:
    try:
        return [(stat.st_mtime_ns, stat.st_ino) for stat in map(os.stat, files)]
    except OSError:
        return None  # one of them is being replaced


@asynccontextmanager
async def serving(
    client: Client,
    listening: socket.socket,
    token: str,
    state_dir: Path | None,
    tls: tuple[str, str] | None = None,
    part: ServedPart | None = None,
    tls_ca: str | None = None,
) -> AsyncIterator[Gateway]:
    """Serve the API, or a part of it, on a listening socket for as long as the block lasts.

    `tls` has the files of a certificate and its key; they are read again when they are replaced. With `tls_ca`, the
    file of an authority, whoever connects needs a certificate that it has signed, beside a token.
    """
    limit_buffers(listening)
    host, port = listening.getsockname()[:2]
    gateway = Gateway(client, state_dir, part)
    book = None if state_dir is None else TokenBook(state_dir, token).holding
    app = make_app(gateway, Access(token, port, gateway.users, tokens=book), hosts_of(host, port))
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
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
        ssl_ca_certs=tls_ca,
        ssl_cert_reqs=ssl.CERT_NONE if tls_ca is None else ssl.CERT_REQUIRED,
    )
    server = _Server(config)
    running = asyncio.create_task(server.run_here(listening), name="http")
    try:
        first = asyncio.create_task(server.ready.wait())
        await asyncio.wait([first, running], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        if running.done():
            await running
        beside = [asyncio.create_task(gateway.sample(), name="samples")] if gateway.part.site is None else []
        if tls is not None and config.ssl is not None:
            beside.append(asyncio.create_task(_renew(config.ssl, tls), name="certificates"))
        try:
            yield gateway
        finally:
            await cancel_all(beside)
    finally:
        server.should_exit = True
        await gateway.close()
        await asyncio.wait([running], timeout=2 * _GRACE_S)
        await cancel_all([running])
