"""`why` for rows that were lost, withheld, expired or forgotten, and for those that are not read yet.

What is true is known here from what was published, deleted and shed, and from what subscribers were handed.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.client.helpers import read, rows
from tests.live import Live, running, small, until
from tests.service.test_why import ask, seqs_of

from headgate.fabric import Crew
from headgate.pipeline.control import UpdateController
from headgate.pipeline.sources import generate
from headgate.pipeline.sources.nats import NatsReader
from headgate.pipeline.sources.nats_options import NatsSettings
from headgate.protocol.port import Stored
from headgate.reduction import Digest
from headgate.relay.node import RelayNode
from headgate.service.why.answer import FATES
from headgate.wire.manifest import Manifest, PartRef, encode_manifest
from headgate.wire.unsent import encode_unsent

ROOT = Path(__file__).parents[2]
NOTES: dict[str, Any] = {
    "root": "root",
    "source": {"format": "nats", "payload": "arrow"},
    "schema": {"text": "string"},
    "key": "text",
}


_COLUMNS = StructType([StructField(name, StringType()) for name in ("text", "_raw", "_error")])


def notes() -> dict[str, Any]:
    document = small()
    document["streams"]["notes"] = NOTES
    document["plan"]["notes"] = {"mid": "root", "leaf": "mid"}
    document["subscriptions"] = {"all": {"stream": "notes", "site": "leaf"}}
    return document


async def job(live: Live, batch: int, after: int) -> int:
    """Read the input of `notes` with its source, as the job does, and commit it. Returns up to where it was read."""
    log = live.address.logs.input("notes")
    last: list[Stored] = await live.client.fabric.read(log, ">", 0, limit=10_000)
    settings = {"url": live.address.url, "namespace": live.address.logs.namespace, "stream": "notes"}

    def work() -> pa.Table:
        reader = NatsReader(NatsSettings.of({**settings, "payload": "arrow", "on_gap": "declare"}), _COLUMNS)
        try:
            made = reader.initialOffset()["made"]
            spans = reader.partitions({"sequence": after, "made": made}, {"sequence": last[-1].sequence, "made": made})
            found = [pa.Table.from_batches([each]) for span in spans for each in reader.read(span)]
            reader.commit({"sequence": last[-1].sequence, "made": made})
        finally:
            reader.stop()
        return pa.concat_tables(found)

    table = (await asyncio.to_thread(work)).combine_chunks()
    (columns,) = table.select(["text"]).to_batches()
    await live.commit("notes", columns, batch, dead=table.column("_error").to_pylist())
    return last[-1].sequence


@pytest.mark.nats
def test_rows_that_go_up_wait_unread_or_were_lost_on_the_way(tmp_path: Path, nats_url: str) -> None:
    rng = random.Random(4)

    async def run() -> None:
        async with running(notes(), tmp_path, nats_url, relays=False) as live:
            client, fabric, logs = live.client, live.client.fabric, live.client.fabric.logs
            expected: dict[str, str] = {f"never {number}": "unfound" for number in range(20)}
            seen: Counter[str] = Counter()

            async def check(count: int = 40) -> None:
                for text in rng.sample(sorted(expected), min(count, len(expected))):
                    question = {"key": text} if rng.random() < 0.5 else {"where": f"text = '{text}'"}
                    found = await ask(live, "all", **question)
                    seen[found.fate] += 1
                    assert found.fate == expected[text], (text, found.text)
                    assert found.row is None or found.row == {"text": text}

            for number in range(30):  # nothing runs at the sites: it lies where it was published
                await client.publish("notes", [{"text": f"leaf {number}"}], site="leaf")
                await client.publish("notes", [{"text": f"mid {number}"}], site="mid")
                await client.publish("notes", [{"text": f"home {number}"}])
            expected |= {f"{site} {number}": "going-up" for site in ("leaf", "mid") for number in range(30)}
            expected |= {f"home {number}": "unread" for number in range(30)}
            await check()
            told = await ask(live, "all", key="leaf 7")
            assert (told.facts["at"], told.facts["before"]) == ("leaf", 7)
            assert "published at 'leaf'" in told.text
            assert "behind 7 other messages" in told.text
            async with Crew() as crew:
                for site in ("root", "mid", "leaf"):
                    crew.spawn(RelayNode(fabric, site).run())

                async def risen() -> bool:
                    left = [await fabric.read(logs.outbox(site), ">", 0) for site in ("leaf", "mid")]
                    return left == [[], []]

                await until(risen)
                expected |= dict.fromkeys([text for text, fate in expected.items() if fate == "going-up"], "unread")
                await check()
                told = await ask(live, "all", key="mid 3")
                assert (told.fate, told.facts["at"]) == ("unread", "mid")
                upto = await job(live, 0, 0)
                await seqs_of(client, "all", 90)
            expected |= dict.fromkeys([text for text, fate in expected.items() if fate == "unread"], "waiting")
            await check()
            # Messages are deleted before they are read, and a sender has given up some of its own.
            for number in range(20):
                await client.publish("notes", [{"text": f"late {number}"}])
            stored = await fabric.read(logs.input("notes"), logs.published("notes"), upto)
            gone = {*range(5, 9), 12}
            for number in gone:
                await fabric._js.delete_msg(logs.input("notes").name, stored[number].sequence)
            await fabric.publish(logs.unsent("notes"), encode_unsent(Digest(3, {"every": 2, "expired": 1}, 1, 3)))
            await job(live, 1, upto)
            expected |= {f"late {number}": "lost" if number in gone else "in-flight" for number in range(20)}
            expected |= {text: "lost" for text, fate in expected.items() if fate == "unfound"}
            await check(200)
            told = await ask(live, "all", key="late 12")
            first, last = stored[5].sequence, stored[8].sequence
            reasons = [each["reason"].partition(" of ")[0] for each in told.facts["lost"]["source_gaps"]]
            alone = stored[12].sequence
            assert sorted(reasons) == sorted(
                [f"source gap: messages {first} to {last}", f"source gap: messages {alone} to {alone}"]
            )
            assert told.facts["lost"]["unsent"] == {"every": 2, "expired": 1}
            assert "3 rows were given up by their senders (every 2, expired 1; the newest at 20" in told.text
            assert set(seen) == {"unfound", "going-up", "unread", "waiting", "in-flight", "lost"}, seen

    asyncio.run(run())


@pytest.mark.nats
def test_rows_that_admission_shed_may_be_those_that_are_lost(tmp_path: Path, nats_url: str) -> None:
    document = small(100, all={"site": "leaf"})
    document["streams"]["fleet"]["admission"] = {"method": "shed", "bound": "60 s"}
    rng = random.Random(5)

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            fresh = [
                generate("fleet", 3, 400 * batch, 400 * batch + 400, origin_us=int((time.time() - 1) * 1e6))
                for batch in range(2)
            ]
            await live.commit("fleet", fresh[0], 0, row_cost_s=1e-6)
            await live.commit("fleet", fresh[1], 1, row_cost_s=0.5)
            source = [row for batch in fresh for row in batch.to_pylist()]

            async def head() -> bool:
                return bool((await live.runtime.status())["streams"]["fleet"]["rows_in"] == len(source))

            await until(head)
            upto = (await live.runtime.status())["streams"]["fleet"]["head"]
            got = Counter(_named(row) for each in await _handed(live, "all", upto) for row in each)
            assert len(source) > upto
            seen: Counter[str] = Counter()
            for row in rng.sample(source, 60):
                found = await ask(live, "all", where=_named(row))
                seen[found.fate] += 1
                assert found.fate == ("waiting" if got[_named(row)] else "lost"), found.text
                if found.fate == "lost":
                    assert found.facts["lost"]["shed"] == len(source) - upto
                    assert f"admission control has shed {len(source) - upto:,} rows" in found.text
            assert set(seen) == {"waiting", "lost"}, seen

    asyncio.run(run())


def _named(row: dict[str, Any]) -> str:
    """A filter that fits a row of the fleet, and hardly another."""
    return f"vehicle = '{row['vehicle']}' and speed = {row['speed']!r} and heading = {row['heading']!r}"


async def _handed(live: Live, name: str, upto: int) -> list[list[dict[str, Any]]]:
    """The rows that a subscriber is handed up to a number, without acknowledging them."""
    found: list[list[dict[str, Any]]] = []
    inbox = await live.client.subscribe(name, peek=True)
    async with asyncio.timeout(60):
        async for delivery in inbox:
            found.append(delivery.to_pylist())
            if delivery.upto >= upto:
                break
    await inbox.close()
    return found


@pytest.mark.nats
def test_rows_that_were_withheld_under_overload(tmp_path: Path, nats_url: str) -> None:
    """`all` may miss rows and `same` may not: what only one of them is handed was withheld from the other."""
    document = small(100, all={"site": "leaf", "where": "speed > 10"},
                     same={"site": "leaf", "where": "speed > 10", "require": "e-science"})  # fmt: skip
    document["streams"]["fleet"]["admission"] = {"require": {"preset": "sports results", "bound": "60 s"}}
    rng = random.Random(6)

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            stream = (await live.client.snapshot()).deployment.streams["fleet"]
            live.controllers["fleet"] = UpdateController(stream)
            fresh = generate("fleet", 3, 0, 400, origin_us=int((time.time() - 1) * 1e6))
            await live.commit("fleet", fresh, 0, row_cost_s=1e-6)
            await live.commit("fleet", fresh, 1, row_cost_s=0.5)
            got = {name: await seqs_of(live.client, name, 800) for name in ("all", "same")}
            speeds = [row["speed"] for row in fresh.to_pylist()] * 2
            assert got["same"] == {seq for seq in range(1, 801) if speeds[seq - 1] > 10}
            assert got["all"] < got["same"]
            seen: Counter[str] = Counter()
            for seq in rng.sample(range(1, 801), 120):
                name = rng.choice(["all", "same"])
                found = await ask(live, name, seq=seq)
                seen[found.fate] += 1
                left_out = "withheld" if speeds[seq - 1] > 10 else "unwanted"
                expected = "waiting" if seq in got[name] else left_out
                assert found.fate == expected, (name, seq, found.text)
            assert set(seen) == {"waiting", "withheld", "unwanted"}, seen

    asyncio.run(run())


@pytest.mark.nats
def test_rows_that_expired_were_settled_or_are_forgotten(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("relay.upkeep._UPKEEP_S", "client.acknowledging._ACK_EVERY_S", "service.keeper._STORE_S"):
        monkeypatch.setattr(f"headgate.{place}", 0.05)
    document = small(
        away={"site": "leaf", "where": "speed > 20", "expires": "1 s"}, there={"site": "leaf", "where": "speed > 20"}
    )
    rng = random.Random(7)

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            fabric, logs = live.client.fabric, live.client.fabric.logs
            ids = (await live.client.snapshot()).subscription_ids
            inbox = logs.delivery("leaf", ids["away"])
            seen: Counter[str] = Counter()

            async def check(expected: Any, names: tuple[str, ...], upto: int, count: int = 50) -> None:
                for seq in rng.sample(range(1, upto + 1), count):
                    name = rng.choice(names)
                    found = await ask(live, name, seq=seq)
                    seen[found.fate] += 1
                    wanted = expected(name, seq) if data[seq - 1]["speed"] > 20 else "unwanted"
                    assert found.fate == wanted, (name, seq, found.text)

            data = rows(0, 400).to_pylist()
            for batch in range(2):
                await live.commit("fleet", rows(100 * batch, 100 * batch + 100), batch)

            async def expired() -> bool:
                stored = await fabric.read(logs.inbox("leaf"), inbox, 0)
                return len(stored) == 1 and b'"expired"' in stored[0].data

            await until(expired)
            await check(lambda name, seq: "expired" if name == "away" else "waiting", ("away", "there"), 200)
            # Now it comes back, hears of it and gets what is new; then nothing is left to tell one row from another.
            await live.commit("fleet", rows(200, 300), 2)
            mine = [seq for seq in range(201, 301) if data[seq - 1]["speed"] > 20]
            deliveries = await read(live.client, "away", len(mine))
            assert [seq for each in deliveries for seq in each.seqs.tolist()] == mine
            lost = sum(each.given_up.get("expired", 0) for each in deliveries)
            assert lost == len([row for row in data[:200] if row["speed"] > 20])

            async def begins() -> int:
                """The number after which the inbox still has what it handed over: its last message stays."""
                stored = await fabric.read(logs.inbox("leaf"), inbox, 0)
                return min(fabric.codec.coverage(each.data)[0] for each in stored)

            async def purged() -> bool:
                return await begins() >= 200

            await until(purged)
            after = await begins()

            def known(name: str, seq: int) -> str:
                return "waiting" if name == "there" else "delivered" if seq > after else "settled"

            await check(known, ("away", "there"), 300)
            told = await ask(live, "away", seq=next(seq for seq in range(1, 200) if data[seq - 1]["speed"] > 20))
            assert f"{len(mine):,} rows were delivered, 0 reduced and {lost:,} expired" in told.text
            # The oldest commit goes as it does when the log is full; of the next one only the rows.
            manifests = await fabric.read(logs.root("fleet"), logs.commit("fleet"), 0)
            parts = await fabric.read(logs.root("fleet"), logs.part("fleet"), 0)
            await fabric.purge(logs.root("fleet"), logs.commit("fleet"), manifests[1].sequence)
            await fabric.purge(logs.root("fleet"), logs.part("fleet"), manifests[1].sequence)
            left = await fabric.read(logs.root("fleet"), logs.part("fleet"), 0)
            assert 0 < len(left) < len(parts)
            for seq in rng.sample(range(1, 201), 40):
                found = await ask(live, "away", seq=seq)
                seen[found.fate] += 1
                assert found.fate == "forgotten", (seq, found.text)
                assert f"has acknowledged up to row 300: {len(mine):,} rows were delivered" in found.text
            found = await ask(live, "there", seq=mine[0])
            assert found.fate == "waiting"
            assert set(seen) == {"expired", "waiting", "unwanted", "delivered", "settled", "forgotten"}, seen

    asyncio.run(run())


@pytest.mark.nats
def test_numbers_whose_rows_were_lost_with_a_part_of_the_root_log(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with running(small(all={"site": "leaf"}), tmp_path, nats_url) as live:
            fabric, logs = live.client.fabric, live.client.fabric.logs
            await live.commit("fleet", rows(0, 20), 0)
            (stored,) = await fabric.read(logs.root("fleet"), logs.commit("fleet"), 0)
            none, version = np.zeros(0, np.uint64), (await live.client.snapshot()).revision
            lost = Manifest("fleet", "other", 7, version, 20, (PartRef(0, 10, 0),), none, none, gaps=10, time_ms=1)
            await fabric.publish(logs.commit("fleet"), encode_manifest(lost), expect=stored.sequence)
            fates = {seq: (await ask(live, "all", seq=seq)).fate for seq in range(15, 36)}
            assert {seq for seq, fate in fates.items() if fate == "gap"} == set(range(21, 31))
            assert {fate for seq, fate in fates.items() if seq > 30} == {"unread"}
            assert "one of rows 21 to 30 of 'fleet'" in (await ask(live, "all", seq=25)).text
            found = await ask(live, "all", where="speed > 1e6")
            assert (found.fate, found.facts["lost"]["gone"]) == ("lost", 10)

    asyncio.run(run())


def test_every_fate_is_explained_and_has_a_colour() -> None:
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    lines = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(lines))) == sorted(FATES)
    script = (ROOT / "src/headgate/api/static/app/pages/why.js").read_text(encoding="utf-8")
    tones = script.partition("const TONES = {")[2].partition("}")[0]
    warned = {"before", "unwanted", "unmatched", "thinned"}  # the colour of what has none
    assert {name.strip(' "') for name in re.findall(r"([\w\" -]+):", tones)} == set(FATES) - warned
