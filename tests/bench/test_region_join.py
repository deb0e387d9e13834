"""The regions of the benchmark: the index against Spark's joins, and against every box compared with every point."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate_studies.bench.grid_regions import boxes_of, compare, index_of


@pytest.mark.long
def test_points_find_exactly_their_boxes():
    rng = np.random.default_rng(5)
    bounds = boxes_of(600, rng)
    x, y = rng.random(500), rng.random(500)
    x[:100], y[:100] = bounds[:100, 0], bounds[:100, 3]  # on the lower and on the upper border
    found = index_of(bounds).match(pa.record_batch({"x": x, "y": y}))
    inside = (x[:, None] >= bounds[:, 0]) & (x[:, None] < bounds[:, 1])
    inside &= (y[:, None] >= bounds[:, 2]) & (y[:, None] < bounds[:, 3])
    assert [found.row(i).tolist() for i in range(500)] == [np.flatnonzero(row).tolist() for row in inside]


@pytest.mark.long
@pytest.mark.spark
def test_spark_joins_agree_with_the_index(spark):
    figures = compare(300, 400, 0, 3, warm=0)
    assert figures["mismatches"] == 0
    assert figures["matches_per_point_400"] > 0
