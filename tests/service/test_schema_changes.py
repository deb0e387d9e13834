"""Columns that come, get wider and go while a deployment runs: nobody who reads is started again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.live import Live, running, sites

from headgate.catalog import parse_deployment
from headgate.catalog.reshape import reshaped
from headgate.errors import HeadgateError

STREAM = """
streams:
  fleet:
    root: root
    schema: {unit: string, at: timestamp, speed: double, n: int, cost: "decimal(8,2)", heat: float}
    source: {format: nats}
    key: unit
    event_time: at
sites: {root: , leaf: }
subscriptions:
  fast: {site: leaf, stream: fleet, where: "speed > 3 AND n < 5"}
  short: {site: leaf, stream: fleet, select: [unit, n]}
  thin: {site: leaf, stream: fleet, policy: {levels: [{delta: 2, attribute: heat}]}}
"""


def change(schema: dict[str, Any]) -> None:
    reshaped(parse_deployment(STREAM, "it"), {"streams": {"fleet": {"schema": schema}}})


ALLOWED = [
    {"new": "double"},
    {"new": "array<string>", "other": {"type": "double", "unit": "degC"}},
    {"n": "bigint"},
    {"n": "double"},
    {"n": "decimal(12,2)"},
    {"heat": "double"},
    {"cost": "decimal(10,3)"},
    {"cost": None},
    {"cost": None, "price": "decimal(8,2)"},
]
REFUSALS = [
    line.split(" -> ")
    for line in (Path(__file__).parents[1] / "data" / "schema-refusals.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("schema", ALLOWED, ids=str)
def test_allowed(schema: dict[str, Any]) -> None:
    change(schema)


@pytest.mark.parametrize(("written", "said"), REFUSALS)
def test_refused(written: str, said: str) -> None:
    with pytest.raises(HeadgateError) as error:
        change(json.loads(written))
    assert str(error.value) == said


def rows(first: int, **columns: pa.DataType) -> pa.RecordBatch:
    """Ten rows whose values are their numbers, in the given columns."""
    numbers = pa.array(range(first, first + 10))
    return pa.RecordBatch.from_pydict({name: numbers.cast(kind) for name, kind in columns.items()})


@pytest.mark.nats
def test_columns_come_get_wider_and_go_while_everybody_reads_on(tmp_path: Path, nats_url: str) -> None:
    document = {
        "sites": sites("root", "leaf"),
        "streams": {
            "s": {"root": "root", "schema": {"a": "int", "b": "int"}, "source": {"format": "nats"}, "keep": "1 h"}
        },
        "subscriptions": {
            "all": {"stream": "s", "site": "leaf"},
            "a": {"stream": "s", "site": "leaf", "select": ["a"]},
        },
    }

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["all", "a"])
            await live.commit("s", rows(0, a=pa.int32(), b=pa.int32()), 0)
            await live.settle()
            await live.client.control("change", deployment={"streams": {"s": {"schema": {"c": "double"}}}})
            await live.commit("s", rows(10, a=pa.int32(), b=pa.int32(), c=pa.float64()), 1)
            await live.client.control("change", deployment={"streams": {"s": {"schema": {"a": "bigint"}}}})
            await live.commit("s", rows(20, a=pa.int64(), b=pa.int32(), c=pa.float64()), 2)
            await live.client.control("change", deployment={"streams": {"s": {"schema": {"b": None}}}})
            later = {"stream": "s", "site": "leaf", "where": "c IS NULL OR c < 12", "start": "earliest"}
            await live.client.control("subscribe", name="later", subscription=later)
            live.readers.start(["later"])
            await live.commit("s", rows(30, a=pa.int64(), c=pa.float64()), 3)
            status = await live.settle()
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())
            assert received(live, "all") == [
                *[{"a": k, "b": k} for k in range(10)],
                *[{"a": k, "b": k, "c": float(k)} for k in range(10, 30)],
                *[{"a": k, "c": float(k)} for k in range(30, 40)],
            ]
            assert received(live, "a") == [{"a": k} for k in range(40)]
            # The past is matched again by the columns that there are now: what a row had not then is null.
            assert received(live, "later") == [{"a": k, "c": None if k < 10 else float(k)} for k in range(12)]

    def received(live: Live, name: str) -> list[dict[str, Any]]:
        return [row for each in live.readers.deliveries[name] for row in each.rows.to_pylist()]

    asyncio.run(run())
