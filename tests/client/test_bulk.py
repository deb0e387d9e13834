"""Many subscriptions at once: files of them, one change for all, and a look at some of them."""

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.live import running, small

from headgate.client import ClientError
from headgate.client.bulk import read_subscriptions
from headgate.pipeline.sources import generate
from headgate.service.pages import Page
from headgate.service.status import read_status
from headgate.wire.packing import is_packed, pack_text, unpack_text

ROWS = [
    {"name": "a", "stream": "fleet", "site": "leaf", "where": "speed > $low", "context": {"low": 3}, "weight": 2.5},
    {"name": "b", "stream": "fleet", "site": "root", "select": ["vehicle", "speed"]},
]
WANTED = {
    "a": {"stream": "fleet", "site": "leaf", "where": "speed > $low", "context": {"low": 3}, "weight": 2.5},
    "b": {"stream": "fleet", "site": "root", "select": ["vehicle", "speed"]},
}
CSV = """name,stream,site,where,context,weight,select
a,fleet,leaf,speed > $low,"{""low"": 3}",2.5,
b,fleet,root,,,,"vehicle, speed"
"""


def test_a_file_of_each_format_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    (tmp_path / "s.csv").write_text(CSV)
    pyarrow.parquet.write_table(
        pa.Table.from_pylist([{**dict.fromkeys(WANTED["a"]), **row} for row in ROWS[:1]]), tmp_path / "s.parquet"
    )
    assert read_subscriptions(tmp_path / "s.jsonl") == WANTED
    assert read_subscriptions(tmp_path / "s.csv") == WANTED
    assert read_subscriptions(tmp_path / "s.parquet") == {"a": WANTED["a"]}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.txt", "", "no file of subscriptions"),
        ("s.jsonl", "{", "cannot be read"),
        ("s.jsonl", "[1]", "line 1 is no JSON object"),
        ("s.jsonl", '{"site": "leaf"}', "subscription 1 of"),
        ("s.csv", "name\na\na\n", "twice, the second time as subscription 2"),
        ("s.csv", "name\na,b\n", "more values"),
        ("s.parquet", "no", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ClientError, match=said):
        read_subscriptions(tmp_path / name)


def test_what_is_packed_is_bounded_before_it_is_allocated() -> None:
    data = b"x" * (1 << 20)
    packed = pack_text(data)
    assert is_packed(packed)
    assert unpack_text(packed, 1 << 20) == data
    with pytest.raises(ValueError, match="are taken"):
        unpack_text(packed, (1 << 20) - 1)
    bomb = packed[:3] + (1 << 30).to_bytes(4, "little") + packed[7:]
    with pytest.raises(ValueError, match="cannot hold"):
        unpack_text(bomb, 1 << 31)
    with pytest.raises(ValueError):
        unpack_text(packed[:7] + b"garbage", 1 << 20)


def test_many_are_one_revision_or_nothing_and_some_are_looked_at(nats_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(small(all={"site": "leaf"}), tmp_path, nats_url) as live:
            catalog, client = live.runtime.catalog, live.client
            before = catalog.head()
            wanted = {
                f"n{number:04d}": {"stream": "fleet", "site": "leaf", "where": f"speed > {number % 7}"}
                for number in range(300)
            }
            answer = await client.subscribe_many(wanted)
            assert answer == {"count": 300, "revision": before + 1}
            assert catalog.head() == before + 1
            snapshot = catalog.snapshot()
            assert len({snapshot.class_ids[name] for name in wanted}) == 7
            with pytest.raises(ClientError, match="n0003"):
                await client.subscribe_many({"new": wanted["n0001"], "n0003": wanted["n0003"]})
            with pytest.raises(ClientError, match="sped"):
                await client.subscribe_many({"new": {**wanted["n0001"], "where": "sped > 3"}})
            assert catalog.head() == before + 1
            await live.commit("fleet", generate("fleet", 3, 0, 50), 0)
            found = await client.control("lines", names=["n0007", "nobody"])
            while found["subscriptions"]["n0007"]["starts"] is None:
                found = await client.control("lines", names=["n0007", "nobody"])
            assert found["subscriptions"].keys() == {"n0007"}
            page = await read_status(client.fabric, client.tables, page=Page(limit=10, after="n0100"))
            assert list(page["subscriptions"]) == [f"n{number:04d}" for number in range(101, 111)]
            assert (page["next"], page["subscription_count"]) == ("n0110", 301)
            assert page["groups"]["sites"]["leaf"]["subscriptions"] == 301
            assert page["groups"]["sites"]["leaf"]["matched"] >= found["subscriptions"]["n0007"]["matched"]
            asked = await client.control("status", only={"class": snapshot.class_ids["n0002"]}, limit=5)
            assert list(asked["subscriptions"]) == [f"n{number:04d}" for number in range(2, 37, 7)]
            for wrong in ({"limit": 0}, {"limit": 1001}, {"only": {"colour": "red"}}, {"only": {"class": "x"}}):
                with pytest.raises(ClientError):
                    await client.control("status", **wrong)
            changed = await client.subscribe_many({"n0001": {**wanted["n0001"], "where": "speed > 99"}}, change=True)
            assert changed == {"count": 1, "revision": before + 2}

    asyncio.run(run())
