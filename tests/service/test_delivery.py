from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.live import running, small

from headgate.pipeline.query import QuerySettings
from headgate.pipeline.sources import generate
from headgate.service.demo.run import demo_file, readable

pytestmark = [pytest.mark.spark, pytest.mark.nats]


def _demo(limit: int) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(demo_file().read_text(encoding="utf-8"))
    for stream in document["streams"].values():
        stream["source"] = {**stream["source"], "limit": limit, "pace": "none"}
    return document


def _plain(table: pa.Table) -> list[str]:
    """Rows in an order and a form that two engines agree on."""
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def test_every_subscription_of_the_demo_gets_what_spark_sql_answers(tmp_path: Path, nats_url: str, spark: Any) -> None:
    document = _demo(1500)

    async def run() -> tuple[dict[str, Any], dict[str, pa.Table]]:
        async with running(document, tmp_path, nats_url, spark) as live:
            names = readable(live.runtime.catalog.snapshot().deployment)
            live.readers.start(names)
            await live.run_queries()
            status = await live.settle()
            return status, {name: live.rows(name) for name in names}

    status, received = asyncio.run(run())
    assert sum(each["rows_in"] for each in status["streams"].values()) == 4500
    assert all(each["difference"] == 0 for each in status["subscriptions"].values())
    compared = 0
    for kind in document["streams"]:
        seed = document["streams"][kind]["source"]["seed"]
        rate = float(document["streams"][kind]["source"]["rate"])
        rows = pa.Table.from_batches([generate(kind, seed, 0, 1500, rate=rate)])
        asked = {
            name: document["subscriptions"][name]
            for name in received
            if document["subscriptions"][name]["stream"] == kind
            and not {"context", "profile", "resolution"} & set(document["subscriptions"][name])
        }
        wheres = [each.get("where", "true").replace("distance(", "hypot(") for each in asked.values()]
        # One query for all of them: a column of answers for each.
        spark.createDataFrame(rows).createOrReplaceTempView("answers")
        answers = ", ".join(f"coalesce({where}, false) as answer_{number}" for number, where in enumerate(wheres))
        answered = spark.sql(f"select *, {answers} from answers").toArrow()
        for number, (name, each) in enumerate(asked.items()):
            expected = answered.filter(answered[f"answer_{number}"]).select(each.get("select", rows.schema.names))
            assert _plain(received[name]) == _plain(expected.cast(received[name].schema)), name
            assert status["subscriptions"][name]["delivered"] == expected.num_rows
            compared += 1
    assert compared == 41


@pytest.mark.long
def test_a_restart_with_another_partition_count_goes_on_where_it_was(tmp_path: Path, nats_url: str, spark: Any) -> None:
    document = small(400, all={"site": "leaf"}, some={"site": "mid", "where": "speed > 40"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url, spark, namespace="again") as live:
            live.readers.start(["all", "some"])
            await live.run_queries(partitions=3)
            await live.settle()
            first = live.seqs("all")
        document["streams"]["fleet"]["source"]["limit"] = 900
        async with running(document, tmp_path, nats_url, spark, namespace="again") as live:
            live.readers.start(["all", "some"])
            await live.run_queries(partitions=1)
            status = await live.settle()
            assert first + live.seqs("all") == list(range(1, 901))
            assert status["subscriptions"]["all"]["delivered"] == 900
            assert status["subscriptions"]["some"]["difference"] == 0

    asyncio.run(run())


@pytest.mark.long
def test_subscriptions_come_change_and_go_while_it_runs(tmp_path: Path, nats_url: str, spark: Any) -> None:
    document = small(300, first={"site": "mid"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url, spark) as live:
            live.readers.start(["first"])
            await live.run_queries()
            await live.settle()
            await change(live, where="speed > 20", format="json")
            live.readers.start(["late"])
            await grow(live, 500)
            status = await live.settle()
            late = status["subscriptions"]["late"]
            assert late["starts"] == 300
            assert late["delivered"] == late["matched"] > 0
            assert min(live.seqs("late")) > 300
            await change(live, where="speed <= 20", select=["vehicle"])
            await grow(live, 700)
            status = await live.settle()
            assert live.readers.deliveries["late"][-1].rows.schema.names == ["vehicle"]
            assert status["subscriptions"]["late"]["difference"] == 0
            await live.client.unsubscribe("late")
            await grow(live, 900)
            status = await live.settle()
            ended = next(each for name, each in status["subscriptions"].items() if name.startswith("(ended"))
            assert ended["difference"] == 0
            assert max(live.seqs("late")) <= 700
            assert live.seqs("first") == list(range(1, 901))

    async def change(live: Any, **wishes: Any) -> None:
        subscription = {"stream": "fleet", "site": "leaf", **wishes}
        await live.client.control("subscribe", name="late", subscription=subscription, change=True)

    async def grow(live: Any, limit: int) -> None:
        """Let the source give more rows, as it would with time."""
        document["streams"]["fleet"]["source"]["limit"] = limit
        stream = live.runtime.catalog.snapshot().deployment.streams["fleet"]
        from dataclasses import replace

        more = replace(stream, source=replace(stream.source, options={**stream.source.options, "limit": str(limit)}))
        await asyncio.to_thread(live._run, [more], QuerySettings(trigger_s=0.1))

    asyncio.run(run())
