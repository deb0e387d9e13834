"""Columns that come, get wider and go while a deployment runs: nobody who reads is started again."""

from __future__ import annotations

import asyncio
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
REFUSED = [
    ({"n": "smallint"}, "column 'n' of stream 'fleet' cannot become smallint: not every int is one"),
    ({"n": "float"}, "cannot become float: not every int is one"),
    ({"n": "string"}, "cannot become string"),
    ({"n": "decimal(10,2)"}, "cannot become decimal(10,2): not every int is one"),
    ({"speed": "float"}, "cannot become float: not every double is one"),
    ({"speed": "bigint"}, "add a column of the new type under another name, fill both, and retire 'speed'"),
    ({"cost": "decimal(8,3)"}, "cannot become decimal(8,3): not every decimal(8,2) is one"),
    ({"at": "date"}, "has the type date, but event time needs a timestamp"),
    (
        {"n": None},
        "column 'n' of stream 'fleet' is still used by 'fast' (where), 'short' (select) (change or end these",
    ),
    ({"heat": None}, "is still used by 'thin' (policy)"),
    ({"unit": None}, "streams.fleet.key[0]: unknown column 'unit'"),
    ({"at": None}, "unknown column 'at'"),
    ({"new": "dubble"}, "dubble"),
    ({"speed": "float", "n": None}, "cannot become float"),
    ({"speed": "float", "n": None}, "column 'n' of stream 'fleet' is still used by"),
]


@pytest.mark.parametrize("schema", ALLOWED, ids=str)
def test_allowed(schema: dict[str, Any]) -> None:
    change(schema)


@pytest.mark.parametrize(("schema", "said"), REFUSED, ids=str)
def test_refused(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadgateError) as error:
        change(schema)
    assert said in str(error.value)


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
