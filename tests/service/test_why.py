"""`why` against an oracle: rows of every fate, told apart by what this test committed, read and withheld itself."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.client.helpers import read, rows
from tests.live import Live, running, sites, small, until

from headgate.client import Client
from headgate.client.delivery import closing
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits
from headgate.service.why.answer import FATES, Fate, Question
from headgate.service.why.asking import why_named

pytestmark = pytest.mark.nats
BATCH, BATCHES = 200, 4
ASKED = 600
# Each filter twice: for the deployment, and as Python for the oracle, with the conjuncts that can be false.
FILTERS: dict[str, tuple[str, list[tuple[str, Callable[[dict[str, Any]], bool]]]]] = {
    "fast": ("speed > 60 and status = 'moving'", [
        ("speed > 60", lambda row: row["speed"] > 60), ("status = 'moving'", lambda row: row["status"] == "moving")]),
    "slow": ("speed between 1 and 20 and heading < 180", [
        ("speed >= 1", lambda row: row["speed"] >= 1), ("speed <= 20", lambda row: row["speed"] <= 20),
        ("heading < 180", lambda row: row["heading"] < 180)]),
    "mine": ("fuel > $least", [("fuel > $least", lambda row: row["fuel"] > 80)]),
}  # fmt: skip


async def ask(live: Live, name: str, **question: Any) -> Fate:
    found = await why_named(live.client, name, Question(**question))
    assert found.fate in FATES
    assert found.text.endswith(".")
    return found


def false_parts(name: str, row: dict[str, Any]) -> list[str]:
    return [text for text, holds in FILTERS[name][1] if not holds(row)]


def test_rows_that_are_read_matched_or_not(tmp_path: Path, nats_url: str) -> None:
    document = small(
        fast={"site": "mid", "where": FILTERS["fast"][0]},
        slow={"site": "leaf", "where": FILTERS["slow"][0]},
        mine={"site": "leaf", "where": FILTERS["mine"][0], "context": {"least": 99.5}},
    )
    rng = random.Random(1)

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            await live.client.set_context("mine", least=80)
            head = BATCH * BATCHES
            for batch in range(BATCHES):
                if batch == 2:  # a subscription that begins later, with the filter of another
                    late = {"stream": "fleet", "site": "mid", "where": FILTERS["slow"][0]}
                    await live.client.control("subscribe", name="late", subscription=late)
                await live.commit("fleet", rows(batch * BATCH, (batch + 1) * BATCH), batch)
            live.readers.start(["fast", "late"])  # nobody reads `slow` and `mine`

            async def settled() -> bool:
                entries = (await live.runtime.status())["subscriptions"]
                queued = sum(each["queued_rows"] for each in entries.values())
                return queued == 0 and all(entries[name]["in_flight"] == 0 for name in ("fast", "late"))

            await until(settled)
            data = rows(0, head).to_pylist()
            seen: Counter[str] = Counter()
            for _ in range(ASKED):
                seq, name = rng.randint(1, head + 20), rng.choice(["fast", "slow", "mine", "late"])
                found = await ask(live, name, seq=seq)
                seen[found.fate] += 1
                like = "slow" if name == "late" else name
                if seq > head:
                    expected = "unread"
                elif name == "late" and seq <= 2 * BATCH:
                    expected = "before"
                elif all(false_parts(other, data[seq - 1]) for other in FILTERS):
                    expected = "unwanted"
                elif false := false_parts(like, data[seq - 1]):
                    expected = "unmatched"
                    assert [each["part"] for each in found.facts["false"]] == false
                    column = false[0].split()[0]
                    assert found.facts["false"][0]["values"][column] == data[seq - 1][column]
                else:
                    expected = "delivered" if name in ("fast", "late") else "waiting"
                assert found.fate == expected, (name, seq, found.text)
            assert set(seen) == {"unread", "before", "unwanted", "unmatched", "delivered", "waiting"}, seen
            # By key and by filter the newest row that fits is found.
            row = data[-1]
            for question in ({"key": row["vehicle"]}, {"where": f"vehicle = '{row['vehicle']}'"}):
                wanted = [n + 1 for n, each in enumerate(data) if each["vehicle"] == row["vehicle"]]
                kept = [n for n in wanted if not all(false_parts(other, data[n - 1]) for other in FILTERS)]
                found = await ask(live, "fast", **question)
                assert found.seq == (kept[-1] if kept else None)
            assert (await ask(live, "fast", where="speed > 1e6")).fate == "unfound"
            with pytest.raises(HeadgateError, match="give one of"):
                Question()
            with pytest.raises(HeadgateError, match="no subscription 'fat'"):
                await ask(live, "fat", seq=1)
            with pytest.raises(HeadgateError, match="did you mean 'speed'"):
                await ask(live, "fast", where="sped > 1")

    asyncio.run(run())


def test_rows_that_are_given_up_or_under_way(tmp_path: Path, nats_url: str) -> None:
    """Queues of 50 rows at the root, which has 400 to send at once; then a relay that is not running."""
    policy = {"levels": [{"conflate": "vehicle"}], "digest": [{"max": "speed"}]}
    document = small(all={"site": "leaf", "policy": policy}, near={"site": "root"})
    rng = random.Random(2)

    async def run() -> None:
        async with running(document, tmp_path, nats_url, relays=False) as live:
            for batch in range(2):
                await live.commit("fleet", rows(batch * BATCH, (batch + 1) * BATCH), batch)
            fabric = live.client.fabric
            async with Crew() as crew:
                crew.spawn(RelayNode(fabric, "root", limits=QueueLimits(max_rows=50)).run())
                crew.spawn(RelayNode(fabric, "mid").run())
                crew.spawn(RelayNode(fabric, "leaf").run())
                got = {name: await seqs_of(live.client, name, 2 * BATCH) for name in ("all", "near")}
            assert 0 < len(got["all"]) < 2 * BATCH
            seen: Counter[str] = Counter()
            for _ in range(ASKED // 2):
                seq, name = rng.randint(1, 2 * BATCH), rng.choice(["all", "near"])
                found = await ask(live, name, seq=seq)
                seen[found.fate] += 1
                assert found.fate == ("waiting" if seq in got[name] else "reduced"), (name, seq, found.text)
                if found.fate == "reduced":
                    assert (found.facts["at"], sum(found.facts["given_up"].values()) > 0) == ("root", True)
                if name == "all" and found.fate == "reduced":
                    assert "max(speed)" in found.facts["digest"]
            assert set(seen) == {"waiting", "reduced"}
            # Now only the root runs: what comes next gets as far as the log of `mid`, and no further.
            async with Crew() as crew:
                crew.spawn(RelayNode(fabric, "root").run())
                await live.commit("fleet", rows(2 * BATCH, 3 * BATCH), 2)

                async def arrived() -> bool:
                    return (await ask(live, "all", seq=3 * BATCH)).facts.get("at") == "mid"

                await until(arrived)
            for seq in rng.sample(range(2 * BATCH + 1, 3 * BATCH + 1), 10):
                found = await ask(live, "all", seq=seq)
                assert (found.fate, found.facts["at"], found.facts["for"]) == ("in-flight", "mid", "leaf"), found.text
                assert [stop.state for stop in found.path] == ["has", "not-yet", "not-yet"]
            await live.commit("fleet", rows(3 * BATCH, 4 * BATCH), 3)
            found = await ask(live, "all", seq=4 * BATCH)
            assert (found.fate, found.facts["at"]) == ("in-flight", "root")

    asyncio.run(run())


async def seqs_of(client: Client, name: str, upto: int) -> set[int]:
    """The rows that a subscriber would get up to a number, without acknowledging them."""
    got: set[int] = set()
    inbox = await client.subscribe(name, peek=True)
    async with asyncio.timeout(60), closing(inbox) as deliveries:
        async for delivery in deliveries:
            got.update(delivery.seqs.tolist())
            if delivery.upto >= upto:
                break
    return got


def test_dead_thinned_and_published_rows(tmp_path: Path, nats_url: str) -> None:
    document = {
        "sites": sites("root"),
        "streams": {
            "map": {
                "root": "root",
                "source": {"format": "nats", "payload": "json"},
                "schema": {"lon": "double", "lat": "double", "name": "string"},
                "key": "name",
                "grid": {"x": {"column": "lon", "bounds": [0, 16], "size": 16},
                         "y": {"column": "lat", "bounds": [0, 16], "size": 16}},
            }
        },
        "subscriptions": {
            "whole": {"stream": "map", "site": "root"},
            "quarter": {"stream": "map", "site": "root", "resolution": {"space": "1/4"}},
            "corner": {"stream": "map", "site": "root", "region": {"box": {"x": [0, 4], "y": [0, 4]}}},
        },
    }  # fmt: skip
    cells = [{"lon": x + 0.5, "lat": y + 0.5, "name": f"{x}-{y}"} for x in range(16) for y in range(16)]

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            schema = live.runtime.catalog.snapshot().deployment.streams["map"].schema.arrow
            bad = [{"lon": None, "lat": 1.0, "name": "lost"}]
            batch = pa.RecordBatch.from_pylist([*cells, *bad], schema=schema)
            await live.commit("map", batch, 0, dead=[None] * len(cells) + ["column 'lon' is not a double"])
            quarter = await seqs_of(live.client, "quarter", len(cells))
            assert 0 < len(quarter) < len(cells)
            for number, cell in enumerate(random.Random(3).sample(cells, 60)):
                seq = cells.index(cell) + 1
                question = {"key": cell["name"]} if number % 2 else {"seq": seq}
                found = await ask(live, "quarter", **question)
                assert (found.seq, found.fate) == (seq, "waiting" if seq in quarter else "thinned"), found.text
                inside = cell["lon"] < 4 and cell["lat"] < 4
                found = await ask(live, "corner", **question)
                assert found.fate == ("waiting" if inside else "unmatched"), found.text
                assert inside or "outside of its region" in found.text
            dead = await ask(live, "whole", key="lost")
            assert (dead.fate, dead.facts["reason"]) == ("dead", "column 'lon' is not a double")
            assert (await ask(live, "whole", key="new")).fate == "unfound"
            await live.client.publish("map", [{"lon": 1.0, "lat": 1.0, "name": "new"}])
            assert (await ask(live, "whole", key="new")).fate == "unread"
            # What was read and acknowledged is known to be delivered, also when its inbox is empty.
            await read(live.client, "whole", len(cells))
            assert (await ask(live, "whole", seq=7)).fate == "delivered"

    asyncio.run(run())
