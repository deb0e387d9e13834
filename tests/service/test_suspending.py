"""Filters that hurt: one that takes far longer than estimated is suspended, one identity's many are served less."""

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
from headgate.matching import fair_shares
from headgate.pipeline.shares import MatchingShares
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
LONG = "a" * 200_000
"""Texts count as 32 characters where a filter is priced. These are so long that a fast machine leaves rows out, too."""


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


@pytest.mark.nats
def test_whoever_takes_more_than_its_share_of_a_stream_that_is_behind_is_served_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_shares, "HEAVY", 0.0)  # whatever the rest of a micro-batch takes here

    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
        async with (
            open_runtime(Settings(state_dir=tmp_path / "state", job=False), deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as operator,
        ):
            here = World(runtime, operator, tmp_path)
            assert runtime.server is not None
            async with await here.user("ada") as ada, await here.user("bob") as bob:
                wish = {"stream": "staff", "site": "root", "select": ["n"]}
                many = {f"dear-{k}": {**wish, "where": f"text RLIKE 'a.*{k}$' OR n >= 0"} for k in range(20)}
                await ada.control("subscribe", subscriptions=many, change=False)
                await (await bob.subscribe("fine", stream="staff", site="root", where="n >= 0", select=["n"])).close()
                with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
                    direct.shares["staff"] = MatchingShares("staff", 1e-4)  # every micro-batch is late
                    for batch in range(3):
                        part = pa.record_batch({"n": pa.array(range(400)), "text": ["a" * 500] * 400})
                        await asyncio.to_thread(direct.commit, "staff", part, batch)
                everything, nothing = await read(bob, "fine", 1200)
                assert (everything.num_rows, nothing) == (1200, {})
                got, told = await read(ada, "dear-7", 1200)
                assert 400 < got.num_rows < 1100  # all of the first micro-batch, then less and less
                assert told == {"unevaluated": 1200 - got.num_rows}
                status = await runtime.status()
                shares = {each["identity"]: each for each in status["streams"]["staff"]["job"]["shares"]}
                assert shares["ada"]["gets_us"] < shares["ada"]["needs_us"]
                assert shares["bob"]["gets_us"] == shares["bob"]["needs_us"]
                assert 0 < status["subscriptions"]["dear-7"]["served"] < 0.5
                assert "served" not in status["subscriptions"]["fine"]
                assert [each["kind"] for each in status["findings"] if "dear-7" in each["subject"]] == ["share"]
                line = await here.ledger("dear-7")
                assert (line["matched"], line["difference"]) == (got.num_rows, 0)

    asyncio.run(run())


@pytest.mark.nats
def test_whoever_matches_more_than_its_share_in_the_index_is_served_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty filters that boxes decide: nothing evaluates them one by one, so their matches tell what they take."""
    monkeypatch.setattr(fair_shares, "HEAVY", 0.0)

    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
        async with (
            open_runtime(Settings(state_dir=tmp_path / "state", job=False), deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as operator,
        ):
            here = World(runtime, operator, tmp_path)
            assert runtime.server is not None
            async with await here.user("ada") as ada, await here.user("bob") as bob:
                wish = {"stream": "staff", "site": "root", "select": ["n"]}
                many = {f"every-{k}": {**wish, "where": f"n >= -{k}"} for k in range(1, 41)}
                await ada.control("subscribe", subscriptions=many, change=False)
                await (await bob.subscribe("fine", stream="staff", site="root", where="n >= 0", select=["n"])).close()
                with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
                    direct.shares["staff"] = MatchingShares("staff", 1e-4)  # every micro-batch is late
                    for batch in range(4):
                        part = pa.record_batch({"n": pa.array(range(400)), "text": ["a"] * 400})
                        await asyncio.to_thread(direct.commit, "staff", part, batch)
                everything, nothing = await read(bob, "fine", 1600)
                assert (everything.num_rows, nothing) == (1600, {})
                got, told = await read(ada, "every-7", 1600)
                assert 400 < got.num_rows < 1500
                assert told == {"unevaluated": 1600 - got.num_rows}
                status = await runtime.status()
                shares = {each["identity"]: each for each in status["streams"]["staff"]["job"]["shares"]}
                assert shares["ada"]["gets_us"] < shares["ada"]["needs_us"]
                assert shares["bob"]["gets_us"] == shares["bob"]["needs_us"]
                line = await here.ledger("every-7")
                assert (line["matched"], line["difference"]) == (got.num_rows, 0)

    asyncio.run(run())
