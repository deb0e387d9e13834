"""Receiving over HTTP: the rows that the Python client gets, once each, through cuts, take-overs and frozen clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.api.helpers import Api, api_test, serve
from tests.client.helpers import read, rows
from tests.live import running, small, until
from websockets.asyncio.client import connect as connect_socket

from headgate.api import readers
from headgate.fabric import Crew
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits

pytestmark = pytest.mark.nats
ROWS = 400
EVERYBODY = {"site": "leaf"}


@dataclass
class Event:
    kind: str
    data: Any
    id: str | None


async def events_of(answer: httpx.Response) -> AsyncIterator[Event]:
    """Events as a browser's `EventSource` reads them; one without data only moves the id on."""
    kind, data, place = "message", "", None
    async for line in answer.aiter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            kind = value
        elif key == "data":
            data = value
        elif key == "id":
            place = value
        elif not line:
            if data or place:
                yield Event(kind if data else "", json.loads(data) if data else None, place)
            kind, data, place = "message", "", None


@asynccontextmanager
async def listening(api: Api, name: str, last: str | None = None, **params: Any) -> AsyncIterator[AsyncIterator[Event]]:
    headers = {"Last-Event-ID": last} if last else {}
    path = f"/api/subscriptions/{name}/events"
    async with asyncio.timeout(60), api.http.stream("GET", path, params=params, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_of(answer)


def seqs(event: Event) -> list[int]:
    return [row["_seq"] for row in event.data["rows"]] if event.kind == "rows" else []


async def no_difference(api: Api, name: str, delivered: int) -> None:
    async def accounted() -> bool:
        entry = (await api.live.runtime.status())["subscriptions"][name]
        assert entry["difference"] == 0
        return bool(entry["delivered"] == delivered and entry["in_flight"] == 0)

    await until(accounted)


def test_events_resume_without_gap_or_duplicate(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        got: list[int] = []
        last = None
        while len(got) < ROWS:
            async with listening(api, "all", last, max_rows=30) as events:
                # Cut after three events, while the server has written more.
                for _ in range(3):
                    event = await anext(events)
                    got += seqs(event)
                    last = event.id or last
                    if len(got) >= ROWS:
                        break
        assert got == list(range(1, ROWS + 1))
        # Coming back with the last id confirms everything before it, and only that was acknowledged.
        async with listening(api, "all", last):
            await no_difference(api, "all", ROWS)

    api_test(tmp_path, nats_url, small(all=EVERYBODY), work)


def test_what_was_written_and_never_read_comes_again(tmp_path: Path, nats_url: str) -> None:
    """The server is far ahead of a client that reads one event and dies: nothing of that may be acknowledged."""

    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        async with listening(api, "all", max_rows=10) as events:
            first = await anext(events)

            async def all_written() -> bool:
                reader = api.gateway.readers._reading["all"]
                return reader.inbox.tally.mark >= ROWS  # type: ignore[union-attr]

            await until(all_written)
        assert (await api.live.runtime.status())["subscriptions"]["all"]["delivered"] == 0
        async with listening(api, "all", first.id, max_rows=1000) as events:
            found = await anext(events)
            assert seqs(first) + seqs(found) == list(range(1, ROWS + 1))

    api_test(tmp_path, nats_url, small(all=EVERYBODY), work)


def test_who_stays_need_not_confirm(tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "HOLD_S", 0.3)
    monkeypatch.setattr(readers, "TICK_S", 0.1)

    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        async with listening(api, "held") as held, listening(api, "own", ack="client", max_rows=100) as own:
            await anext(held)
            first = await anext(own)
            await no_difference(api, "held", ROWS)
            assert (await api.live.runtime.status())["subscriptions"]["own"]["delivered"] == 0
            second = await anext(own)
            for event in (second, first):  # an older one changes nothing
                path = "/api/subscriptions/own/confirm"
                assert (await api.http.post(path, json={"position": event.id})).status_code == 204
            await api.live.commit("fleet", rows(ROWS, ROWS + 10), 1)
            entry = (await api.live.runtime.status())["subscriptions"]["own"]
            assert entry["delivered"] == 0  # whole commits only
            await anext(own)
            last = await anext(own)
            await api.http.post("/api/subscriptions/own/confirm", json={"position": last.id})

            async def delivered() -> bool:
                return bool((await api.live.runtime.status())["subscriptions"]["own"]["delivered"] == ROWS)

            await until(delivered)
            await api.json("POST", "/api/subscriptions/own/confirm", 422, json={"position": "garbage"})
        await api.json("POST", "/api/subscriptions/nobody/confirm", 409, json={"position": last.id})

    api_test(tmp_path, nats_url, small(held=EVERYBODY, own=EVERYBODY), work)


def test_curl_reads_events(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        curl = await asyncio.create_subprocess_exec(
            "curl", "-sN", "-H", f"Authorization: Bearer {api.token}",
            f"{api.address}/api/subscriptions/all/events?max_rows={ROWS}",
            stdout=asyncio.subprocess.PIPE, limit=1 << 22,
        )  # fmt: skip
        try:
            assert curl.stdout is not None
            lines = [await asyncio.wait_for(curl.stdout.readline(), 30) for _ in range(5)]
        finally:
            curl.kill()
            await curl.wait()
        assert lines[:3] == [b"retry: 1000\n", b"\n", b"event: rows\n"]
        sent = json.loads(lines[3].removeprefix(b"data: "))["rows"]
        assert [row["vehicle"] for row in sent] == rows(0, ROWS).column("vehicle").to_pylist()
        assert lines[4].startswith(b"id: ")

    api_test(tmp_path, nats_url, small(all=EVERYBODY), work)


def test_one_reader_at_a_time_and_no_fight_between_two(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, 20), 0)
        async with listening(api, "all") as first:
            one = await anext(first)
            async with listening(api, "all") as second:
                assert seqs(await anext(second)) == seqs(one)  # nothing was acknowledged
                told = await anext(first)
                assert (told.kind, told.data["status"]) == ("error", 409)
                assert "another client has taken over" in told.data["detail"]
                # A browser comes back by itself; it must not take over from the one that took over from it.
                headers = {"Last-Event-ID": str(one.id)}
                await api.json("GET", "/api/subscriptions/all/events", 409, headers=headers)
                async with listening(api, "all", peek=True) as along:
                    assert seqs(await anext(along)) == seqs(one)
                await api.live.commit("fleet", rows(20, 30), 1)
                assert seqs(await anext(second)) == list(range(21, 31))

    api_test(tmp_path, nats_url, small(all=EVERYBODY), work)


def test_what_was_given_up_is_an_event_of_its_own(tmp_path: Path, nats_url: str) -> None:
    policy = {"levels": [{"conflate": "vehicle"}], "digest": [{"max": "speed"}]}

    async def run() -> None:
        document = small(few={"site": "root", "policy": policy})
        async with running(document, tmp_path, nats_url, relays=False) as live, serve(live) as api, Crew() as crew:
            for batch in range(3):
                await live.commit("fleet", rows(batch * 60, batch * 60 + 60), batch)
            crew.spawn(RelayNode(live.client.fabric, "root", limits=QueueLimits(max_rows=50)).run())
            given, got, last = 0, 0, None
            async with listening(api, "few") as events:
                async for event in events:
                    if event.kind == "given-up":
                        given += sum(event.data["given_up"].values())
                        assert "max(speed)" in event.data["digest"]
                    got += len(seqs(event))
                    last = event.id or last
                    if given + got >= 180:
                        break
            assert given + got == 180
            assert given > 0
            async with listening(api, "few", last):
                await no_difference(api, "few", got)

    asyncio.run(run())


@pytest.mark.long
def test_a_frozen_client_holds_up_nobody_and_costs_little(tmp_path: Path, nats_url: str) -> None:
    many = 30_000

    async def work(api: Api) -> None:
        for batch in range(10):
            await api.live.commit("fleet", rows(batch * many // 10, (batch + 1) * many // 10), batch)
        async with listening(api, "frozen", max_rows=500) as frozen:
            first = await anext(frozen)
            found = await read(api.live.client, "other", many)
            assert sum(map(len, found)) == many
            reader = api.gateway.readers._reading["frozen"]
            marks = []
            for _ in range(2):
                await asyncio.sleep(1.0)  # long enough for as much again as was read so far
                marks.append(reader.inbox.tally.mark)  # type: ignore[union-attr]
            # What it has taken in lies in buffers of a known size: it stands still until its client reads on.
            assert marks[0] == marks[1] < many
            got = seqs(first)
            async for event in frozen:
                got += seqs(event)
                if len(got) == many:
                    break
            assert got == list(range(1, many + 1))

    api_test(tmp_path, nats_url, small(frozen=EVERYBODY, other=EVERYBODY), work)


def test_a_socket_carries_many_subscriptions(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        url = api.address.replace("http://", "ws://") + "/api/socket"
        headers = {"Authorization": f"Bearer {api.token}"}
        async with asyncio.timeout(60), connect_socket(url, additional_headers=headers, proxy=None) as socket:

            async def say(op: str, name: str, **more: Any) -> None:
                await socket.send(json.dumps({"op": op, "subscription": name, **more}))

            async def hear() -> dict[str, Any]:
                found: dict[str, Any] = json.loads(await socket.recv())
                return found

            await socket.send("nonsense")
            assert (await hear())["problem"]["status"] == 422
            for name in ("none", "a", "b"):
                await say("open", name, max_rows=ROWS)
            await say("open", "windowed", max_rows=10, ack="client")
            got: dict[str, list[int]] = {"a": [], "b": [], "windowed": []}
            positions = []
            while sum(map(len, got.values())) < 2 * ROWS + 80:
                event = await hear()
                if event["event"] == "error":
                    assert (event["subscription"], event["problem"]["status"]) == ("none", 404)
                if event["event"] == "rows":
                    got[event["subscription"]] += [row["_seq"] for row in event["rows"]]
                    if event["subscription"] == "windowed":
                        positions.append(event["position"])
            assert got["a"] == got["b"] == list(range(1, ROWS + 1))
            assert len(got["windowed"]) == 80  # eight deliveries, and no more before one is confirmed
            await say("confirm", "windowed", position=positions[-1])
            while len(got["windowed"]) < 160:
                got["windowed"] += [row["_seq"] for row in (await hear())["rows"]]
            assert got["windowed"] == list(range(1, 161))
            await say("close", "a")
            assert await hear() == {"event": "closed", "subscription": "a"}
            await say("open", "a")
            assert (await hear())["event"] == "opened"
        with pytest.raises(Exception, match="403"):
            async with connect_socket(url, proxy=None):
                pass

    api_test(tmp_path, nats_url, small(a=EVERYBODY, b=EVERYBODY, windowed=EVERYBODY), work)


def test_bulk_answers_have_the_rows_that_python_gets(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, ROWS), 0)
        path = "/api/subscriptions/all/rows"
        sent = rows(0, ROWS)
        answer = await api.http.get(path, headers={"Accept": "application/vnd.apache.arrow.stream"})
        reader = pa.ipc.open_stream(answer.content)
        batch, about = reader.read_next_batch_with_custom_metadata()
        assert batch.column("_seq").to_pylist() == list(range(1, ROWS + 1))
        assert batch.drop_columns(["_seq"]).to_pylist() == sent.to_pylist()
        document = json.loads(about["headgate"])
        assert (document["after"], document["upto"]) == (0, ROWS)
        lines = await api.http.get(path, headers={"Accept": "application/x-ndjson"}, params={"max_rows": 150})
        found = [json.loads(line) for line in lines.text.splitlines()]
        assert [row["_seq"] for each in found for row in each["rows"]] == list(range(1, 151))
        # The position confirms, and the next answer goes on behind it.
        place = found[-1]["position"]
        rest = await api.json("GET", path, params={"position": place})
        assert [row["_seq"] for each in rest["deliveries"] for row in each["rows"]] == list(range(151, ROWS + 1))
        place = rest["deliveries"][-1]["position"]
        assert await api.json("GET", path, params={"position": place, "wait_s": 0.2}) == {"deliveries": []}
        await no_difference(api, "all", ROWS)
        await api.json("GET", path, 422, params={"position": "garbage"})
        await api.json("GET", "/api/subscriptions/al/rows", 404)

    api_test(tmp_path, nats_url, small(all=EVERYBODY), work)
