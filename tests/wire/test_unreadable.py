"""Messages that cannot be read are named by log, subject and sequence, whatever the decoder raises."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from headgate.wire.context import decode_context, encode_context
from headgate.wire.ledger import Tally
from headgate.wire.manifest import decode_manifest
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched
from headgate.wire.unreadable import UnreadableError, decode_message


@dataclass(frozen=True)
class Put:
    data: bytes
    sequence: int = 17
    subject: str = "hg.root.fleet.commit"


DECODERS = [decode_manifest, decode_context, Tally.decode, partial(Matched.decode, stream="s"), Snapshot.from_bytes]
JUNK = [
    b"",
    b"garbage",
    b"\xff\xfe\x00",
    b"7",
    b"[]",
    b"{}",
    b'{"a": 1}',
    b"null",
    b"HG\x01m" + b"\0" * 40,
    b"[" * 9000,
]


@pytest.mark.parametrize("reader", DECODERS)
@pytest.mark.parametrize("data", JUNK)
def test_a_message_that_a_decoder_cannot_read_is_named(reader: Any, data: bytes) -> None:
    with pytest.raises(UnreadableError) as caught:
        decode_message("HG_ROOT_fleet", Put(data), reader)
    error = caught.value
    assert (error.log, error.subject, error.sequence) == ("HG_ROOT_fleet", "hg.root.fleet.commit", 17)
    assert "message 17 of log HG_ROOT_fleet (hg.root.fleet.commit) cannot be read: " in str(error)
    assert error.cause


def test_a_flipped_bit_is_found_wherever_it_is() -> None:
    rng = random.Random(5)
    whole = encode_context({7: ({"x": 1}, {"x": 2.5})})
    for _ in range(200):
        bit = rng.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UnreadableError):
            decode_message("HG_ROOT_fleet", Put(bytes(flipped)), decode_context)


@pytest.mark.parametrize("data", [b"", b"-1", b" 1", b"1.0", b"x", b"9" * 19, "٣".encode(), b"1_0"])
def test_a_number_has_digits_only(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode_message("HG_STATE", Put(data), read_number)


def test_an_error_keeps_the_message_that_it_already_names() -> None:
    def reader(_: bytes) -> None:
        raise UnreadableError("HG_TABLES", "hg.tables.3-1", 4, "a part is gone")

    with pytest.raises(UnreadableError, match="message 4 of log HG_TABLES"):
        decode_message("HG_STATE", Put(b""), reader)
