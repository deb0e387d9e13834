"""A filter that takes far longer than was estimated: rows are left out for it and counted, then it is suspended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from tests.live import until
from tests.service.test_grants import World, read

from headgate.catalog import parse_deployment
from headgate.client import Client, ClientError
from headgate.pipeline.worker import Address
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

DOCUMENT = {
    "sites": {"root": {}},
    "streams": {
        "staff": {"root": "root", "source": {"format": "nats"}, "schema": {"n": "bigint", "text": "string"}},
    },
}
LONG = "a" * 60_000
"""Texts count as 32 characters where a filter is priced."""


def rows(first: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, stop), pa.int64()), "text": [LONG] * (stop - first)})


@pytest.mark.nats
def test_a_filter_that_takes_too_long_is_suspended_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
        async with (
            open_runtime(Settings(state_dir=tmp_path / "state", job=False), deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as operator,
        ):
            here = World(runtime, operator, tmp_path)
            assert runtime.server is not None
            async with await here.user("ada") as ada, await here.user("bob") as bob:
                hurts = "text RLIKE '(a|b)*c(a|b)*d' OR text RLIKE '(b|a)*d(a|b)*c' OR n % 2 = 0"
                await (await ada.subscribe("slow", stream="staff", site="root", where=hurts, select=["n"])).close()
                await (await bob.subscribe("fine", stream="staff", site="root", where="n >= 0", select=["n"])).close()
                with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
                    for batch in range(3):
                        part = rows(200 * batch, 200 * batch + 200)
                        await asyncio.to_thread(direct.commit, "staff", part, batch)

                    async def suspended() -> str:
                        found = (await ada.control("mine"))["subscriptions"]["slow"]
                        return str(found.get("stopped", ""))

                    assert "us a row in 3 micro-batches" in await until(suspended)
                    await asyncio.to_thread(direct.commit, "staff", rows(600, 700), 3)
                assert (await read(bob, "fine", 700))[0].num_rows == 700
                got, told = await read(ada, "slow", 700)
                status = await runtime.status()
                line = await here.ledger("slow")
                assert line["matched"] == got.num_rows
                assert line["difference"] == 0
                left_out = status["subscriptions"]["slow"]["unevaluated"]
                looked_at = 600 - left_out
                assert 0 < left_out < 600
                assert told == {"unevaluated": left_out}  # its reader hears of each of them
                assert got.num_rows <= looked_at // 2 + 3
                assert [each["kind"] for each in status["findings"] if "slow" in each["subject"]] == ["suspended"]
                assert not any(each["wrong"] for each in status["findings"])
                with pytest.raises(ClientError, match="is suspended"):
                    await ada.control("resume", name="slow")
                changed = {"stream": "staff", "site": "root", "where": "n < 750", "select": ["n"]}
                await ada.control("subscribe", name="slow", subscription=changed, change=True)
                assert await suspended() == ""

    asyncio.run(run())
