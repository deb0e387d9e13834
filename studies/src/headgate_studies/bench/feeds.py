"""`headgate bench feeds`: the feeds application end to end, every new item counted at every subscriber.

A loopback HTTP server offers hundreds of RSS and Atom feeds, some of them malformed. The poller asks it for several
rounds while feeds gain items; a stream reads the spool through the Spark job, relays carry it down a planned tree, and
many subscribers read feeds, topics or titles of their choice. At the end each subscriber's keys are compared with what
the feeds published, and the ledger and the dead letters are read from the logs.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.feeds import SCHEMA, Politeness, Poller, Spool, run_feeds
from headgate.feeds.items import key_of
from headgate.feeds.listing import parse_feeds
from headgate.model import type_name
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.service.dead_letters import read_dead_letters
from headgate.service.demo.run import Readers, drained
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate_studies.workloads.feeds import FeedServer, MadeFeed

TOPICS = ("weather", "sport", "code", "music", "trade")
_WAIT_S = 300.0
_AT_ONCE = Politeness(interval_s=0.0, host_gap_s=0.0)
Wanted = tuple[str, str]
"""What a subscriber asks for: `feed` or `topic`, and which."""


def run(
    feeds: int = 300,
    broken: int = 9,
    subscribers: int = 100,
    sites: int = 8,
    rounds: int = 3,
    master: str = "local[*]",
    seed: int = 1,
) -> dict[str, Any]:
    """Poll `feeds` feeds for some rounds and deliver every new item to `subscribers` subscribers at `sites` sites."""
    generator = np.random.default_rng(seed)
    made = {
        f"f{n:03d}": MadeFeed("atom" if n % 2 else "rss", [(f"{n}-0", f"item {n}", TOPICS[n % len(TOPICS)])])
        for n in range(feeds)
    }
    made |= {f"broken{n}": MadeFeed("broken") for n in range(broken)}
    wanted = _wanted(generator, feeds, subscribers)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headgate-feeds-") as directory, FeedServer(made) as server:
        status, received, reasons = asyncio.run(_deliver(Path(directory), server, wanted, sites, rounds, master))
    figures = _judge(made, wanted, received) | {
        "feeds": feeds,
        "subscribers": subscribers,
        "rounds": rounds,
        "requests": server.answers.total(),
        "unchanged": server.answers[304],
        "dead_letters": status["streams"]["feeds"]["dead"],
        "dead_without_reason": sum(not reason for reason in reasons),
        "dead_in_the_log": len(reasons),
        "ledger_difference": status["streams"]["feeds"]["difference"]
        + sum(abs(each["difference"]) for each in status["subscriptions"].values()),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(f"{feeds} feeds, {broken} malformed, asked {rounds} times: {figures['requests']:,} requests, ", end="")
    print(f"{figures['unchanged']:,} answered with 304; {figures['items']:,} items published")
    print(
        f"{subscribers} subscribers at {sites} sites: {figures['delivered']:,} of {figures['expected']:,} items"
        f" delivered, {figures['missing']} missing, {figures['twice']} twice, {figures['unasked']} not asked for"
    )
    print(f"dead letters: {figures['dead_letters']}, of which without a reason {figures['dead_without_reason']}")
    for reason, count in Counter(reason.split(":")[0][:60] for reason in reasons).most_common(3):
        print(f"  {count:>4} {reason}")
    print(f"ledger difference {figures['ledger_difference']}")
    return figures


def _wanted(generator: np.random.Generator, feeds: int, subscribers: int) -> dict[str, Wanted]:
    """Subscribers by name: most want one feed, picked by the paper's Zipf law, every tenth a topic of all feeds."""
    popularity = 1.0 / np.arange(1, feeds + 1) ** 0.97
    picked = generator.choice(feeds, subscribers, p=popularity / popularity.sum())
    return {
        f"reader{n:03d}": ("topic", TOPICS[n // 10 % len(TOPICS)]) if n % 10 == 0 else ("feed", f"f{feed:03d}")
        for n, feed in enumerate(picked.tolist())
    }


def _document(spool: Spool, wanted: dict[str, Wanted], sites: int) -> dict[str, Any]:
    subscriptions: dict[str, Any] = {}
    for n, (name, (kind, which)) in enumerate(wanted.items()):
        where = (
            {"where": f"feed = '{which}'"} if kind == "feed" else {"profile": "topics", "where": f"topic: +/{which}"}
        )
        subscriptions[name] = {"site": f"s{n % sites}", "stream": "feeds", **where}
    return {
        "sites": {name: {"upload": "10 Mbit/s"} for name in ("root", *(f"s{n}" for n in range(sites)))},
        "links": {"default_delay": "5 ms"},
        "streams": {
            "feeds": {
                "root": "root",
                "schema": {column.name: type_name(column.type) for column in SCHEMA.columns},
                "source": {"format": "json", "path": str(spool.items)},
                "key": "key",
            }
        },
        "subscriptions": subscriptions,
    }


async def _deliver(
    directory: Path, server: FeedServer, wanted: dict[str, Wanted], sites: int, rounds: int, master: str
) -> tuple[dict[str, Any], dict[str, list[str]], list[str]]:
    """Run the deployment over all rounds; returns its status, what every subscriber got, and why letters are dead."""
    spool = Spool(directory / "feeds")
    text = yaml.safe_dump(_document(spool, wanted, sites))
    deployment = parse_deployment(text, "feeds.yaml", GENERATOR_SCHEMAS)
    poller = Poller(parse_feeds(server.listing()), _AT_ONCE)
    names = [name for name in server.feeds if server.feeds[name].kind != "broken"]
    async with open_runtime(Settings(directory / "state", master=master), deployment) as runtime:
        assert runtime.server is not None
        async with await Client.connect(runtime.server.url, namespace=runtime.settings.namespace) as client:
            readers = Readers(client, keep=True)
            readers.start(list(wanted))
            try:
                await runtime.wait_ready(timeout_s=_WAIT_S)
                published = 0
                for turn in range(1, rounds + 1):
                    published += await asyncio.to_thread(run_feeds, poller, spool, rounds=turn)
                    if turn < rounds:
                        for n in range(0, len(names), turn + 1):
                            server.add(names[n], (f"{n}-{turn}", f"item {n + turn}", TOPICS[(n + turn) % len(TOPICS)]))
                status = await _settled(runtime, readers, published + poller.counts.dead)
            finally:
                await readers.stop()
        reasons = [_reason(json.loads(line)) for line in await read_dead_letters(runtime.fabric, "feeds")]
    received = {
        name: [key for each in readers.deliveries[name] for key in each.rows.column("key").to_pylist()]
        for name in wanted
    }
    return status, received, reasons


async def _settled(runtime: Runtime, readers: Readers, rows: int) -> dict[str, Any]:
    """The status once every spooled line is in and everything matched has been acknowledged."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        if runtime.failure.done():
            await runtime.failure
        readers.check()
        status = await runtime.status()
        if status["streams"]["feeds"]["rows_in"] >= rows and drained(status):
            return status
        await asyncio.sleep(0.5)
    raise HeadgateError(
        f"{rows} lines were spooled and not all of them delivered within {_WAIT_S:.0f} s",
        hint=f"see {runtime.settings.state_dir / 'job.log'}",
    )


def _reason(letter: dict[str, Any]) -> str:
    """Why the poller could not read something, from the line that it spooled for it; else what the stream says."""
    mark, raw = "dead letter ", str(letter["raw"] or "")
    return str(json.loads(raw.removeprefix(mark))["reason"] if raw.startswith(mark) else letter["reason"] or "")


def _judge(made: dict[str, MadeFeed], wanted: dict[str, Wanted], received: dict[str, list[str]]) -> dict[str, Any]:
    """What every subscriber should have, against what it has."""
    items = [
        (name, topic, key_of(name, identity))
        for name, feed in made.items()
        if feed.kind != "broken"
        for identity, _, topic in feed.items
    ]
    missing = twice = unasked = expected = 0
    for name, (kind, which) in wanted.items():
        due = {key for feed, topic, key in items if which == (feed if kind == "feed" else topic)}
        got = Counter(received[name])
        expected += len(due)
        missing += len(due - got.keys())
        unasked += len(got.keys() - due)
        twice += sum(count - 1 for count in got.values())
    return {
        "items": len(items),
        "expected": expected,
        "delivered": sum(len(keys) for keys in received.values()),
        "missing": missing,
        "twice": twice,
        "unasked": unasked,
    }
