from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.wire.frame import WireError, decode_frame, encode_frame


def test_gives_back_what_was_written() -> None:
    frame = decode_frame(encode_frame("b", {"a": [1, None]}, [b"", b"xyz"]), "b")
    assert frame.header == {"a": [1, None]}
    assert [bytes(section) for section in frame.sections] == [b"", b"xyz"]


@given(st.binary(max_size=64))
def test_refuses_any_other_bytes(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_frame(data)


@given(st.data())
def test_finds_every_changed_or_missing_byte(data: st.DataObject) -> None:
    whole = encode_frame("m", {"batch": 7}, [b"some section", b"another"])
    place = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(whole)
    changed[place] ^= flip
    with pytest.raises(WireError):
        decode_frame(bytes(changed), "m")
    with pytest.raises(WireError):
        decode_frame(whole[:place], "m")


def test_names_the_kind_that_was_expected() -> None:
    with pytest.raises(WireError, match="kind 'p', expected 'm'"):
        decode_frame(encode_frame("p", {}), "m")


def test_names_the_format_of_a_newer_program() -> None:
    newer = bytearray(encode_frame("p", {}))
    newer[2] = 9
    with pytest.raises(WireError, match="format 9"):
        decode_frame(bytes(newer))
