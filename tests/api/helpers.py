"""A deployment without a job, with its HTTP API served in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from tests.client.helpers import connect
from tests.live import Live, running
from typer import Typer
from typer.testing import CliRunner

from headgate.api.gateway import Gateway
from headgate.api.server import serving
from headgate.cli.options import ConnectionOptions
from headgate.service.access import make_token
from headgate.service.http_process import address_of, listen


@dataclass
class Api:
    """A running deployment, and an HTTP client that has its token."""

    live: Live
    gateway: Gateway
    http: httpx.AsyncClient
    address: str
    token: str

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """The document that a request is answered with."""
        answer = await self.http.request(method, path, **more)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text[:500])
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        return answer.json()


@asynccontextmanager
async def serve(live: Live) -> AsyncIterator[Api]:
    token = make_token(live.directory)
    listening = listen("127.0.0.1:0")
    address = address_of(listening)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        await connect(live) as client,
        serving(client, listening, token, live.directory) as gateway,
        httpx.AsyncClient(base_url=address, headers=headers, timeout=60, trust_env=False) as http,
    ):
        yield Api(live, gateway, http, address, token)


def api_test(
    directory: Path, nats_url: str, document: dict[str, Any] | str, work: Callable[[Api], Awaitable[None]]
) -> None:
    """Run a test against a deployment and its API."""

    async def run() -> None:
        async with running(document, directory, nats_url) as live, serve(live) as api:
            await work(api)

    asyncio.run(run())


async def command(api: Api, monkeypatch: pytest.MonkeyPatch, app: Typer, *arguments: str) -> Result:
    """What a command says of the deployment of a test, beside the API that is served from the same event loop."""

    async def connected(work: Callable[[Any], Awaitable[Any]]) -> Any:
        async with await connect(api.live) as client:
            return await work(client)

    # Signals are heard in the main thread only, where the loop is.
    monkeypatch.setattr(ConnectionOptions, "run", lambda _, work: asyncio.run(connected(work)))
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)
