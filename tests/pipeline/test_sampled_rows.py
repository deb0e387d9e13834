"""Rows that are drawn of every micro-batch: each stands for as many, and large ones do not fill anything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.pipeline.sampled_rows import BATCH_BYTES, BATCH_ROWS, draw
from headgate.wire.frame import WireError
from headgate.wire.row_sample import decode_sample


@pytest.mark.parametrize("count", [1, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, 5000])
def test_the_rows_that_are_drawn_stand_for_all(count: int) -> None:
    found = decode_sample(draw(pa.RecordBatch.from_pydict({"n": np.arange(count)}), seed=count))
    assert found.rows.num_rows == min(count, BATCH_ROWS)
    assert len(set(found.rows.column("n").to_pylist())) == found.rows.num_rows
    assert found.weights.sum() == pytest.approx(count)


def test_every_row_is_as_likely_as_another() -> None:
    rows = pa.RecordBatch.from_pydict({"n": np.arange(64)})
    drawn = [each for seed in range(2000) for each in decode_sample(draw(rows, seed)).rows.column("n").to_pylist()]
    assert np.abs(np.bincount(drawn, minlength=64) / 2000 - BATCH_ROWS / 64).max() < 0.05


def test_of_large_rows_fewer_are_drawn_and_of_none_nothing() -> None:
    large = pa.RecordBatch.from_pydict({"text": ["x" * (BATCH_BYTES // 5)] * 100})
    assert decode_sample(draw(large, 1)).rows.num_rows == 4
    assert draw(pa.RecordBatch.from_pydict({"text": ["x" * BATCH_BYTES] * 100}), 1) == b""
    assert draw(large.slice(0, 0), 1) == b""
    with pytest.raises(WireError, match="no sample of rows"):
        decode_sample(b"HGS")
