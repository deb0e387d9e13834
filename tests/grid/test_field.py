"""A field fills in, refines exactly, and survives the way to xarray and Zarr."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.grid import Field, grid_predicate, parse_layout
from headgate.model import Schema, Source, Stream, Subscription

SCHEMA = Schema.of({"lon": "double", "lat": "double", "step": "int", "t": "double"})
GRID = {
    "x": {"column": "lon", "size": 24, "bounds": [0, 360], "wrap": True},
    "y": {"column": "lat", "size": 13, "bounds": [-90, 90]},
    "block": 8,
    "time": {"tick": "step", "block": 4},
}
LAYOUT = parse_layout(GRID, SCHEMA)
STREAM = Stream("w", SCHEMA, Source("generator"), "s", options={"grid": GRID})


def rows(steps=(0,)):
    lon, lat, step = (
        a.ravel() for a in np.meshgrid(LAYOUT.x.centres(range(24)), LAYOUT.y.centres(range(13)), np.array(steps))
    )
    value = lon + 1000 * lat + step
    return pa.record_batch({"lon": lon, "lat": lat, "step": pa.array(step, pa.int32()), "t": value})


def thinned(batch, **resolution):
    predicate = grid_predicate(Subscription("a", "w", "s", resolution=resolution), STREAM)
    return batch.filter(pa.array(predicate.evaluate(batch, {})))


def test_two_intervals_refine_to_exactly_the_finer_field():
    batch = rows()
    first, second, both = (
        thinned(batch, space="1/4"),
        thinned(batch, space=["1/4", "1/2"]),
        thinned(batch, space="1/2"),
    )
    field, finer = Field(LAYOUT, ("t",)), Field(LAYOUT, ("t",))
    field.add(first)
    coarse = field.share("t")
    field.add(second)
    finer.add(both)
    assert coarse < field.share("t")
    assert np.array_equal(field.at("t"), finer.at("t"), equal_nan=True)
    field.add(batch)
    assert field.share("t") == 1.0
    assert np.array_equal(field.at("t").ravel(), np.asarray(batch["t"]))


def test_missing_points_show_their_nearest_neighbour():
    field = Field(LAYOUT, ("t",))
    assert np.isnan(field.filled("t")).all()
    field.add(thinned(rows(), space="1/16"))
    known = np.argwhere(np.isfinite(field.at("t")))
    shown = field.filled("t")
    for y, x in np.ndindex(shown.shape):
        across = np.abs(known[:, 1] - x)
        away = np.minimum(across, 24 - across) ** 2 + (known[:, 0] - y) ** 2
        nearest = {field.at("t")[tuple(known[i])] for i in np.flatnonzero(away == away.min())}
        assert shown[y, x] in nearest


def test_old_steps_make_room_and_rows_without_a_place_are_not_counted():
    field = Field(LAYOUT, ("t",), steps=2)
    field.add(rows((0, 1, 2)))
    assert field.kept == (1, 2)
    field.add(rows((0,)))
    assert field.kept == (1, 2)
    lost = pa.record_batch(
        {"lon": [1.0, None], "lat": [99.0, 1.0], "step": pa.array([2, 2], pa.int32()), "t": [1.0, 1.0]}
    )
    assert field.add(lost) == 0
    with pytest.raises(ValueError, match="at least one column"):
        Field(LAYOUT, ())


def test_a_dataset_has_the_axes_of_the_grid_and_goes_to_zarr(tmp_path):
    import xarray

    field = Field(LAYOUT, ("t",))
    field.add(thinned(rows((0, 1)), space="1/2"))
    dataset = field.to_xarray()
    assert dict(dataset.sizes) == {"step": 2, "lat": 13, "lon": 24}
    assert float(dataset["t"].notnull().mean()) == pytest.approx(0.5)
    point = dataset["t"].sel(lon=7.5, lat=dataset["lat"][0], step=1)
    assert float(point) == pytest.approx(7.5 + 1000 * float(dataset["lat"][0]) + 1)
    field.to_zarr(tmp_path / "field.zarr")
    with xarray.open_zarr(tmp_path / "field.zarr", consolidated=False) as again:
        xarray.testing.assert_equal(again.load(), dataset)
