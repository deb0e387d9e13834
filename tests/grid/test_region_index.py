"""The region index against every box compared with every point."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.bench.grid_regions import boxes_of, compare
from headgate.grid import RegionIndex


@pytest.mark.parametrize("seed", range(5))
def test_points_find_exactly_their_boxes(seed):
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([boxes_of(300, rng), np.round(rng.random((60, 4)), 1)[:, [0, 1, 2, 3]]])
    bounds = np.stack([bounds[:, :2].min(1), bounds[:, :2].max(1), bounds[:, 2:].min(1), bounds[:, 2:].max(1)], axis=1)
    index = RegionIndex.build(bounds, (0.0, 1.0), (0.0, 1.0), depth=int(rng.integers(2, 10)))
    x = np.concatenate([rng.random(300), np.round(rng.random(200), 1), [np.nan, -1.0, 2.0]])
    y = np.concatenate([rng.random(300), np.round(rng.random(200), 1), [0.5, 0.5, 0.5]])
    offsets, hits = index.match(x, y)
    found = [sorted(hits[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(x))]
    inside = (x[:, None] >= bounds[:, 0]) & (x[:, None] < bounds[:, 1])
    inside &= (y[:, None] >= bounds[:, 2]) & (y[:, None] < bounds[:, 3])
    expected = [np.flatnonzero(row).tolist() for row in inside]
    assert found == expected


@pytest.mark.spark
def test_spark_joins_agree_with_the_index(spark):
    figures = compare(300, 400, 0, 3, warm=0)
    assert figures["mismatches"] == 0
    assert figures["matches_per_point_400"] > 0
