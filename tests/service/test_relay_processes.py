"""Relays that are spread over processes: rows come to all sites, also when one of the processes is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import cancel_all
from headgate.pipeline.worker import Address
from headgate.service.relay_processes import RelayPart
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

SITES = ("root", "paris", "lyon", "oslo")
DOCUMENT = {
    "sites": {site: {} for site in SITES},
    "streams": {"notes": {"root": "root", "source": {"format": "nats"}, "schema": {"n": "bigint"}}},
    "plan": {"notes": {"paris": "root", "lyon": "paris", "oslo": "lyon"}},
    "subscriptions": {f"at-{site}": {"stream": "notes", "site": site} for site in SITES},
}


def rows(first: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, stop), pa.int64())})


@pytest.mark.nats
@pytest.mark.live
def test_rows_come_through_relays_in_processes_of_their_own_also_when_one_is_killed(tmp_path: Path) -> None:
    parts = [RelayPart("", "hg", "", part, 2) for part in range(2)]
    assert all(any(part.has(site) for site in SITES) for part in parts)  # both have something to do

    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
        settings = Settings(tmp_path / "state", job=False, relay_processes=2)
        async with (
            open_runtime(settings, deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as client,
        ):
            assert runtime.server is not None
            assert not runtime.nodes
            inboxes = {site: await client.subscribe(f"at-{site}") for site in SITES}
            got: dict[str, list[int]] = {site: [] for site in SITES}

            async def read(site: str) -> None:
                async for delivery in inboxes[site]:
                    got[site] += delivery.rows["n"].to_pylist()

            reading = [asyncio.create_task(read(site)) for site in SITES]
            with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
                await asyncio.to_thread(direct.commit, "notes", rows(0, 500), 0)

                async def all_have(count: int) -> bool:
                    return all(len(each) >= count for each in got.values())

                await until(lambda: all_have(500))
                killed = runtime.relay_processes[0]
                before = killed.pid
                assert before is not None
                os.kill(before, signal.SIGKILL)
                await asyncio.to_thread(direct.commit, "notes", rows(500, 900), 1)
                await until(lambda: all_have(900))
                assert killed.pid != before
            await cancel_all(reading)
            for inbox in inboxes.values():
                inbox.done()
                await inbox.close()
            assert got == {site: np.arange(900).tolist() for site in SITES}

            async def settled() -> bool:
                lines = (await runtime.status())["subscriptions"].values()
                return all(line["delivered"] == 900 and line["difference"] == 0 for line in lines)

            await until(settled)

    asyncio.run(run())
