"""Feeds end to end: a loopback server with hundreds of feeds, the poller, Spark, relays, and many subscribers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.live import running, sites

from headgate.feeds import SCHEMA, Politeness, Poller, Spool, run_feeds
from headgate.feeds.listing import parse_feeds
from headgate.model import type_name
from headgate_studies.workloads.feeds import FeedServer, MadeFeed

pytestmark = [pytest.mark.spark, pytest.mark.nats]

FEEDS, BROKEN = 200, 7
TOPICS = ("weather", "sport", "code")
EVEN_AT_ONCE = Politeness(interval_s=0.0, host_gap_s=0.0)


def _document(spool: Spool) -> dict[str, Any]:
    where = {
        "everything": {"site": "root"},
        **{f"feed-{n}": {"site": f"s{n % 4}", "where": f"feed = 'f{n:03d}'"} for n in range(0, FEEDS, 8)},
        **{
            f"topic-{t}": {"site": f"s{n}", "profile": "topics", "where": f"topic: +/{t}"} for n, t in enumerate(TOPICS)
        },
        "titles": {"site": "s3", "where": "title like '%7'", "select": ["key"]},
    }
    return {
        "sites": sites("root", "s0", "s1", "s2", "s3"),
        "streams": {
            "feeds": {
                "root": "root",
                "schema": {column.name: type_name(column.type) for column in SCHEMA.columns},
                "source": {"format": "json", "path": str(spool.items)},
                "key": "key",
            }
        },
        "plan": {"feeds": {"s0": "root", "s1": "root", "s2": "s0", "s3": "s2"}},
        "subscriptions": {name: {"stream": "feeds", **each} for name, each in where.items()},
    }


@pytest.mark.long
def test_every_new_item_arrives_once_and_malformed_feeds_are_dead_letters(
    tmp_path: Path, nats_url: str, spark: Any
) -> None:
    made = {
        f"f{n:03d}": MadeFeed("atom" if n % 2 else "rss", [(f"{n}-0", f"item {n}", TOPICS[n % 3])])
        for n in range(FEEDS)
    }
    made |= {f"broken{n}": MadeFeed("broken") for n in range(BROKEN)}
    spool = Spool(tmp_path / "feeds")
    document = _document(spool)
    names = list(document["subscriptions"])

    async def run(server: FeedServer) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
        poller = Poller(parse_feeds(server.listing()), EVEN_AT_ONCE)
        async with running(document, tmp_path / "state", nats_url, spark) as live:
            live.readers.start(names)
            for turn in range(1, 3):
                await asyncio.to_thread(run_feeds, poller, spool, rounds=turn)
                await live.run_queries()
                for n in range(0, FEEDS, turn + 1):
                    server.add(f"f{n:03d}", (f"{n}-{turn}", f"item {n + turn}", TOPICS[(n + turn) % 3]))
            await asyncio.to_thread(run_feeds, poller, spool, rounds=3)
            await live.run_queries()
            status = await live.settle()
            return status, {name: live.rows(name).to_pylist() for name in names}

    with FeedServer(made) as server:
        status, received = asyncio.run(run(server))
        published = sum(len(feed.items) for name, feed in made.items() if name.startswith("f"))
        keys = [row["key"] for row in received["everything"]]
        assert len(keys) == len(set(keys)) == published
        assert server.answers[304] > 0
    for name in names:
        mine = [row["key"] for row in received[name]]
        assert len(mine) == len(set(mine)), name
    for n in range(0, FEEDS, 8):
        assert len(received[f"feed-{n}"]) == len(made[f"f{n:03d}"].items)
    for topic in TOPICS:
        expected = [item for name, feed in made.items() for item in feed.items if item[2] == topic]
        assert len(received[f"topic-{topic}"]) == len(expected)
    stream = status["streams"]["feeds"]
    assert stream["rows_in"] == published + stream["dead"]
    assert stream["dead"] >= BROKEN
    assert all(each["difference"] == 0 for each in status["subscriptions"].values())
