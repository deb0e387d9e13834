"""The client's local buffer: order, exact counts, callbacks, a change of columns, and the end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.client.buffer import Buffered, LocalBuffer
from headgate.client.delivery import Delivery


def delivery(first: int, last: int, *, lost: int = 0, name: str = "x") -> Delivery:
    seqs = np.arange(first, last + 1, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(seqs.astype(np.float64))], names=[name])
    return Delivery(rows, seqs, first - 1, last, {"random": lost} if lost else {}, "")


async def inbox(*deliveries: Delivery) -> AsyncIterator[Delivery]:
    for each in deliveries:
        yield each
        await asyncio.sleep(0)


async def collect(buffer: LocalBuffer, pauses: int = 0) -> list[Buffered]:
    found = []
    async for each in buffer:
        found.append(each)
        for _ in range(pauses):
            await asyncio.sleep(0)
    return found


def test_a_fast_consumer_gets_everything_in_order() -> None:
    found = asyncio.run(collect(LocalBuffer(inbox(delivery(1, 5), delivery(6, 9, lost=2)))))
    assert [seq for each in found for seq in each.seqs.tolist()] == list(range(1, 10))
    assert sum(count for each in found for count in each.given_up.values()) == 2
    assert not any(each.local for each in found)


def test_a_slow_consumer_gets_what_its_policy_keeps_and_is_told() -> None:
    told: list[dict[str, int]] = []
    levels: list[tuple[int, int]] = []
    buffer = LocalBuffer(
        inbox(*(delivery(10 * n + 1, 10 * n + 10, lost=1) for n in range(20))),
        {"levels": [{"every": 2}], "digest": [{"max": "x"}]},
        max_rows=25,
        batch_rows=5,
        on_digest=lambda reasons, digest: told.append(dict(reasons)),
        on_level=lambda before, after: levels.append((before, after)),
    )
    found = asyncio.run(collect(buffer, pauses=3))
    assert found[0].after == 0
    assert all(one.upto == other.after for one, other in itertools.pairwise(found))
    seqs = [seq for each in found for seq in each.seqs.tolist()]
    assert seqs == sorted(seqs)
    lost = sum(sum(each.local.values()) for each in found)
    assert lost > 0
    assert len(seqs) + lost == 200
    assert sum(sum(each.given_up.values()) for each in found) == 20
    assert sum(sum(each.values()) for each in told) == lost
    assert levels[0][0] == 0
    assert all("max(x)" in each.digest for each in found if each.local)


def test_other_columns_start_behind_the_old_ones() -> None:
    found = asyncio.run(collect(LocalBuffer(inbox(delivery(1, 4), delivery(5, 6, name="y"), delivery(7, 8, name="y")))))
    assert found[0].rows.schema.names == ["x"]
    assert found[0].seqs.tolist() == [1, 2, 3, 4]
    assert [seq for each in found for seq in each.seqs.tolist()] == list(range(1, 9))


def test_an_error_of_the_inbox_reaches_the_consumer() -> None:
    async def broken() -> AsyncIterator[Delivery]:
        yield delivery(1, 3)
        raise ConnectionError("gone")

    seen: list[Any] = []

    async def read() -> None:
        async for each in LocalBuffer(broken()):
            seen.extend(each.seqs.tolist())

    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(read())
    assert seen == [1, 2, 3]
