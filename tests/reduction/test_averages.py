"""Averages that hold always, against plain loops: late rows, keys, nulls, and any cut into messages."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.reduction.constant_thinning import Thinner, Thinning

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("unit", pa.string()), ("at", TIME), ("v", pa.float64()), ("n", pa.int8()), ("zone", pa.string())])
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(-25, 60)),
    st.one_of(st.none(), st.integers(-9, 9).map(float)),
    st.one_of(st.none(), st.integers(-128, 127)),
    st.sampled_from(["x", "y", None]),
)
AVERAGE = Thinning(key=("unit",), event_time="at", average_s=10.0)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    times = [None if at is None else at * 1_000_000 for at in columns[1]]
    values = [columns[0], times, *columns[2:]]
    return pa.RecordBatch.from_arrays([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def expected(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What is delivered of rows in their order."""
    found: list[tuple[Any, ...]] = []
    windows: dict[Any, tuple[int, list[tuple[Any, ...]]]] = {}
    first = next((at // 10 for _, at, *_ in rows if at is not None), 0)
    for row in rows:
        unit, at = row[:2]
        if at is None:
            found.append(row)
            continue
        number, held = windows.get(unit, (None, []))
        if number is None or at // 10 > number:
            if number is not None and number > first:
                v, n = ([each[place] for each in held if each[place] is not None] for place in (2, 3))
                mean = round(sum(n) / len(n)) if n else None
                found.append((unit, number * 10, sum(v) / len(v) if v else None, mean, held[-1][4]))
            windows[unit] = (at // 10, [row])
        elif at // 10 == number:
            held.append(row)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_one_row_of_each_key_and_window(rows: list[tuple[Any, ...]], cuts: list[int]) -> None:
    thinner, found = Thinner(AVERAGE), list[tuple[Any, ...]]()
    edges = sorted({0, *(min(cut, len(rows)) for cut in cuts), len(rows)})
    for start, stop in pairwise(edges):
        mask, means, gone = thinner.reduce(batch(rows[start:stop]), np.zeros(stop - start))
        assert means is not None
        assert means.schema == SCHEMA
        assert (means.num_rows, sum(gone.values())) == (mask.sum(), (~mask).sum())
        for row in means.to_pylist():
            at = None if row["at"] is None else round(row["at"].timestamp())
            found.append((row["unit"], at, row["v"], row["n"], row["zone"]))
    wanted = expected(rows)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one[:2], one[3:]) == (other[:2], other[3:])
        assert one[2] == other[2] or math.isclose(one[2], other[2])
