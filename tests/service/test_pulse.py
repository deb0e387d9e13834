"""A status that is read after the end: stopped, and since when; or ended without a word."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live import running, small, until

from headgate.client import Client
from headgate.protocol.reports import JobReport
from headgate.service.heartbeat import SILENT_MS, read_pulse
from headgate.service.status import read_status

pytestmark = pytest.mark.nats


def test_status_says_running_while_it_runs_and_stopped_afterwards(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with running(small(here={"site": "root"}), tmp_path, nats_url) as live:
            namespace = live.runtime.settings.namespace

            async def heard() -> dict[str, Any] | None:
                status = await live.runtime.status()
                return status if status["service"]["state"] == "running" else None

            status = await until(heard)
            fabric = live.runtime.fabric
            await fabric.publish(fabric.logs.stats("job", "fleet"), JobReport(state="running", time_ms=1).encode())
            assert (await live.runtime.status())["streams"]["fleet"]["state"] == "running"
            later_ms = int(time.time() * 1000) + SILENT_MS + 10_000
            assert (await read_pulse(fabric, later_ms))["state"] == "silent"
        async with await Client.connect(nats_url, namespace=namespace) as client:
            after = await read_status(client.fabric, client.tables)
        assert after["service"]["state"] == "stopped"
        assert status["time_ms"] <= after["service"]["time_ms"] <= after["time_ms"]
        assert after["streams"]["fleet"]["state"] == "stopped"

    asyncio.run(run())
