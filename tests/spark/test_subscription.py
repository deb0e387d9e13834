"""A subscription as a source of Spark: exact offsets, replays, admission, what was given up, and what is refused."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.client.helpers import live_test, no_difference, rows
from tests.live import Live, running, small, until
from tests.spark.helpers import between, next_batch, open_stream, options_of, struct, table

from headgate.client import ClientError
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits
from headgate.spark.ahead import tallies
from headgate.spark.source import HeadgateSource

pytestmark = pytest.mark.nats


def in_thread(work: Callable[[Live], None]) -> Callable[[Live], Any]:
    """Spark calls readers from threads without a loop."""

    async def run(live: Live) -> None:
        await asyncio.to_thread(work, live)

    return run


def test_batches_have_every_row_once_and_a_replay_the_same_ones(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf", "select": ["vehicle", "fuel", "at"]})

    def reads(live: Live) -> None:
        options = options_of(live, subscription="all", metadata="true", max_rows_per_trigger=90)
        reader = open_stream(options)
        offset = start = reader.initialOffset()
        seqs: list[int] = []
        seen: list[tuple[Any, Any, pa.Table]] = []
        while len(seqs) < 600:
            end, found = next_batch(reader, offset)
            assert reader.initialOffset() == start  # as Spark asks again while it plans the first batch
            assert 0 < found.num_rows <= 90
            seqs += [each["seq"] for each in found["_headgate"].to_pylist()]
            seen.append((offset, end, found))
            offset = end
        assert seqs == list(range(1, 601))
        assert offset["rows"] == 600
        whole = pa.concat_tables(found.drop_columns("_headgate") for _, _, found in seen)
        assert whole.to_pylist() == rows(0, 600).select(["vehicle", "fuel", "at"]).to_pylist()
        # Another driver runs a batch again from the journal alone, and goes on behind it.
        reader.commit(seen[1][1])
        reader.stop()
        again = open_stream(options)
        before, after, found = seen[2]
        assert between(again, before, after) == found
        assert next_batch(again, after)[1] == seen[3][2]
        # Everything from the start, long acknowledged, comes from the root log.
        assert between(again, start, offset).num_rows == 600
        again.commit(offset)
        again.stop()

    async def work(live: Live) -> None:
        for batch in range(3):
            await live.commit("fleet", rows(200 * batch, 200 * (batch + 1)), batch)
        await until(lambda: _has_come(live, 600))
        await asyncio.to_thread(reads, live)
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, document, work)


def test_only_what_spark_has_committed_is_acknowledged(tmp_path: Path, nats_url: str) -> None:
    async def acknowledged(live: Live) -> int:
        status = await live.runtime.status()
        return 100 - int(status["subscriptions"]["all"]["in_flight"])

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 100), 0)
        await until(lambda: _has_come(live, 100))
        reader = await asyncio.to_thread(open_stream, options_of(live, subscription="all"))
        start = await asyncio.to_thread(reader.initialOffset)
        end, found = await asyncio.to_thread(next_batch, reader, start)
        assert found.num_rows == 100
        await asyncio.to_thread(reader.stop)  # a driver that is stopped in the middle of a batch
        assert await acknowledged(live) == 0
        again = await asyncio.to_thread(open_stream, options_of(live, subscription="all"))
        assert (await asyncio.to_thread(between, again, start, end)).num_rows == 100
        assert await acknowledged(live) == 0
        assert await asyncio.to_thread(lambda: next_batch(again, end)[0]) == end  # Spark plans the next one
        await asyncio.to_thread(again.commit, end)
        await asyncio.to_thread(again.stop)
        assert await acknowledged(live) == 100

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_a_second_query_takes_over_and_the_first_is_told(tmp_path: Path, nats_url: str) -> None:
    def reads(live: Live) -> None:
        first = open_stream(options_of(live, subscription="all"))
        start = first.initialOffset()
        end, _ = next_batch(first, start)
        second = open_stream(options_of(live, subscription="all"))
        second.initialOffset()
        first.commit(end)
        with pytest.raises(ClientError, match="another client has taken over the subscription 'all'"):
            first.stop()
        second.stop()

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 50), 0)
        await until(lambda: _has_come(live, 50))
        await asyncio.to_thread(reads, live)

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_what_was_given_up_is_a_row_of_its_own(tmp_path: Path, nats_url: str) -> None:
    policy = {"levels": [{"conflate": "vehicle"}], "digest": [{"max": "speed"}]}

    def reads(live: Live) -> None:
        reader = open_stream(options_of(live, subscription="few", metadata="true"))
        offset, got, lost = reader.initialOffset(), 0, 0
        while got + lost < 180:
            offset, found = next_batch(reader, offset)
            marks = [each["_headgate"] for each in found.to_pylist()]
            got += sum(mark["seq"] is not None for mark in marks)
            told = [mark for mark in marks if mark["seq"] is None]
            lost += sum(count for mark in told for _, count in mark["given_up"])
            assert all(mark["after"] < mark["upto"] and "max(speed)" in mark["digest"] for mark in told)
        assert lost > 0
        assert (offset["rows"], offset["given_up"]) == (got, lost)
        reader.stop()

    async def run() -> None:
        document = small(few={"site": "root", "policy": policy})
        async with running(document, tmp_path, nats_url, relays=False) as live, Crew() as crew:
            for batch in range(3):
                await live.commit("fleet", rows(batch * 60, batch * 60 + 60), batch)
            crew.spawn(RelayNode(live.client.fabric, "root", limits=QueueLimits(max_rows=50)).run())
            await asyncio.to_thread(reads, live)

    asyncio.run(run())


def test_a_batch_read_takes_a_range_and_acknowledges_nothing(tmp_path: Path, nats_url: str) -> None:
    def reads(live: Live, **given: Any) -> list[int]:
        source = HeadgateSource(options_of(live, subscription="all", metadata="true", **given))
        reader = pickle.loads(pickle.dumps(source.reader(struct(source.schema()))))
        return [each["seq"] for each in table(reader, reader.partitions())["_headgate"].to_pylist()]

    async def work(live: Live) -> None:
        for batch in range(3):
            await live.commit("fleet", rows(100 * batch, 100 * (batch + 1)), batch)
        await until(lambda: asyncio.to_thread(lambda: len(reads(live)) == 300))
        assert await asyncio.to_thread(reads, live) == list(range(1, 301))
        assert await asyncio.to_thread(lambda: reads(live, after=120, upto=250)) == list(range(121, 251))
        assert await asyncio.to_thread(lambda: reads(live, after=300)) == []
        position = (await (await live.client.subscribe("all", peek=True, max_rows=40)).__aiter__().__anext__()).position
        assert tallies(position)
        assert await asyncio.to_thread(lambda: reads(live, position=position, upto=60)) == list(range(41, 61))
        assert (await live.runtime.status())["subscriptions"]["all"]["in_flight"] == 300

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_what_the_inbox_holds_ends_a_query_that_takes_what_is_there(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 100), 0)
        await until(lambda: _has_come(live, 100))
        reader = await asyncio.to_thread(open_stream, options_of(live, subscription="all", max_rows_per_trigger=60))
        offset, found = await asyncio.to_thread(lambda: next_batch(reader, reader.initialOffset()))
        await asyncio.to_thread(reader.prepareForTriggerAvailableNow)
        await live.commit("fleet", rows(100, 200), 1)
        await until(lambda: _has_come(live, 200))
        got = found.num_rows
        while True:
            end, found = await asyncio.to_thread(next_batch, reader, offset)
            got += found.num_rows
            if end == offset:
                break
            offset = end
        assert got == 100
        await asyncio.to_thread(reader.stop)

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


async def _has_come(live: Live, upto: int) -> bool:
    from headgate.client.extent import held_upto

    return await held_upto(live.client.fabric, await live.client.snapshot(), "all") == upto


REFUSED = yaml.safe_load((Path(__file__).parents[1] / "data" / "spark" / "refused.yaml").read_text())


def test_what_cannot_be_read_or_written_is_refused_with_the_reason(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})
    notes = {"root": "root", "source": {"format": "nats"}, "schema": {"id": "bigint", "text": "string"}}
    document["streams"]["notes"] = notes

    def said(work: Callable[[], Any]) -> str:
        with pytest.raises(HeadgateError) as refused:
            work()
        return str(refused.value)

    def refused(live: Live) -> None:
        for case in REFUSED["reads"]:
            assert said(HeadgateSource(options_of(live, **case["options"])).schema) == case["says"]
        good = HeadgateSource(options_of(live, subscription="all"))
        for case in REFUSED["schemas"]:
            assert said(partial(good.streamReader, struct(case["schema"]))) == case["says"]
        for case in REFUSED["writes"]:
            sink = HeadgateSource(options_of(live, **case["options"]))
            assert said(partial(sink.streamWriter, struct(case["schema"]), overwrite=False)) == case["says"]
        sink = HeadgateSource(options_of(live, stream="notes"))
        assert "cannot be overwritten" in said(lambda: sink.streamWriter(struct("id bigint"), overwrite=True))
        ranged = HeadgateSource(options_of(live, subscription="all", upto=9))
        assert "is for batch reads" in said(lambda: ranged.streamReader(struct("fuel double")))
        late = ranged.reader(struct("fuel double"))
        assert said(late.partitions) == "'upto' is 9, and 'all' has come up to 0 (wait, or leave it out)"

    live_test(tmp_path, nats_url, document, in_thread(refused))


def test_a_batch_that_is_published_again_is_stored_once(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})
    notes = {"root": "root", "source": {"format": "nats"}, "schema": {"id": "bigint", "text": "string"}}
    document["streams"]["notes"] = notes

    def writes(live: Live) -> None:
        writer = HeadgateSource(options_of(live, stream="notes")).streamWriter(struct("id bigint, text string"), False)
        tasks = [pa.RecordBatch.from_pydict({"id": [n, n + 1], "text": ["a", None]}) for n in (0, 2)]
        written = [pickle.loads(pickle.dumps(writer.write(iter([task])))) for task in tasks]
        for batch in (0, 0, 1):  # a driver that died before Spark noted the batch, then the next batch
            writer.commit([*written, writer.write(iter([]))], batch)
        writer.abort(written, 2)

    async def work(live: Live) -> None:
        await asyncio.to_thread(writes, live)
        fabric = live.client.fabric
        log = fabric.logs.input("notes")
        stored = await fabric.read(log, fabric.logs.published("notes"), 0)
        tables = [pa.ipc.open_stream(each.data).read_all().to_pylist() for each in stored]
        one = [{"id": n, "text": None if n % 2 else "a"} for n in range(4)]
        assert tables == [one, one]

    live_test(tmp_path, nats_url, document, work)


def test_a_range_that_does_not_come_is_an_error_and_not_an_empty_batch(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.spark import ranges

    monkeypatch.setattr(ranges, "_PATIENCE_S", 0.2)

    def reads(live: Live) -> None:
        reader = open_stream(options_of(live, subscription="all"))
        start = reader.initialOffset()
        missing = ranges.SubscriptionRange("all", start["position"], 500)
        with pytest.raises(ClientError, match=r"rows of 'all' after 0, up to 500, have not come within 0.2 s"):
            table(reader, [missing])
        reader.stop()

    live_test(tmp_path, nats_url, small(all={"site": "leaf"}), in_thread(reads))
