"""A message that is larger than the server takes: it is cut, and one row that does not fit is declared, never lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.relay.output import OVERSIZE, Output, QueueLimits
from tests.client.helpers import rows
from tests.live import running, small
from tests.relay.test_bounds import SCHEMA, block
from tests.relay.world import receiver


def _output(count: int) -> tuple[Output, int]:
    target = replace(receiver(1), schema=SCHEMA)
    output = Output(QueueLimits(linger_s=0.0, idle_s=0.0))
    output.offer(replace(block(1, count, [1]), classes=None), target, 0.0)
    return output, target.id


def test_a_message_that_is_too_large_is_cut_in_halves_until_it_fits() -> None:
    output, _ = _output(40)
    sizes = []
    for _ in range(3):
        message = output.next_message(1.0, 1000)
        assert message is not None
        sizes.append(len(message.seqs))
        output.too_large()
    assert sizes == [40, 20, 10]
    seqs: list[int] = []
    for sequence in range(1, 20):
        message = output.next_message(1.0, 1000)
        if message is None:
            break
        seqs += message.seqs.tolist()
        output.published(sequence)
    assert seqs == list(range(1, 41))
    assert output.reduced == 0


def test_a_limit_of_the_server_is_not_run_into_with_every_second_message() -> None:
    output, _ = _output(400)
    taken, refused = 0, 0
    for sequence in range(1, 400):
        message = output.next_message(1.0, 1000)
        if message is None:
            break
        if len(message.seqs) > 11:
            output.too_large()
            refused += 1
        else:
            output.published(sequence)
            taken += 1
    assert output.coverage == 400
    assert refused < taken / 2


def test_a_row_that_fits_no_message_is_declared_and_the_rest_goes_on() -> None:
    output, identity = _output(3)
    given_up, seqs = 0, []
    for sequence in range(1, 20):
        message = output.next_message(1.0, 1000)
        if message is None:
            break
        if 2 in message.seqs.tolist():
            output.too_large()
            continue
        seqs += message.seqs.tolist()
        given_up += message.declared.get(identity, {}).get(OVERSIZE, 0)
        output.published(sequence)
    assert (seqs, given_up, output.coverage) == ([1, 3], 1, 3)


@pytest.mark.nats
def test_a_row_that_is_too_large_as_json_stops_nobody(tmp_path: Path, nats_url: str) -> None:
    document = small(10, plain={"site": "leaf"}, text={"site": "leaf", "format": "json"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            batch = rows(0, 6)
            names = batch.column("vehicle").to_pylist()
            names[2] = "\x01" * 1_500_000  # six characters each in JSON
            index = batch.schema.get_field_index("vehicle")
            live.readers.start(["plain", "text"])
            await live.commit("fleet", batch.set_column(index, "vehicle", pa.array(names)), 0)
            status = await live.settle()
            assert live.seqs("plain") == [1, 2, 3, 4, 5, 6]
            assert live.seqs("text") == [1, 2, 4, 5, 6]
            assert status["subscriptions"]["text"]["reduced_by"] == {OVERSIZE: 1}
            assert status["subscriptions"]["text"]["difference"] == 0

    asyncio.run(run())
