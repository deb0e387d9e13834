"""Planted faults: a relay that drops, doubles or misroutes a row is caught; a lost message is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.live import running, small, until

from headgate.cli.status_sheets import differences
from headgate.fabric import Crew, FabricError
from headgate.pipeline.sources import generate
from headgate.relay.core import Key, Send
from headgate.relay.node import RelayNode
from headgate.wire.block import Block
from headgate.wire.message import block_range

pytestmark = pytest.mark.nats

Plant = Callable[[RelayNode, Key, Block], Block]


def _drop(_: RelayNode, key: Key, block: Block) -> Block:
    return block.take(np.arange(1, len(block.seqs))) if key.subscription is not None else block


def _double(_: RelayNode, key: Key, block: Block) -> Block:
    twice = np.concatenate((np.zeros(1, dtype=np.int64), np.arange(len(block.seqs))))
    return block.take(twice) if key.subscription is not None else block


class Outgoing(RelayNode):
    """A relay whose messages can be changed just before they are encoded."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        sending: Any = self.machine._sending
        sound = sending._encode

        async def encode(send: Send) -> Any:
            return await sound(replace(send, block=self.outgoing(send.key, send.block)))

        sending._encode = encode

    def outgoing(self, key: Key, block: Block) -> Block:
        raise AssertionError


def _faulty(plant: Plant) -> type[RelayNode]:
    class FaultyNode(Outgoing):
        planted = False

        def outgoing(self, key: Key, block: Block) -> Block:
            if self.site != "leaf" or FaultyNode.planted or not len(block.seqs):
                return block
            FaultyNode.planted = True
            return plant(self, key, block)

    return FaultyNode


async def _run(directory: Path, nats_url: str) -> list[str]:
    document = small(200, one={"site": "leaf"}, other={"site": "mid", "where": "speed > 30"})
    return await _deliver(document, directory, nats_url)


async def _deliver(document: dict[str, Any], directory: Path, nats_url: str) -> list[str]:
    async with running(document, directory, nats_url) as live:
        live.readers.start(list(document["subscriptions"]))
        await live.commit("fleet", generate("fleet", 3, 0, 200), 0)
        return sorted(differences(await live.settle()))


@pytest.mark.parametrize(("plant", "said"), [(_drop, "1 rows missing"), (_double, "1 rows too many")])
def test_a_planted_fault_is_a_difference(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch, plant: Plant, said: str
) -> None:
    monkeypatch.setattr("headgate.service.relays.RelayNode", _faulty(plant))
    assert asyncio.run(_run(tmp_path, nats_url)) == [f"subscription one: {said}"]


def test_a_row_sent_to_the_wrong_subscriber_is_two_differences(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Misrouting(Outgoing):
        """Takes a row that one subscriber should have got and gives it to its neighbour."""

        stolen: Any = None

        def outgoing(self, key: Key, block: Block) -> Block:
            if self.site != "leaf" or not len(block.seqs):
                return block
            if Misrouting.stolen is None:
                Misrouting.stolen = (key, block.rows.slice(0, 1), block.seqs[:1])
                return block.take(np.arange(1, len(block.seqs)))
            if Misrouting.stolen and Misrouting.stolen[0] != key:
                _, row, seq = Misrouting.stolen
                Misrouting.stolen = ()
                rows = type(row).from_arrays(
                    [pa.concat_arrays([a, b]) for a, b in zip(row.columns, block.rows.columns, strict=True)],
                    schema=row.schema,
                )
                return replace(block, rows=rows, seqs=np.concatenate((seq, block.seqs)))
            return block

    monkeypatch.setattr("headgate.service.relays.RelayNode", Misrouting)

    document = small(200, one={"site": "leaf"}, two={"site": "leaf", "where": "speed > 1000 or fuel >= 0"})
    found = asyncio.run(_deliver(document, tmp_path, nats_url))
    assert sorted(line.split(": ")[1] for line in found) == ["1 rows missing", "1 rows too many"]


def test_a_sound_relay_has_no_difference(tmp_path: Path, nats_url: str) -> None:
    assert asyncio.run(_run(tmp_path, nats_url)) == []


def test_messages_that_vanish_from_a_link_and_an_inbox_are_repaired_from_above(tmp_path: Path, nats_url: str) -> None:
    document = small(2000, all={"site": "leaf"})
    # A thin link, so that the rows travel in several messages.
    document["sites"]["mid"]["upload"] = "400 kbit/s"

    async def run() -> None:
        async with running(document, tmp_path, nats_url, relays=False) as live:
            for batch in range(4):
                await live.commit("fleet", generate("fleet", 3, 500 * batch, 500 * batch + 500), batch)
            fabric, logs = live.client.fabric, live.client.fabric.logs
            link, inbox = logs.link("mid", "leaf", "fleet"), logs.delivery("leaf", 1)
            node = RelayNode(fabric, "leaf")
            async with Crew() as crew:
                crew.spawn(RelayNode(fabric, "root").run())
                crew.spawn(RelayNode(fabric, "mid").run())
                await until(lambda: _covers(fabric, logs.site("leaf"), link, 2000))
                await _delete_second(fabric, logs.site("leaf"), link)
                crew.spawn(node.run())
                await until(lambda: _covers(fabric, logs.inbox("leaf"), inbox, 2000))
                await _delete_second(fabric, logs.inbox("leaf"), inbox, at_least=2)
                live.readers.start(["all"])
                await live.settle()
            assert node.machine.state.totals.repairs
            assert live.seqs("all") == list(range(1, 2001))

    asyncio.run(run())


async def _delete_second(fabric: Any, log: Any, subject: str, at_least: int = 3) -> None:
    """Take a message out of the middle of a log, behind everybody's back."""
    sequences = [each.sequence for each in await fabric.read(log, subject, 0)]
    assert len(sequences) >= at_least
    if len(sequences) > 2:
        await fabric._js.delete_msg(log.name, sequences[1])


async def _covers(fabric: Any, log: Any, subject: str, upto: int) -> bool:
    try:
        stored = await fabric.last(log, subject)
    except FabricError:
        return False
    return stored is not None and block_range(stored.data)[1] >= upto
