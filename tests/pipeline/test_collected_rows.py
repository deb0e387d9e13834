"""Messages of an MQTT broker through Spark: rows, and dead letters with their reasons."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.live import running, sites, until
from tests.service.brokers import MOSQUITTO, free_port, mosquitto, send

pytestmark = [
    pytest.mark.nats,
    pytest.mark.live,
    pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed"),
]
GOOD = [f'{{"machine": "m{number}", "bar": {number}.5}}' for number in range(5)]
HOSTILE = [
    '{"machine": "m9", "bar": 1',
    "[1, 2]",
    '{"machine": "a", "bar": 1} {"machine": "b"}',
    '{"bar": 1e999}',
    '{"bar": 2}',
]


@pytest.mark.long
def test_rows_come_and_hostile_messages_are_dead_letters(tmp_path: Path, nats_url: str, spark: Any) -> None:
    port = free_port()
    document = {
        "sites": sites("oslo"),
        "streams": {
            "plant": {
                "root": "oslo",
                "schema": {"machine": "string", "bar": "double"},
                "source": {"format": "mqtt", "url": f"mqtt://127.0.0.1:{port}", "topic": "plant/#"},
                "key": "machine",
            }
        },
        "subscriptions": {"all": {"stream": "plant", "site": "oslo"}},
    }

    async def run() -> None:
        async with running(document, tmp_path / "state", nats_url, spark) as live:
            collector = live.runtime.collectors.by_stream["plant"]
            await asyncio.wait_for(collector.connected.wait(), 30)
            await asyncio.to_thread(send, port, "plant/a", [*GOOD[:3], *HOSTILE, *GOOD[3:]], "-q", "1")

            async def stored() -> bool:
                return collector.queue.stored == len(GOOD) + len(HOSTILE)

            await until(stored, 60)
            live.readers.start(["all"])
            await live.run_queries("plant")
            status = await live.settle()
            stream = status["streams"]["plant"]
            assert (stream["rows_in"], stream["dead"], stream["difference"]) == (10, len(HOSTILE), 0)
            assert stream["collector"]["place"] == f"'plant/#' of mqtt://127.0.0.1:{port}"
            assert live.rows("all").column("machine").to_pylist() == [f"m{number}" for number in range(5)]

    with mosquitto(tmp_path / "broker", port):
        asyncio.run(run())
