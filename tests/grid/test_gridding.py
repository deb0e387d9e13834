"""Stations become a complete grid; regions computed apart show no seam; what no station reaches is declared."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.grid import GridError, parse_layout
from headgate.grid.gridding import interpolate, tile_window, tiles_near
from headgate.model import Schema

SCHEMA = Schema.of({"lon": "double", "lat": "double", "step": "bigint", "t": "double"})
GRID = {
    "x": {"column": "lon", "size": 20, "bounds": [0, 20], "wrap": True},
    "y": {"column": "lat", "size": 11, "bounds": [0, 11]},
    "time": {"tick": "step"},
}
LAYOUT = parse_layout(GRID, SCHEMA)


def stations(count, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 20, count), rng.uniform(0, 11, count)
    x[0], y[0] = 3.5, 2.5
    return x, y, np.stack([x + y, rng.normal(size=count)])


def test_values_are_the_weighted_means_of_the_stations_in_reach():
    x, y, values = stations(25, 1)
    values[1, 3] = np.nan
    found, used = interpolate(LAYOUT, x, y, values, 2.5)
    for row, cy in enumerate(LAYOUT.y.centres(range(11))):
        for column, cx in enumerate(LAYOUT.x.centres(range(20))):
            across = np.abs(x - cx)
            square = np.minimum(across, 20 - across) ** 2 + (y - cy) ** 2
            for v in range(2):
                near = (square <= 2.5**2) & np.isfinite(values[v])
                if (square[near] == 0).any():
                    assert found[v, row, column] == values[v][near][square[near] == 0][0]
                elif near.any():
                    expected = (values[v][near] / square[near]).sum() / (1 / square[near]).sum()
                    assert found[v, row, column] == pytest.approx(expected)
                    assert used[v, row, column] == near.sum()
                else:
                    assert np.isnan(found[v, row, column])
                    assert used[v, row, column] == 0


@pytest.mark.parametrize("tiles", [1, 2, 3])
def test_regions_with_their_neighbours_border_show_no_seam(tiles):
    x, y, values = stations(40, 2)
    whole, _ = interpolate(LAYOUT, x, y, values, 3.0)
    rows, near = tiles_near(LAYOUT, x, y, tiles, 3.0)
    for tile in range(tiles * tiles):
        left, right, bottom, top = window = tile_window(LAYOUT, tiles, tile)
        mine = rows[near == tile]
        part, _ = interpolate(LAYOUT, x[mine], y[mine], values[:, mine], 3.0, window)
        assert np.array_equal(part, whole[:, bottom:top, left:right], equal_nan=True)


@pytest.mark.spark
def test_the_spark_stage_gives_every_cell_of_every_step(spark):
    import pandas as pd

    from headgate.pipeline.gridding import gridding

    x, y, values = stations(30, 3)
    step = np.arange(30) % 2
    y[step == 1] /= 4  # no station in the upper regions at step 1
    values[0] = x + y
    frame = pd.DataFrame({"lon": x, "lat": y, "step": step, "t": values[0]})
    table = gridding(spark.createDataFrame(frame), LAYOUT, ("t",), 2.0).toPandas()
    assert len(table) == 2 * 20 * 11
    assert table["t"].isna().equals(table["stations"] == 0)
    for step in (0, 1):
        mine = frame["step"] == step
        expected, _ = interpolate(LAYOUT, x[mine], y[mine], values[:1, mine], 2.0)
        found = table[table["step"] == step].sort_values(["lat", "lon"])["t"].to_numpy(dtype=float)
        assert np.array_equal(found, expected[0].ravel(), equal_nan=True)
    with pytest.raises(GridError, match="is an axis"):
        gridding(spark.createDataFrame(frame), LAYOUT, ("lon",), 2.0)
