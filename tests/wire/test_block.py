from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching import ClassLists
from headgate.wire.block import Block, Commit, concat
from headgate.wire.message import block_range, block_version, decode_block, encode_block, encode_json

SCHEMA = pa.schema([("x", pa.int64())])


@st.composite
def blocks(draw: st.DrawFn, with_classes: bool = True) -> Block:
    after = draw(st.integers(0, 1000))
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    ends = np.cumsum([after, *sizes]).tolist()
    commits = tuple(Commit(a, b, 3, 1000 + i, 5, i % 2) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    kept = sorted(draw(st.sets(st.integers(after + 1, ends[-1]), max_size=ends[-1] - after)))
    seqs = np.array(kept, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(kept, type=pa.int64())], schema=SCHEMA)
    lists = ClassLists.of([sorted({s % 3, s % 5}) for s in kept]) if with_classes else None
    declared = draw(st.dictionaries(st.integers(1, 5), st.just({"overflow": 2}), max_size=2))
    return Block("s", after, ends[-1], commits, seqs, rows, lists, declared)


def _same(one: Block, other: Block) -> None:
    assert (one.after, one.upto, one.declared) == (other.after, other.upto, other.declared)
    assert one.seqs.tolist() == other.seqs.tolist()
    assert one.rows.equals(other.rows)
    if one.classes is not None and len(one.seqs):
        assert other.classes is not None
        assert one.classes.ids.tolist() == other.classes.ids.tolist()


@given(blocks())
def test_a_block_comes_back_from_bytes(block: Block) -> None:
    data = encode_block(block)
    _same(block, decode_block(data, SCHEMA))
    assert block_version(data) == 3
    assert block_range(data) == (block.after, block.upto)
    assert decode_block(data, SCHEMA).commits == block.commits


@given(blocks(with_classes=False))
def test_a_block_comes_back_from_json(block: Block) -> None:
    _same(block, decode_block(encode_json(block), SCHEMA))


def test_json_has_no_bare_nan() -> None:
    schema = pa.schema([("x", pa.float64()), ("l", pa.list_(pa.float64()))])
    rows = pa.RecordBatch.from_pylist([{"x": float("nan"), "l": [float("inf"), 1.0]}], schema=schema)
    block = Block("s", 0, 1, (Commit(0, 1, 3, 0),), np.array([1], dtype=np.uint64), rows)
    data = encode_json(block)
    json.loads(data, parse_constant=lambda word: pytest.fail(word))
    found = decode_block(data, schema).rows.to_pylist()[0]
    assert math.isnan(found["x"])
    assert found["l"] == [math.inf, 1.0]


@given(blocks(), st.integers(1, 30))
def test_pieces_are_adjacent_and_join_to_the_whole(block: Block, max_rows: int) -> None:
    pieces = list(block.pieces(max_rows))
    assert pieces[0].after == block.after
    assert pieces[-1].upto == block.upto
    assert all(one.upto == other.after for one, other in itertools.pairwise(pieces))
    assert all(len(piece.seqs) <= max_rows for piece in pieces)
    for piece in pieces:
        assert all(piece.after < seq <= piece.upto for seq in piece.seqs.tolist())
        assert piece.commits[0].after <= piece.after
        assert piece.commits[-1].upto >= piece.upto
    _same(concat(pieces), block)


@given(blocks(), st.data())
def test_since_keeps_exactly_what_comes_after(block: Block, data: st.DataObject) -> None:
    mark = data.draw(st.integers(block.after, block.upto - 1))
    rest = block.since(mark)
    assert (rest.after, rest.upto) == (mark, block.upto)
    assert rest.seqs.tolist() == [seq for seq in block.seqs.tolist() if seq > mark]
    assert all(commit.upto > mark for commit in rest.commits)


@given(blocks(), st.data())
def test_until_and_since_part_a_block(block: Block, data: st.DataObject) -> None:
    mark = data.draw(st.integers(block.after + 1, block.upto - 1)) if block.upto - block.after > 1 else block.upto
    first = block.until(mark)
    assert first.seqs.tolist() == [seq for seq in block.seqs.tolist() if seq <= mark]
    if mark < block.upto:
        _same(concat([first, block.since(mark)]), block)


@given(blocks())
def test_joining_keeps_every_shed_row(block: Block) -> None:
    pieces = list(block.pieces(1))
    assert sum(commit.shed for commit in concat(pieces).commits) == sum(commit.shed for commit in block.commits)


def test_blocks_that_are_not_adjacent_do_not_join() -> None:
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    none = np.zeros(0, dtype=np.uint64)
    one = Block("s", 0, 5, (Commit(0, 5, 1, 0),), none, empty)
    other = Block("s", 6, 9, (Commit(5, 9, 1, 0),), none, empty)
    with pytest.raises(ValueError, match="not adjacent"):
        concat([one, other])
