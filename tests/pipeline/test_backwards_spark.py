"""Checkpoints that moved backwards, with real queries: every row is committed once, or the stream says why not."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
from tests.live import running

from headgate.fabric import SyncFabric
from headgate.protocol.commits import LineageError
from headgate.wire.manifest import decode_manifest

pytestmark = pytest.mark.spark


def document(source, **more):
    stream = {"root": "a", "source": source, "schema": {"n": "int", "at": "timestamp"}, **more}
    return {
        "streams": {"s": stream},
        "sites": {"a": {}},
        "subscriptions": {"all": {"stream": "s", "site": "a"}},
    }


def lines(first, last):
    return "".join(json.dumps({"n": n, "at": "2026-01-01T00:00:00Z"}) + "\n" for n in range(first, last))


def take_back(checkpoint, batches):
    """What a power cut does: the files of the last batches are gone."""
    spark = checkpoint / "spark"
    last = max(int(path.name) for path in (spark / "offsets").glob("[0-9]*"))
    for number in range(last - batches + 1, last + 1):
        for folder in ("offsets", "commits", "sources/0"):
            for name in (str(number), f".{number}.crc", f"{number}.compact", f".{number}.compact.crc"):
                (spark / folder / name).unlink(missing_ok=True)


def manifests(live):
    with SyncFabric(live.address.url, live.address.logs) as fabric:
        logs = fabric.logs
        return [decode_manifest(each.data) for each in fabric.read(logs.root("s"), logs.commit("s"), 0)]


@pytest.mark.long
def test_files_that_come_after_the_checkpoint_moved_back_are_all_delivered(spark, nats_url, tmp_path):
    async def scenario():
        folder = tmp_path / "in"
        folder.mkdir()
        checkpoint = tmp_path / "state" / "checkpoints" / "s"
        source = {"format": "json", "path": str(folder), "maxFilesPerTrigger": 1}
        async with running(document(source), tmp_path / "state", nats_url, spark) as live:
            live.readers.start(["all"])
            for number in range(4):
                (folder / f"{number:03d}.json").write_text(lines(number * 10, number * 10 + 10))
            await live.run_queries()
            take_back(checkpoint, 1)
            (folder / "100.json").write_text(lines(1000, 1060))
            await live.run_queries()
            take_back(checkpoint, 3)
            (folder / "101.json").write_text(lines(1060, 1100))
            await live.run_queries()
            shutil.rmtree(checkpoint)
            (folder / "102.json").write_text(lines(1100, 1140))
            await live.run_queries()
            await live.settle()
            assert sorted(live.rows("all")["n"].to_pylist()) == [*range(40), *range(1000, 1140)]
            shutil.rmtree(checkpoint / "spark")
            (checkpoint / "lineage").write_text("of another stream")
            with pytest.raises(LineageError, match="was committed by the checkpoint"):
                await live.run_queries()

    asyncio.run(scenario())


@pytest.mark.long
def test_the_generator_goes_on_from_the_root_log(spark, nats_url, tmp_path):
    async def scenario():
        checkpoint = tmp_path / "state" / "checkpoints" / "s"
        source = {"format": "generator", "kind": "fleet", "limit": 3000}
        plan = document(source)
        del plan["streams"]["s"]["schema"]
        async with running(plan, tmp_path / "state", nats_url, spark) as live:
            live.readers.start(["all"])
            await live.run_queries(max_rows=1000)
            take_back(checkpoint, 2)
            await live.run_queries(max_rows=1000)
            shutil.rmtree(checkpoint / "spark")
            await live.run_queries(max_rows=1000)
            await live.settle()
            assert live.seqs("all") == [*range(1, 3001)]
            found = manifests(live)
            assert [json.loads(each.ranges[0].after)["row"] for each in found] == [1000, 2000, 3000]
            (checkpoint / "spark" / "commits" / "17").write_text("v1\n{}")
            with pytest.raises(LineageError, match="batch 17 was committed, but its root log ends with batch 2"):
                await live.run_queries(max_rows=1000)

    asyncio.run(scenario())


@pytest.mark.long
def test_messages_that_come_after_the_checkpoint_moved_back_are_all_delivered(spark, nats_url, tmp_path):
    async def scenario():
        checkpoint = tmp_path / "state" / "checkpoints" / "s"
        source = {"format": "nats", "payload": "json", "max_messages_per_trigger": 5}
        async with running(document(source), tmp_path / "state", nats_url, spark) as live:
            live.readers.start(["all"])
            for first in (0, 10, 20):
                await live.client.publish("s", [{"n": n, "at": None} for n in range(first, first + 10)])
                await live.run_queries()
                take_back(checkpoint, 1)
            shutil.rmtree(checkpoint)
            await live.client.publish("s", [{"n": n, "at": None} for n in range(30, 40)])
            await live.run_queries()
            await live.settle()
            assert live.rows("all")["n"].to_pylist() == [*range(40)]

    asyncio.run(scenario())
