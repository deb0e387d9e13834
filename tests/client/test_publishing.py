"""Rows published by a client, end to end: its input log, Spark, the relays, a subscriber, dead letters."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.client.helpers import no_difference, read, seqs
from tests.live import running, sites, until
from typer.testing import CliRunner

from headgate.cli import app as program
from headgate.cli.groups import Program
from headgate.client import ClientError
from headgate.client.publishing import encode_rows
from headgate.model import Source

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _document(**payloads: str) -> dict[str, Any]:
    return {
        "sites": sites("root", "leaf"),
        "streams": {
            name: {
                "root": "root",
                "schema": {"sensor": "string", "value": "double", "at": "timestamp"},
                "source": {"format": "nats", "payload": payload},
                "key": "sensor",
                "event_time": "at",
            }
            for name, payload in payloads.items()
        },
        "subscriptions": {f"all-{name}": {"stream": name, "site": "leaf"} for name in payloads},
    }


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.nats
def test_published_rows_arrive_and_what_cannot_be_read_is_a_dead_letter(
    tmp_path: Path, nats_url: str, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [{"sensor": f"s{number}", "value": number / 2, "at": NOON} for number in range(6)]

    async def run() -> str:
        async with running(_document(typed="arrow", lines="jsonl"), tmp_path, nats_url, spark) as live:
            client, logs = live.client, live.client.fabric.logs
            await client.publish("typed", good[:2])
            await client.publish("typed", pd.DataFrame(good[2:4]))
            await client.publish("typed", pa.Table.from_pylist(good[4:]), site="leaf")
            await until(lambda: client.fabric.last(logs.input("typed"), logs.carried("typed")))
            await client.publish("typed", [{"sensor": None, "value": 1.0, "at": NOON}])
            await client.publish("typed", [{"sensor": "s", "value": "much", "at": NOON}])
            await client.fabric.publish(logs.published("typed"), b"\x00 this is not Arrow")
            await client.publish("lines", good)
            await client.fabric.publish(logs.published("lines"), b'{"sensor": "s", "val')
            await live.run_queries()
            for name in ("typed", "lines"):
                found = await read(client, f"all-{name}", 6)
                assert [row for each in found for row in each.to_pylist()] == good
                assert seqs(found) == list(range(1, 7))
            await until(lambda: no_difference(live))
            status = await live.runtime.status()
            assert (status["streams"]["typed"]["dead"], status["streams"]["lines"]["dead"]) == (3, 1)
            return logs.namespace

    namespace = asyncio.run(run())
    reasons = [letter["reason"] for letter in _dead(nats_url, namespace, "typed")]
    assert sorted(reasons) == sorted(
        [
            "key column 'sensor' is null",
            "message 5: column 'value' is string, not double",
            next(reason for reason in reasons if reason.startswith("message 6 is not an Arrow stream")),
        ]
    )
    (letter,) = _dead(nats_url, namespace, "lines")
    assert letter["raw"] == '{"sensor": "s", "val'


def _dead(nats_url: str, namespace: str, stream: str) -> list[dict[str, Any]]:
    import importlib

    application = Program()
    for module in program.COMMANDS:
        importlib.import_module(module).register(application)
    result = CliRunner().invoke(application, ["dead", stream, "--nats", nats_url, "--namespace", namespace])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_large_tables_are_sent_in_messages_that_fit() -> None:
    table = pa.table({"n": list(range(10_000)), "t": ["x" * 20] * 10_000})
    messages = encode_rows(table, Source("nats"), "s", 50_000)
    assert len(messages) > 5
    assert max(map(len, messages)) <= 50_000
    read_back = pa.concat_tables([pa.ipc.open_stream(message).read_all() for message in messages])
    assert read_back.equals(table)
    lines = encode_rows(table, Source("nats", {"payload": "jsonl"}), "s", 50_000)
    assert max(map(len, lines)) <= 50_000
    assert [json.loads(line)["n"] for message in lines for line in message.split(b"\n")] == list(range(10_000))


@pytest.mark.parametrize("payload", ["arrow", "json", "jsonl"])
def test_a_row_that_fits_no_message_is_refused_and_no_rows_are_no_message(payload: str) -> None:
    source = Source("nats", {"payload": payload})
    with pytest.raises(ClientError, match="bytes, a message at most 900"):
        encode_rows([{"t": "x" * 2000}], source, "s", 1000)
    assert encode_rows([], source, "s", 1000) == []


def test_rows_may_lack_columns_but_not_mix_types() -> None:
    (message,) = encode_rows([{"a": 1}, {"b": "x"}], Source("nats", {"payload": "jsonl"}), "s", 1000)
    assert [json.loads(line) for line in message.split(b"\n")] == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    with pytest.raises(ClientError, match="not of one type"):
        encode_rows([{"a": 1}, {"a": "x"}], Source("nats"), "s", 1000)
    with pytest.raises(ClientError, match="reads a subject of its own"):
        encode_rows([{"a": 1}], Source("nats", {"subject": "x.y"}), "s", 1000)
