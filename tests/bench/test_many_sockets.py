"""Readers of `headgate bench many`: whatever way bytes are cut, they note the same rows, and a wrong row is seen."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from headgate_studies.bench.many_deployment import KINDS, WIDTH, rows_of
from headgate_studies.bench.many_gateway import ReaderLoad, _compared
from headgate_studies.bench.many_sockets import Got, ReaderPlace, ReaderWish, SocketReader

SSE = (
    b"HTTP/1.1 200 OK\r\n\r\nc\r\nretry: 1000\n\n\r\n"
    b'5c\r\nevent: rows\ndata: {"after":0,"upto":9,"rows":[{"_seq":3,"n":2,"kind":8},{"_seq":8,"n":7}]}\nid: x\n\n\r\n'
    b'40\r\nevent: rows\ndata: {"after":9,"upto":12,"rows":[{"_seq":12,"n":11}]}\nid: y\n\n\r\n'
)
NATS = (
    b'INFO {"x":1}\r\nPONG\r\nMSG k.1 1 15\r\n{"n":2,"kind":8}\r\n'.replace(b" 15\r\n", b" 16\r\n")
    + b'MSG k.1 1 7\r\n{"n":7}\r\nMSG k.1 1 8\r\n{"n":11}\r\n'
)
MQTT = (
    b"\x20\x02\x00\x00\x90\x03\x00\x01\x00"
    b'\x30\x15\x00\x03k/1{"n":2,"kind":8}'
    b'\x30\x0c\x00\x03k/1{"n":7}\x30\x0d\x00\x03k/1{"n":11}'
)


class Unwritten(asyncio.Transport):
    """A connection that takes everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
@pytest.mark.parametrize(("face", "data"), [("sse", SSE), ("nats", NATS), ("mqtt", MQTT)])
def test_rows_are_noted_however_bytes_are_cut(face: str, data: bytes, cut: int) -> None:
    async def read() -> SocketReader:
        reader = SocketReader(ReaderPlace(face, 1), ReaderWish(0, "k"))
        reader.connection_made(Unwritten())
        for start in range(0, len(data), cut):
            reader.data_received(data[start : start + cut])
        assert reader.opened.done()
        return reader

    reader = asyncio.run(read())
    assert reader.rows.tolist() == [2, 7, 11]
    assert len(reader.times) == 3
    assert reader.bytes == len(data)


def test_a_row_too_few_too_many_or_twice_is_a_mismatch() -> None:
    rows = rows_of(100, 1100)
    pairs = list(zip(rows.column("n").to_pylist(), rows.column("kind").to_pylist(), strict=True))

    def got(number: int) -> list[int]:
        low = number % KINDS
        return [50, *(row for row, kind in pairs if low <= kind < low + WIDTH), 1100]

    def mismatches(wrong: list[int]) -> int:
        found: dict[int, Got] = {
            number: (np.array(wrong if number == 3 else got(number), dtype=np.int64), np.zeros(0))
            for number in range(20)
        }
        return int(_compared(found, range(100, 1100), ReaderLoad(20, 1.0, 1.0, 10))["reader_mismatches"])

    right = got(3)
    assert len(right) > 4
    assert mismatches(right) == 0
    assert mismatches(right[:2] + right[3:]) == 1
    assert mismatches([*right[:2], *right[1:]]) == 1
    assert mismatches([*right[:1], right[2], right[1], *right[3:]]) == 1
