"""`headgate gateway` as a process: killed at any time, its readers go on with the id of the last event they got."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.client.helpers import live_test, rows
from tests.live import Live, small

from headgate.service.access import make_token

pytestmark = [pytest.mark.nats, pytest.mark.long]


@asynccontextmanager
async def gateway(live: Live, site: str) -> AsyncIterator[tuple[httpx.AsyncClient, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate.cli.app", "gateway", "--site", site, "--state-dir", str(live.directory)),
        *("--nats", live.address.url, "--namespace", live.address.logs.namespace),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
        assert line.startswith(f"gateway of {site} at http://127.0.0.1:"), line + (await process.stderr.read()).decode()
        headers = {"Authorization": f"Bearer {make_token(live.directory)}"}
        address = line.rsplit(" ", 1)[1].strip()
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60, trust_env=False) as http:
            yield http, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def take(http: httpx.AsyncClient, last: str | None, upto: int) -> tuple[list[int], str | None]:
    """Rows of `all` until one has this number, and the last id."""
    got: list[int] = []
    headers = {"Last-Event-ID": last} if last else {}
    async with http.stream("GET", "/api/subscriptions/all/events", headers=headers, params={"max_rows": 7}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                got += [row["_seq"] for row in json.loads(line[6:]).get("rows", ())]
            elif line.startswith("id: "):
                last = line[4:]
                if got and got[-1] >= upto:
                    break
    return got, last


def test_readers_of_a_killed_gateway_go_on_without_gap_or_duplicate(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 40), 0)
        async with gateway(live, "leaf") as (http, process):
            got, last = await take(http, None, 20)
            figures = (await http.get("/api/gateway")).json()
            assert figures["site"] == "leaf"
            assert (await http.get("/api/status")).status_code == 404  # nothing but receiving is served
            refused = await http.get("/api/subscriptions/other/events")
            assert refused.status_code == 404
            assert "'other' is delivered at 'mid'" in refused.json()["detail"]
            process.kill()
        await live.commit("fleet", rows(40, 60), 1)
        async with gateway(live, "leaf") as (http, _):
            more, _ = await take(http, last, 60)
        assert got + more == list(range(1, 61))

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}, other={"site": "mid"}), work)
