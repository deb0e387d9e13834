"""Rows that cannot be stored: each is a dead letter with its reason, and the rows beside it are delivered."""

from __future__ import annotations

import asyncio
import json
import random

import pyarrow as pa
import pytest
from tests.live import running

from headgate.pipeline.letters import mark_oversize, pack_dead, split_dead
from headgate.pipeline.match import possible_times
from headgate.service.dead_letters import read_dead_letters
from headgate.wire.frame import decode_frame
from headgate.wire.manifest import decode_manifest

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def noise(size):
    """Text that does not compress below three quarters."""
    return random.Random(size).randbytes(size * 3 // 4).hex()[:size]


def batch(texts):
    nothing = pa.nulls(len(texts), pa.string())
    columns = [pa.array(range(len(texts)), pa.int64()), pa.array(texts, pa.string()), nothing, nothing]
    return pa.RecordBatch.from_arrays(columns, names=["n", "text", "_dead", "_raw"])


@pytest.mark.parametrize("place", [0, 1, 6, 7])
def test_only_the_row_that_does_not_fit_is_dead(place):
    texts = ["small"] * 8
    texts[place] = noise(40_000)
    good, dead = split_dead(mark_oversize(batch(texts), SCHEMA, 10_000), SCHEMA)
    assert good["n"].to_pylist() == [n for n in range(8) if n != place]
    (row,) = dead.to_pylist()
    assert row["n"] == place
    assert "a message at most 10,000: column 'text' alone has 40,0" in row["_dead"]


def test_a_row_that_fits_once_it_is_packed_is_alive_and_so_are_many_small_ones():
    texts = ["x" * 40_000, *[noise(100)] * 500]
    good, dead = split_dead(mark_oversize(batch(texts), SCHEMA, 10_000), SCHEMA)
    assert dead is None
    assert good.num_rows == 501


def test_dead_letters_are_cut_and_split_so_that_they_fit():
    rows = batch([noise(9_000 + number) for number in range(30)])
    rows = rows.set_column(2, "_dead", pa.array(["bad"] * 30))
    packed = list(pack_dead(rows, 20_000))
    assert sum(count for count, _ in packed) == 30
    assert len(packed) > 1
    assert all(len(data) <= 20_000 for _, data in packed)
    frame = decode_frame(packed[0][1], "x")
    text = pa.decompress(frame.sections[0], frame.header["size"], "zstd", asbytes=True)
    first = json.loads(bytes(text).split(b"\n")[0])
    assert first["row"]["text"].endswith("... (9,000 in all)")


def test_impossible_times_do_not_count_for_the_delay():
    """Before, one row of the year 9999 made the mean lie ahead of the clock, and the delay read 0."""
    now = 1_800_000_000_000_000
    times = pa.array([now - 5_000_000] * 99 + [253_402_300_799_000_000, -62_135_596_800_000_000])
    assert set(possible_times(times, now).to_pylist()) == {now - 5_000_000}


@pytest.mark.nats
def test_a_row_larger_than_a_message_does_not_stop_the_stream(nats_url, tmp_path):
    plan = {
        "streams": {
            "s": {"root": "a", "source": {"format": "nats"}, "schema": {"n": "bigint", "text": "string"}},
        },
        "sites": {"a": {}},
        "subscriptions": {"all": {"stream": "s", "site": "a"}},
    }

    async def scenario():
        async with running(plan, tmp_path, nats_url) as live:
            live.readers.start(["all"])
            room = live.runtime.fabric.max_payload
            huge = pa.record_batch({"n": [1, 2, 3], "text": ["a", noise(2 * room), "c"]}, schema=SCHEMA)
            await live.commit("s", huge, 0)
            status = await live.settle()
            assert live.rows("all")["n"].to_pylist() == [1, 3]
            assert status["streams"]["s"]["dead"] == 1
            (letter,) = await read_dead_letters(live.runtime.fabric, "s")
            assert "column 'text' alone has" in json.loads(letter)["reason"]
            many = [noise(room // 3 + number) for number in range(7)]  # together larger than a message, each smaller
            await live.commit("s", pa.record_batch({"n": range(10, 17), "text": many}, schema=SCHEMA), 1)
            logs = live.runtime.fabric.logs
            last = decode_manifest((await live.runtime.fabric.last(logs.root("s"), logs.commit("s"))).data)
            assert (last.dead, last.evaluated) == (0, 7)
            assert len(last.parts) > 1

    asyncio.run(scenario())
