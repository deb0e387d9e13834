from __future__ import annotations

import contextlib
import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.wire.frame import WireError
from headgate.wire.rows import decode_rows, encode_rows

UTC = dt.UTC
_scalars: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.string(), st.text(max_size=300)),
    (pa.binary(), st.binary(max_size=20)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
]


def _nested(kind: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    arrow, values = kind
    maybe = st.none() | values
    pair = st.fixed_dictionaries({"a": maybe, "b": st.text(max_size=3)})
    items = st.dictionaries(st.text(max_size=3), maybe, max_size=3).map(lambda d: list(d.items()))
    return st.sampled_from(
        [
            (arrow, maybe),
            (pa.list_(pa.field("element", arrow)), st.none() | st.lists(maybe, max_size=4)),
            (pa.struct([("a", arrow), ("b", pa.string())]), st.none() | pair),
            (pa.map_(pa.string(), arrow), st.none() | items),
        ]
    )


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    columns = draw(st.lists(st.sampled_from(_scalars).flatmap(_nested), min_size=1, max_size=4))
    count = draw(st.integers(0, 20))
    arrays = [pa.array([draw(values) for _ in range(count)], type=kind) for kind, values in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(batches(), st.data())
def test_any_slice_of_any_batch_comes_back(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    piece = batch.slice(start, data.draw(st.integers(0, batch.num_rows - start)))
    found = decode_rows(encode_rows(piece), batch.schema, piece.num_rows)
    found.validate(full=True)
    assert found.equals(piece)


def test_large_batches_are_compressed_and_come_back() -> None:
    batch = pa.RecordBatch.from_pydict({"x": list(range(10_000)), "s": ["same text"] * 10_000})
    data = encode_rows(batch)
    assert len(data) < batch.nbytes / 3
    assert decode_rows(data, batch.schema, 10_000).equals(batch)


def test_one_row_costs_little_more_than_its_values() -> None:
    row = {f"c{i}": float(i) for i in range(9)} | {"name": "abc"}
    assert len(encode_rows(pa.RecordBatch.from_pylist([row]))) <= 9 * 8 + 3 + 10 + 2


@given(st.binary(max_size=60), st.integers(0, 50))
def test_hostile_bytes_are_refused(data: bytes, count: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.string())])
    with contextlib.suppress(WireError, pa.ArrowInvalid):
        decode_rows(data, schema, count).validate(full=True)


def test_bytes_left_over_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2]})
    with pytest.raises(WireError, match="more than their schema explains"):
        decode_rows(encode_rows(batch) + b"!", batch.schema, 2)
    with pytest.raises(WireError, match="end before"):
        decode_rows(encode_rows(batch), batch.schema, 3)


def test_decimals_and_times_are_exact() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"d": decimal.Decimal("123.456"), "t": dt.datetime(2020, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)}]
    )
    assert decode_rows(encode_rows(batch), batch.schema, 1).equals(batch)
