"""Requests to a running deployment: hostile, repeated and refused ones, and a catalog that somebody has locked."""

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live import Live, running, small

from headgate.catalog import database
from headgate.client import BusyError, ClientError
from headgate.pipeline.sources import generate

ALL = {"site": "leaf"}
EMOJI = "vehicle = 'lorry \U0001f69a' or vehicle like '%\U0001f69a%'"
SPLIT = """
sites: {west: {}, east: {}, edge: {}}
streams:
  weather:
    source: {format: nats}
    schema: {lon: double, lat: double, temp: double}
    grid: {x: {column: lon, bounds: [-10, 30], size: 32}, y: {column: lat, bounds: [35, 60], size: 32}, block: 16}
    roots:
      west: {site: west, region: {box: {x: [-10, 10]}}}
      east: {site: east, region: {box: {x: [10, 30]}}}
subscriptions: {}
"""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Another program in a transaction that writes."""
    with closing(sqlite3.connect(directory / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def _revisions(directory: Path) -> list[str]:
    with closing(sqlite3.connect(directory / "catalog.db")) as catalog:
        return [change for (change,) in catalog.execute("SELECT change FROM revision ORDER BY revision")]


HOSTILE = {
    b"": "has no 'name'",
    b"\xff\xfe\x00garbage": "byte 0 is not UTF-8",
    b"{": "not JSON",
    b"[" * 100_000 + b"]" * 100_000: "nested too deep",
    b'{"name": "x", "subscription": {"where": ' + b"[" * 400 + b"]" * 400 + b"}}": "nested more than 32 deep",
    b"[1, 2]": "the request is a list",
    b"null": "the request is nothing",
    b'{"name": 5}': "'name' of the request is a number",
    b'{"name": "x", "subscription": 7}': "'subscription' of the request is a number",
    b'{"name": "x", "subscription": {"stream": "fleet", "site": "leaf", "where": NaN}}': "NaN is no number",
    b'{"name": "x", "subscription": {"stream": "fleet", "site": "leaf", "where": 5}}': "expected text",
    b'{"name": "x", "subscription": {"stream": "fleet", "site": "leaf", "where": "\\ud83d"}}': "half a character",
    b'{"name": "\\ud83d", "subscription": {"stream": "fleet", "site": "leaf"}}': "has half a character",
    b'{"name": "x", "subscription": {}, "request": 5}': "the id of the request",
    b'{"name": "x", "subscription": {}, "request": "' + b"i" * 65 + b'"}': "the id of the request",
    json.dumps({"name": "x", "subscription": {"stream": "fleet", "site": "leaf", "select": ["a"] * 10**6}}).encode():
        "more than 32,768 values",
}  # fmt: skip


def test_every_request_is_answered_and_none_stops_the_next(nats_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(small(all=ALL), tmp_path, nats_url) as live:
            fabric = live.client.fabric
            head = live.runtime.catalog.head()
            for verb in ("subscribe", "move", "unsubscribe", "context", "refine"):
                subject = fabric.logs.control(verb)
                for data in HOSTILE:
                    answer = json.loads(await fabric.request(subject, data, 20))
                    assert answer.keys() == {"error", "kind"}, (verb, data[:60], answer)
                    assert answer["kind"] in ("invalid", "unknown"), (verb, data[:60], answer)
            for data, expected in HOSTILE.items():
                answer = json.loads(await fabric.request(fabric.logs.control("subscribe"), data, 20))
                assert expected in answer["error"], (data[:60], answer)
            for contexts in (5, {"all": 5}, {"nobody": {}}):
                with pytest.raises(ClientError):
                    await live.client.control("context", contexts=contexts)
            assert live.runtime.catalog.head() == head
            await live.client.control("subscribe", name="lorries", subscription={"stream": "fleet", "site": "leaf",
                                                                                 "where": EMOJI})  # fmt: skip
            assert live.runtime.catalog.snapshot().deployment.subscriptions["lorries"].where == EMOJI
            assert "all" in (await live.client.control("status"))["subscriptions"]

    asyncio.run(run())


def test_a_refused_change_leaves_nothing_at_any_root(nats_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(SPLIT, tmp_path, nats_url) as live:
            wanted = {"stream": "weather", "site": "edge"}
            await live.client.control("subscribe", name="map", subscription=wanted)
            members = [name for name in live.runtime.catalog.snapshot().subscription_ids if name.startswith("map")]
            assert len(members) == 2, members
            east = next(name for name in members if "east" in name)
            await live.client.control("unsubscribe", name=members[0] if members[0] != east else members[1])
            head = live.runtime.catalog.head()
            # `map` of the east is there already: the one of the west must not be made either.
            with pytest.raises(ClientError, match="there is already a subscription"):
                await live.client.control("subscribe", name="map", subscription=wanted)
            after = live.runtime.catalog.snapshot()
            assert after.revision == head
            assert [name for name in after.subscription_ids if name.startswith("map")] == [east]
            for verb, more in (("move", {"site": "nowhere"}), ("refine", {"resolution": {"space": "9/1"}})):
                with pytest.raises(ClientError):
                    await live.client.control(verb, name="map", **more)
            assert live.runtime.catalog.head() == head
            # What is accepted is one revision, whatever it takes.
            for verb, more in (
                ("subscribe", {"subscription": {**wanted, "where": "temp > 3"}, "change": True}),
                ("move", {"site": "west"}),
                ("unsubscribe", {}),
            ):
                answer = await live.client.control(verb, name="map", **more)
                assert answer["revision"] == live.runtime.catalog.head() == (head := head + 1), verb

    asyncio.run(run())


def test_a_repeated_request_is_done_once_also_after_a_restart(nats_url: str, tmp_path: Path) -> None:
    namespace = f"t{uuid.uuid4().hex[:12]}"
    document = small(all=ALL)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("subscribe", {"name": "mine", "subscription": {"stream": "fleet", "site": "mid"}}),
        ("move", {"name": "mine", "site": "leaf"}),
        ("unsubscribe", {"name": "all"}),
    ]

    async def ask(live: Live) -> list[dict[str, Any]]:
        return [await live.client.control(verb, request=f"r{n}", **rest) for n, (verb, rest) in enumerate(requests)]

    async def first() -> list[dict[str, Any]]:
        async with running(document, tmp_path, nats_url, namespace=namespace) as live:
            verb, rest = requests[0]
            together = [live.client.control(verb, request="r0", **rest) for _ in range(5)]
            answers = await asyncio.gather(*together)
            assert answers == [answers[0]] * 5
            answers = await ask(live)
            assert await ask(live) == answers
            return answers

    async def second(answers: list[dict[str, Any]]) -> None:
        async with running(document, tmp_path, nats_url, namespace=namespace) as live:
            assert await ask(live) == answers
            with pytest.raises(ClientError, match="already a subscription"):
                await live.client.control(requests[0][0], **requests[0][1])

    answers = asyncio.run(first())
    made = _revisions(tmp_path)
    assert [text for text in made if "mine" in text] == ["subscribe mine", "move mine to leaf"]
    asyncio.run(second(answers))
    assert _revisions(tmp_path) == made


def test_a_locked_catalog_stops_nothing_but_changes_and_says_so(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 3.0)
    monkeypatch.setattr("headgate.service.control.BUSY_TIMEOUT_S", 3.0)

    async def longest_pause(stop: asyncio.Event) -> float:
        """The longest time for which this event loop, which the relays run on, did nothing."""
        longest, before = 0.0, time.monotonic()
        while not stop.is_set():
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        return longest

    async def run() -> None:
        rows = generate("fleet", 3, 0, 100, rate=150.0)
        async with running(small(all=ALL), tmp_path, nats_url) as live:
            live.readers.start(["all"])
            await live.commit("fleet", rows.slice(0, 50), 0)
            await live.settle()
            stop = asyncio.Event()
            with locked(tmp_path):
                watching = asyncio.create_task(longest_pause(stop))
                wanted = {"stream": "fleet", "site": "mid"}
                asked = [live.client.control("subscribe", name=f"s{n}", subscription=wanted) for n in range(3)]
                busy = asyncio.gather(*asked, return_exceptions=True)
                await live.commit("fleet", rows.slice(50), 1)
                await live.settle()
                for answer in await busy:
                    assert isinstance(answer, BusyError), answer
                    assert "busy" in str(answer)
                    assert "nothing was changed" in str(answer)
                stop.set()
                assert await watching < 2.7  # a lock waited for on the loop takes all three seconds
            assert live.seqs("all") == list(range(1, 101))
            assert not {"s0", "s1", "s2"} & live.runtime.catalog.snapshot().subscription_ids.keys()
            await live.client.control("subscribe", name="s0", subscription=wanted)

    asyncio.run(run())
