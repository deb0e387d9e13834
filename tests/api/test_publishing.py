"""Publishing over HTTP: what is stored, what is refused and named, and what is stored once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.api.helpers import Api, api_test
from tests.live import sites, until

from headgate.api.bodies import read_bodies
from headgate.catalog import parse_deployment
from headgate.pipeline.sources.payloads import PayloadMessage, decode_arrow

pytestmark = pytest.mark.nats
SCHEMA = {"station": "string", "level": "double", "count": "int", "at": "timestamp"}
NOON = "2026-03-01T12:00:00+00:00"
GOOD = {"station": "north", "level": 3.1, "count": 2, "at": NOON}
BAD: list[tuple[Any, str]] = [
    ({**GOOD, "level": "much"}, "column 'level' is not a double"),
    ({**GOOD, "count": 1.5}, "column 'count' is not a int"),
    ({**GOOD, "count": "2"}, "column 'count' is not a int"),
    ({**GOOD, "count": True}, "column 'count' is not a int"),
    ({**GOOD, "count": 2**40}, "column 'count' is not a int"),
    ({**GOOD, "station": 5}, "column 'station' is not a string"),
    ({**GOOD, "at": "noon"}, "column 'at' is not a timestamp"),
    ({"level": 1.0}, "key column 'station' is null"),
    ("north", "it is not a JSON object"),
]
DOCUMENT = {
    "sites": sites("root"),
    "streams": {
        name: {
            "root": "root",
            "schema": SCHEMA,
            "source": {"format": "nats", "payload": payload},
            "key": "station",
        }
        for name, payload in (("typed", "arrow"), ("lines", "jsonl"))
    }
    | {"made": {"root": "root", "source": {"format": "generator", "kind": "fleet", "limit": 1}}},
    "subscriptions": {},
}


async def stored(api: Api, stream: str) -> list[bytes]:
    """The messages that a stream's job would read."""
    fabric = api.live.client.fabric
    return [each.data for each in await fabric.read(fabric.logs.input(stream), fabric.logs.published(stream), 0)]


async def judged(api: Api) -> tuple[list[str], list[str]]:
    """What the job makes of the typed stream's messages: stations of good rows, and reasons of dead letters."""
    schema = (await api.live.client.snapshot()).deployment.streams["typed"].schema.arrow
    whole = pa.schema([*schema, ("_raw", pa.string()), ("_error", pa.string())])
    messages = [PayloadMessage(number, data) for number, data in enumerate(await stored(api, "typed"))]
    rows = [row for batch in decode_arrow(messages, whole) for row in batch.to_pylist()]
    dead = [row["_error"] or "null key" for row in rows if row["_error"] or row["station"] is None]
    return [row["station"] for row in rows if row["_error"] is None and row["station"] is not None], dead


def test_rows_of_every_form_are_stored(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        path = "/api/streams/typed/rows"
        one = await api.json("POST", path, json=GOOD)
        assert (one["stored"], one["misfits"]) == (1, [])
        await api.json("POST", path, json=[{**GOOD, "station": f"s{n}"} for n in range(3)])
        lines = "\n".join(json.dumps({**GOOD, "station": f"l{n}"}) for n in range(2)) + "\n\n"
        await api.json("POST", path, content=lines, headers={"Content-Type": "application/x-ndjson"})
        table = pa.table({"station": ["a0", "a1"], "count": pa.array([1, 2], pa.int64())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
        await api.json("POST", path, content=bytes(sink.getvalue()), headers=arrow)
        event = {"specversion": "1.0", "id": "1", "source": "/x", "type": "reading"}
        kind = "application/cloudevents"
        for again in range(2):  # the same event is stored once, whatever form it comes in
            first = json.dumps({**event, "data": {**GOOD, "station": "e1"}})
            await api.json("POST", path, content=first, headers={"Content-Type": f"{kind}+json"})
            both = json.dumps([json.loads(first), {**event, "id": "2", "data": {**GOOD, "station": f"e2-{again}"}}])
            await api.json("POST", path, content=both, headers={"Content-Type": f"{kind}-batch+json; charset=UTF-8"})
            headers = {"ce-id": "3", "ce-source": "/x", "ce-specversion": "1.0", "ce-type": "reading"}
            await api.json("POST", path, json={**GOOD, "station": "e3"}, headers=headers)
        good, dead = await judged(api)
        assert good == ["north", "s0", "s1", "s2", "l0", "l1", "a0", "a1", "e1", "e2-0", "e3"]
        assert dead == []
        await api.json("POST", "/api/streams/lines/rows", json=[GOOD, GOOD])
        assert [json.loads(line) for line in (await stored(api, "lines"))[0].splitlines()] == [GOOD, GOOD]

    api_test(tmp_path, nats_url, DOCUMENT, work)


def test_rows_that_do_not_fit_are_named(tmp_path: Path, nats_url: str) -> None:
    rows = [row for bad, _ in BAD for row in (GOOD, bad)]

    async def work(api: Api) -> None:
        path = "/api/streams/typed/rows"
        for check, count in (("all", 0), ("each", len(BAD))):
            found = await api.json("POST", f"{path}?check={check}", 422, json=rows)
            assert (found["stored"], found["count"]) == (count, len(BAD))
            assert [(each["row"], each["reason"]) for each in found["misfits"]] == [
                (2 * number + 1, reason) for number, (_, reason) in enumerate(BAD)
            ]
            good, dead = await judged(api)
            assert (len(good), dead) == (count, [])
        # Without a check they are dead letters of the stream, and the answer says so.
        found = await api.json("POST", path, json=rows)
        assert (found["stored"], len(found["misfits"])) == (len(rows), len(BAD))
        good, dead = await judged(api)
        assert (len(good), len(dead)) == (2 * len(BAD), len(BAD)), dead
        broken = json.dumps(GOOD) + "\n{broken\n"
        headers = {"Content-Type": "application/jsonl"}
        found = await api.json("POST", "/api/streams/lines/rows?check=each", 422, content=broken, headers=headers)
        assert found["misfits"][0]["reason"].startswith("line 2 is not JSON")
        assert found["stored"] == 1
        found = await api.json("POST", "/api/streams/lines/rows", content=broken, headers=headers)
        assert found["stored"] == 2
        assert (await stored(api, "lines"))[2] == b'"{broken"'

    api_test(tmp_path, nats_url, DOCUMENT, work)


def test_a_key_stores_once_and_is_for_one_request(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        path, key = "/api/streams/typed/rows", {"Idempotency-Key": "k1"}
        rows = [GOOD, {**GOOD, "level": "much"}]
        first = await api.json("POST", path, json=rows, headers=key)
        assert await api.json("POST", path, json=rows, headers=key) == first
        good, dead = await judged(api)
        assert (len(good), len(dead)) == (1, 1)
        await api.json("POST", path, 409, json=[GOOD], headers=key)
        await api.json("POST", "/api/streams/lines/rows", json=[GOOD], headers=key)
        assert len(await stored(api, "lines")) == 1

    api_test(tmp_path, nats_url, DOCUMENT, work)


def test_rows_are_stored_at_a_site_and_taken_by_the_root(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        rows = [GOOD, {**GOOD, "level": "much"}]
        found = await api.json("POST", "/api/streams/lines/rows?site=root", json=rows, headers={"Idempotency-Key": "k"})
        assert (found["stored"], await stored(api, "lines")) == (2, [])
        await api.json("POST", "/api/streams/lines/rows?site=nowhere", 404, json=GOOD)

        async def taken() -> bool:
            status = await api.json("GET", "/api/status")
            return bool(status["streams"]["lines"]["outboxes"].get("root", {}).get("taken") == 2)

        await until(taken)

    api_test(tmp_path, nats_url, DOCUMENT, work)


def test_what_cannot_be_published_is_refused(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        refused = await api.json("POST", "/api/streams/made/rows", 409, json=GOOD)
        assert refused["detail"].startswith("the stream 'made' reads from 'generator', so nothing can be published")
        await api.json("POST", "/api/streams/tped/rows", 404, json=GOOD)
        for kind, content, status in (
            ("text/csv", "a,b", 415),
            ("application/json", "{", 422),
            ("application/json", "[" * 100_000, 422),
            ("application/vnd.apache.arrow.stream", "{}", 422),
            ("application/cloudevents+json", "{}", 422),
            ("application/cloudevents-batch+json", "{}", 422),
        ):
            found = await api.http.post("/api/streams/typed/rows", content=content, headers={"Content-Type": kind})
            assert found.status_code == status, (kind, found.text)
        assert await stored(api, "typed") == []

    api_test(tmp_path, nats_url, DOCUMENT, work)


def test_values_keep_their_meaning() -> None:
    types = {"d": "decimal(10,2)", "b": "binary", "l": "array<int>", "day": "date", "f": "double", "t": "boolean"}
    text = json.dumps({"sites": {"root": {}}, "subscriptions": {}, "streams": {"s": {
        "root": "root", "schema": types, "source": {"format": "nats"}}}})  # fmt: skip
    stream = parse_deployment(text, "test.yaml", {}).streams["s"]
    row = {"d": "1.25", "b": "AAE=", "l": [1, None], "day": "2026-03-01", "f": "nan", "t": False}
    (body,) = read_bodies(json.dumps(row).encode(), {}, stream)
    assert body.misfits == ()
    (found,) = body.rows.to_pylist()
    assert (str(found["d"]), found["b"], found["l"], found["day"].isoformat()) == (
        "1.25",
        b"\0\1",
        [1, None],
        "2026-03-01",
    )
    assert found["f"] != found["f"]
