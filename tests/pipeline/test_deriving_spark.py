"""Derived columns in running queries: restarts, a checkpoint that is gone, and recorded rows give the same as loops."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace

import pytest
from tests.live import running

from headgate.deriving import derivation_of
from headgate.fabric import SyncFabric
from headgate.model import Source
from headgate.pipeline import query
from headgate.pipeline.derived_memory import DerivedMemory
from headgate.pipeline.deriving import with_columns
from headgate.pipeline.sources.reading import read_recorded
from headgate.pipeline.validate import validate
from headgate.wire.manifest import decode_manifest

pytestmark = pytest.mark.spark

STREAM = {
    "root": "a",
    "schema": {"car": "string", "at": "timestamp", "v": "double"},
    "key": "car",
    "event_time": "at",
    "derive": {
        "before": "previous(v)",
        "rows_12": "count() over last 12 s",
        "drop": "(v > 6) then (v < 2) within 9 s",
    },
}


def line(n):
    at = f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"
    return json.dumps({"car": f"c{n % 5}", "at": at, "v": float(n * 7 % 11)}) + "\n"


def expected(count):
    """By car and number, the speed before, how many rows of the car came in 12 s, and whether it has dropped."""
    rows = [(n % 5, n, float(n * 7 % 11)) for n in range(count)]
    found = {}
    for car, n, v in rows:
        mine = [each for each in rows[:n] if each[0] == car]
        recent = [each for each in mine if each[1] > n - 12]
        dropped = v < 2 and any(each[2] > 6 and each[1] >= n - 9 for each in mine)
        found[car, n] = (mine[-1][2] if mine else None, 1 + len(recent), dropped)
    return found


def found_in(table):
    rows = table.to_pylist()
    return {
        (int(row["car"][1:]), row["at"].minute * 60 + row["at"].second): (row["before"], row["rows_12"], row["drop"])
        for row in rows
    }


def last_manifest(live):
    with SyncFabric(live.address.url, live.address.logs) as fabric:
        logs = fabric.logs
        return decode_manifest(fabric.last(logs.root("s"), logs.commit("s")).data)


@pytest.mark.long
def test_columns_go_on_after_restarts_and_without_a_checkpoint(spark, nats_url, tmp_path):
    async def scenario():
        folder = tmp_path / "in"
        folder.mkdir()
        source = {"format": "json", "path": str(folder), "maxFilesPerTrigger": 1}
        subscriptions = {
            "all": {"stream": "s", "site": "a"},
            "dropped": {"stream": "s", "site": "a", "where": "drop and before > 0", "select": ["car", "at", "drop"]},
        }
        document = {"streams": {"s": {**STREAM, "source": source}}, "sites": {"a": {}}, "subscriptions": subscriptions}
        async with running(document, tmp_path / "state", nats_url, spark) as live:
            live.readers.start(["all", "dropped"])
            checkpoint = tmp_path / "state" / "checkpoints" / "s"

            def write(first, last):
                text = "".join(line(n) for n in reversed(range(first, last)))  # out of order within a file
                (folder / f"{first:03d}.json").write_text(text)
                os.utime(folder / f"{first:03d}.json", (first, first))  # Spark reads older files first

            write(0, 30)
            write(30, 60)
            await live.run_queries(partitions=2)
            before = last_manifest(live)
            assert len(before.memory) == 2
            shutil.rmtree(checkpoint)  # the root log has what is remembered
            write(60, 90)
            await live.run_queries(partitions=3)  # a key stays in its partition
            assert len(last_manifest(live).memory) == 2
            await live.settle()
            assert found_in(live.rows("all")) == expected(90)
            assert live.seqs("all") == [*range(1, 91)]
            wanted = {key for key, (past, _, drop) in expected(90).items() if drop and past}
            assert wanted
            assert {(int(row["car"][1:]), row["at"].minute * 60 + row["at"].second)
                    for row in live.rows("dropped").to_pylist()} == wanted  # fmt: skip
            stream = live.runtime.catalog.snapshot().deployment.streams["s"]
            recorded = replace(stream, schema=stream.source_schema, source=Source("json", {"path": str(folder)}))
            frame = with_columns(validate(read_recorded(spark, recorded), recorded), stream)
            assert found_in(await asyncio.to_thread(frame.toArrow)) == expected(90)

    asyncio.run(scenario())


@pytest.mark.long
def test_a_micro_batch_that_fails_before_its_commit_is_derived_again(spark, nats_url, tmp_path):
    """Its tasks have staged memory that no manifest names; the next try begins with what was committed."""

    async def scenario():
        folder = tmp_path / "in"
        folder.mkdir()
        source = {"format": "json", "path": str(folder), "maxFilesPerTrigger": 1}
        document = {
            "streams": {"s": {**STREAM, "source": source}},
            "sites": {"a": {}},
            "subscriptions": {"all": {"stream": "s", "site": "a"}},
        }
        async with running(document, tmp_path / "state", nats_url, spark) as live:
            live.readers.start(["all"])
            (folder / "0.json").write_text("".join(line(n) for n in range(30)))
            await live.run_queries(partitions=2)
            with SyncFabric(live.address.url, live.address.logs) as fabric:
                stream = live.runtime.catalog.snapshot().deployment.streams["s"]
                kept = [DerivedMemory(fabric, "s").load(derivation_of(stream).of_partition(2), p, place)
                        for p, place in enumerate(last_manifest(live).memory)]  # fmt: skip
                assert sum(each.history.keys.num_rows for each in kept) == 5
            (folder / "1.json").write_text("".join(line(n) for n in range(30, 60)))
            real, failed = query.commit, []

            def failing(*given, **named):
                if not failed:
                    failed.append(True)
                    raise OSError("cut off before the commit")
                return real(*given, **named)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(query, "commit", failing)
                with pytest.raises(Exception, match="cut off"):
                    await live.run_queries(partitions=2)
            await live.run_queries(partitions=2)
            await live.settle()
            assert found_in(live.rows("all")) == expected(60)
            assert live.seqs("all") == [*range(1, 61)]

    asyncio.run(scenario())
