from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.wire.frame import WireError
from headgate.wire.integers import (
    decode_lists,
    decode_sorted,
    decode_uints,
    encode_lists,
    encode_sorted,
    encode_uints,
)

uints = st.lists(st.integers(0, 2**64 - 1), max_size=200)
id_lists = st.lists(st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=20), max_size=40)


@given(uints)
def test_uints_come_back(values: list[int]) -> None:
    array = np.array(values, dtype=np.uint64)
    assert decode_uints(encode_uints(array), len(values)).tolist() == values


@given(uints)
def test_sorted_come_back(values: list[int]) -> None:
    array = np.array(sorted(values), dtype=np.uint64)
    assert decode_sorted(encode_sorted(array), len(values)).tolist() == sorted(values)


@given(id_lists)
def test_lists_come_back(lists: list[list[int]]) -> None:
    ordered = [sorted(each) for each in lists]
    offsets = np.cumsum([0, *map(len, ordered)]).astype(np.int64)
    ids = np.array([each for row in ordered for each in row], dtype=np.uint32)
    found_offsets, found = decode_lists(*encode_lists(offsets, ids), len(lists), len(ids))
    assert found_offsets.tolist() == offsets.tolist()
    assert found.tolist() == ids.tolist()


@given(st.binary(min_size=1, max_size=40), st.integers(0, 1000))
def test_hostile_bytes_are_refused_or_give_the_count(data: bytes, count: int) -> None:
    with contextlib.suppress(WireError):
        assert len(decode_uints(data, count)) == count


def test_a_wrong_total_is_refused() -> None:
    lengths, ids = encode_lists(np.array([0, 2], dtype=np.int64), np.array([1, 2], dtype=np.uint32))
    with pytest.raises(WireError, match="expected 3"):
        decode_lists(lengths, ids, 1, 3)


def test_class_lists_are_smaller_than_their_raw_form() -> None:
    rng = np.random.default_rng(5)
    rows = [np.sort(rng.choice(500_000, 44, replace=False)) for _ in range(500)]
    offsets = np.arange(0, 44 * 501, 44, dtype=np.int64)
    lengths, ids = encode_lists(offsets, np.concatenate(rows).astype(np.uint32))
    assert len(lengths) + len(ids) < 0.55 * 4 * 44 * 500
