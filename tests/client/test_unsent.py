"""What a sender gives up is in the stream's ledger, and every subscriber is told at its place in the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.live import running, until

from headgate.cli.status_sheets import differences, error_lines
from headgate.client.entrance import Entrance
from headgate.client.sender import Sender
from headgate.fabric import Fabric
from headgate.reduction import Digest
from headgate.relay.root import commit_of
from headgate.wire.block import Block, concat
from headgate.wire.ledger import Account, Tally
from headgate.wire.manifest import Manifest, PartRef, decode_manifest, encode_manifest
from headgate.wire.message import decode_block, encode_block, encode_json
from headgate.wire.sums import Matched

SCHEMA = pa.schema([("n", pa.int64())])
NOTHING = np.zeros(0, np.uint64)
DOCUMENT: dict[str, Any] = {
    "streams": {"readings": {"root": "hub", "schema": {"n": "bigint"}, "source": {"format": "nats"}}},
    "sites": {"hub": {}, "leaf": {}},
    "subscriptions": {
        "near": {"site": "hub", "stream": "readings"},
        "far": {"site": "leaf", "stream": "readings", "where": "n % 2 = 0", "format": "json"},
    },
}


def _manifest(batch: int, after: int, rows: int, **told: Any) -> Manifest:
    parts = (PartRef(0, rows, 0),) if rows else ()
    return Manifest("s", "l", batch, 1, after, parts, NOTHING, NOTHING, **told)


def _block(manifest: Manifest) -> Block:
    seqs = np.arange(manifest.after + 1, manifest.upto + 1, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(seqs.astype(np.int64))], schema=SCHEMA)
    return Block("s", manifest.after, manifest.upto, (commit_of(manifest),), seqs, rows)


def test_a_declaration_reaches_the_tally_through_blocks_that_are_joined_and_cut() -> None:
    first = Digest(3, {"every": 3}, 1, 5)
    silent = _manifest(0, 0, 0, unsent=first)
    second = _manifest(1, 0, 10, unsent=Digest(2, {"expired": 2}, 6, 7), untold=silent.told)
    third = _manifest(2, 10, 10)
    assert decode_manifest(encode_manifest(second)).told == second.told
    matched = Matched("s")
    for manifest in (silent, second, third):
        matched.add(manifest, {})
    assert matched.unsent == {"every": 3, "expired": 2}
    assert matched.rows_in == 20, "what was never sent is no row of the stream"
    assert Matched.decode(matched.encode(), matched.stream).unsent == matched.unsent
    joined = concat([_block(second), _block(third)])
    for encode in (encode_block, encode_json):
        account = Account(Tally(1))
        whole = decode_block(encode(joined), SCHEMA)
        for number, piece in enumerate((whole.until(4), whole.since(4).until(10), whole.since(10))):
            account.add(piece, number, 0)
        assert account.tally.unsent == {"every": 3, "expired": 2}
        assert Tally.decode(account.tally.encode()).unsent == account.tally.unsent
        assert whole.unsent == first.merge(Digest(2, {"expired": 2}, 6, 7))


class _Away(Fabric):
    """A connection that seems to be lost while `away`."""

    away = True

    @property
    def connected(self) -> bool:
        return not self.away and super().connected


def _expired(sender: Sender) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        return sender.report().expired

    return count


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.nats
def test_every_subscriber_hears_what_a_sender_gave_up(spark: Any, nats_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(DOCUMENT, tmp_path, nats_url, spark) as live:
            live.readers.start(list(DOCUMENT["subscriptions"]))
            stream = live.runtime.catalog.snapshot().deployment.streams["readings"]
            policy = {"levels": [{"every": 2}], "digest": [{"max": "n"}]}
            async with await _Away.connect(nats_url, live.address.logs) as fabric:
                async with Sender(Entrance.at_home(fabric, stream.name), stream, policy, max_rows=100) as sender:
                    sender.publish([{"n": number} for number in range(1, 161)])
                    fabric.away = False
                    assert await sender.flush(20)
                lost = sum(sender.report().reduced.values())
                assert 0 < lost == sender.report().declared
                await live.run_queries()
                await live.settle()
                fabric.away = True
                async with Sender(Entrance.at_home(fabric, stream.name), stream, expires_s=0.01) as sender:
                    sender.publish([{"n": 1000}])
                    await until(_expired(sender))
                    fabric.away = False
                    assert await sender.flush(20)
                await live.run_queries()  # a batch without rows: subscribers hear of it with the next one
                status = await live.runtime.status()
                assert status["streams"]["readings"]["unsent"] == {"every": lost, "expired": 1}
                async with Sender(Entrance.at_home(fabric, stream.name), stream) as sender:
                    sender.publish([{"n": 2000}])
                    assert await sender.flush(20)
            await live.run_queries()
            status = await live.settle()
            assert differences(status) == []
            (line,) = error_lines(status)
            assert line == f"stream readings: {lost + 1} rows given up by their senders (every {lost}, expired 1)"
            for name in DOCUMENT["subscriptions"]:
                told = [each for each in live.readers.deliveries[name] if each.unsent]
                assert [dict(each.unsent) for each in told] == [{"every": lost}, {"expired": 1}]
                assert told[0].unsent_digest["max(n)"] <= 160
                assert 2000 in told[1].rows.column("n").to_pylist()
                assert told[0].upto < told[1].upto

    asyncio.run(run())
