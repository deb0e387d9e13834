"""`grid:`, `region:` and `resolution:` documents: what they select, and what is refused and how."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import (
    DzSet,
    GridError,
    ShapeFactory,
    grid_predicate,
    grid_shape,
    layout_of,
    parse_layout,
    parse_region,
    parse_resolution,
    with_grid,
)
from headgate.model import Schema, Source, Stream, Subscription

SCHEMA = Schema.of({"lon": "double", "lat": "double", "at": "timestamp", "step": "int", "id": "string", "v": "double"})
GRID = {
    "x": {"column": "lon", "bounds": [-180, 180], "size": 90, "wrap": True},
    "y": {"column": "lat", "bounds": [-90, 90], "size": 45},
    "block": 8,
    "time": {"column": "at", "bin": "10 min", "block": 16},
}
LAYOUT = parse_layout(GRID, SCHEMA)
quick = settings(deadline=None, max_examples=60, derandomize=True)


def stream(**options):
    return Stream("wind", SCHEMA, Source("generator"), "oslo", options=options)


def subscribe(**parts):
    return Subscription("s", "wind", "oslo", **parts)


def field(times=1):
    """Every point of the grid at each of so many time steps."""
    lon, lat, step = (
        a.ravel() for a in np.meshgrid(LAYOUT.x.centres(range(90)), LAYOUT.y.centres(range(45)), range(times))
    )
    return pa.record_batch(
        {
            "lon": lon,
            "lat": lat,
            "at": pa.array(step * 600_000_000, pa.timestamp("us", tz="UTC")),
            "step": pa.array(step, pa.int32()),
            "id": pa.array(["a"] * len(lon)),
            "v": lon * 0,
        }
    )


def test_a_quarter_of_space_and_half_of_time_is_an_eighth_and_even():
    batch = field(times=16)
    predicate = grid_predicate(subscribe(resolution={"space": "1/4", "time": "1/2"}), stream(grid=GRID))
    keep = predicate.evaluate(batch, {})
    assert set(np.asarray(batch["step"])[keep]) == set(range(0, 16, 2))
    assert len(set(np.asarray(batch["lon"])[keep])) == 45
    assert keep.sum() == 45 * 23 * 8
    assert predicate.columns == {"lon", "lat", "at"}
    assert predicate.parameters == frozenset()


def test_a_raised_resolution_needs_only_the_missing_interval():
    batch = field(times=4)
    parts = [{"space": "1/4"}, {"space": ["1/4", "1/2"]}, {"space": "1/2"}]
    low, more, both = (
        grid_predicate(subscribe(resolution=part), stream(grid=GRID)).evaluate(batch, {}) for part in parts
    )
    assert not (low & more).any()
    assert np.array_equal(low | more, both)
    held, wanted = parse_resolution({"space": "1/4"}), parse_resolution({"space": "1/2", "time": "1/2"})
    missing = wanted.missing_from(held)
    assert [part.text for part in missing] == ["space [1/4, 1/2), time [0, 1/2)"]


def test_ticks_stand_for_time_where_a_column_counts():
    grid = {**GRID, "time": {"tick": "step", "block": 8}}
    keep = grid_predicate(subscribe(resolution={"time": "1/4"}), stream(grid=grid)).evaluate(field(times=8), {})
    assert set(np.asarray(field(times=8)["step"])[keep]) == {0, 4}


def test_rows_without_a_place_or_time_are_in_no_region_and_no_resolution():
    batch = pa.record_batch(
        {
            "lon": [1.0, None, float("nan"), 1.0],
            "lat": [1.0, 1.0, 1.0, 99.0],
            "at": pa.array([0, 0, 0, None], pa.timestamp("us", tz="UTC")),
        }
    )
    everything = {"box": {"x": [-180, 180], "y": [-90, 90]}}
    assert (
        grid_predicate(subscribe(region=everything), stream(grid=GRID)).evaluate(batch, {}).tolist()
        == [True] + [False] * 3
    )
    space = grid_predicate(subscribe(resolution={"space": "1/1"}), stream(grid=GRID))
    assert space.evaluate(batch, {}).all(), "everything is asked for, so nothing is thinned"


def test_boxes_share_edges_without_sharing_rows_and_cross_the_date_line():
    batch = field()
    lon, lat = np.asarray(batch["lon"]), np.asarray(batch["lat"])
    west, east = ({"box": {"x": x, "y": [0, 90]}} for x in ([-180, 2], [2, 180]))
    keep = [grid_predicate(subscribe(region=r), stream(grid=GRID)).evaluate(batch, {}) for r in (west, east)]
    assert not (keep[0] & keep[1]).any()
    assert np.array_equal(keep[0] | keep[1], lat >= 0)
    pacific = grid_predicate(subscribe(region={"box": {"x": [170, -170], "y": [-30, 30]}}), stream(grid=GRID))
    assert np.array_equal(pacific.evaluate(batch, {}), ((lon >= 170) | (lon < -170)) & (np.abs(lat) < 30))


def test_a_polygon_is_taken_through_its_cells():
    batch = field()
    lon, lat = np.asarray(batch["lon"]), np.asarray(batch["lat"])
    diamond = {"polygon": [[0, -40], [40, 0], [0, 40], [-40, 0]]}
    keep = grid_predicate(subscribe(region=diamond), stream(grid=GRID)).evaluate(batch, {})
    off = np.abs(np.abs(lon) + np.abs(lat) - 40) > 1e-9
    assert np.array_equal(keep[off], (np.abs(lon) + np.abs(lat) < 40)[off])
    over = {"polygon": [[170, -10], [190, -10], [190, 10], [170, 10]]}
    keep = grid_predicate(subscribe(region=over), stream(grid=GRID)).evaluate(batch, {})
    assert set(lon[keep].tolist()) == {170.0, 174.0, 178.0, -178.0, -174.0}


def test_a_circle_follows_the_subscriber():
    batch = field()
    lon, lat = np.asarray(batch["lon"]), np.asarray(batch["lat"])
    predicate = grid_predicate(
        subscribe(region={"circle": {"around": "$position", "radius": "1000 km"}}), stream(grid=GRID)
    )
    assert predicate.parameters == {"position"}
    keep = predicate.evaluate(batch, {"position": [179.0, 0.0]})
    assert {178.0, -178.0, -174.0} <= set(lon[keep].tolist())
    assert (np.abs(lat[keep]) * 111.2 <= 1001).all()
    assert not predicate.evaluate(batch, {}).any(), "no position yet, so no rows"
    assert not predicate.evaluate(batch, {"position": "here"}).any()
    moved = predicate.evaluate(batch, {"position": {"x": 0.0, "y": 0.0}})
    assert moved.any()
    assert not (moved & keep).any()


def test_stations_are_thinned_to_their_exact_share():
    rng = np.random.default_rng(3)
    places = {f"s{i}": [float(x), float(y)] for i, (x, y) in enumerate(rng.normal(0, 20, (100, 2)))}
    grid = {**GRID, "stations": {"column": "id", "at": places}}
    batch = pa.record_batch({"id": [*places, "unknown", None]})
    found = {}
    for share in ("1/4", ["1/4", "1/2"], "1/2", "1/1"):
        keep = grid_predicate(subscribe(resolution={"space": share}), stream(grid=grid)).evaluate(batch, {})
        found[str(share)] = {name for name, kept in zip(batch["id"].to_pylist(), keep, strict=True) if kept}
    assert len(found["1/4"]) == 25
    assert found["1/4"] | found["['1/4', '1/2']"] == found["1/2"]
    assert len(found["1/2"]) == 50


def test_a_filter_and_a_grid_together():
    class Positive:
        text, columns, parameters = "lon > 0", ("lon",), frozenset({"k"})

        def evaluate(self, batch, context):
            return np.asarray(batch["lon"]) > 0

    batch = field(times=2)
    for region in ({"box": {"y": [0, 90]}}, {"box": [-10, -10, 10, 10]}):
        sub = subscribe(region=region, resolution={"space": "1/2"})
        both = with_grid(Positive(), sub, stream(grid=GRID))
        alone = grid_predicate(sub, stream(grid=GRID))
        assert np.array_equal(both.evaluate(batch, {}), alone.evaluate(batch, {}) & Positive().evaluate(batch, {}))
        assert both.columns == {"lon", "lat"}
        assert both.parameters == {"k"}
        assert "lon > 0" in both.text
    assert with_grid(Positive(), subscribe(), stream()).text == "lon > 0"


def test_predicates_travel_to_workers():
    predicate = grid_predicate(subscribe(region={"box": [0, 0, 50, 50]}), stream(grid=GRID))
    batch = field()
    expected = predicate.evaluate(batch, {})
    again = pickle.loads(pickle.dumps(predicate))
    assert np.array_equal(again.evaluate(batch, {}), expected)


coordinates = st.integers(-45, 44).map(lambda k: 4.0 * k)
boxes = st.tuples(coordinates, coordinates, st.integers(-22, 21), st.integers(1, 22)).map(
    lambda t: {"box": {"x": [t[0], t[1]], "y": [4.0 * t[2], min(90.0, 4.0 * (t[2] + t[3]))]}}
)
circles = st.tuples(coordinates, st.integers(-22, 22), st.floats(1, 80)).map(
    lambda t: {"circle": {"around": [t[0], 4.0 * t[1]], "radius": t[2]}}
)
polygons = st.sampled_from([[[0, -40], [40, 0], [0, 40], [-40, 0]], [[-100, -50], [90, 20], [10, 80]]]).map(
    lambda corners: {"polygon": corners}
)
regions = st.one_of(boxes.filter(lambda r: r["box"]["x"][0] != r["box"]["x"][1]), circles, polygons)


@quick
@given(regions, regions, st.sampled_from(["1/4", "1/2", "1/3", "3/4", 1]), st.sampled_from(["1/4", "1/2", "2/3", 1]))
def test_shapes_cover_only_what_they_contain_row_by_row(one, other, half, quarter):
    batch = field()
    subs = [subscribe(region=one, resolution={"space": half}), subscribe(region=other, resolution={"space": quarter})]
    rows = [grid_predicate(sub, stream(grid=GRID)).evaluate(batch, {}) for sub in subs]
    shapes = [grid_shape(sub, stream(grid=GRID)) for sub in subs]
    if shapes[0].covers(shapes[1]):
        assert not (rows[1] & ~rows[0]).any()
    assert shapes[0].covers(shapes[0])
    assert shapes[0].inner <= shapes[0].outer


def test_a_half_resolution_stream_covers_a_quarter():
    box = {"box": [-90, -45, 90, 45]}
    half, quarter = (
        grid_shape(subscribe(region=box, resolution={"space": r}), stream(grid=GRID)) for r in ("1/2", "1/4")
    )
    assert half.covers(quarter)
    assert not quarter.covers(half)
    assert half.fraction == 2 * quarter.fraction == pytest.approx(1 / 8, rel=0.05)
    whole = grid_shape(subscribe(), stream(grid=GRID))
    assert whole.outer == DzSet.whole(whole.outer.space)
    assert whole.covers(half)
    assert ShapeFactory(layout_of(stream(grid=GRID))).space == whole.outer.space


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"box": {"x": [10, 5], "y": [5, 5]}}, "reversed or empty"),
        ({"box": {"x": [0, 10], "y": [50, -50]}}, "reversed or empty"),
        ({"box": {"x": [0, 10], "y": [50, 95]}}, "95 lies outside of the grid"),
        ({"box": {"x": [-200, 10]}}, "-200 lies outside of the grid"),
        ({"box": {"x": [float("nan"), 10]}}, "nan is not a finite number"),
        ({"box": {"x": [0, float("inf")]}}, "inf is not a finite number"),
        ({"box": {"x": ["0", 10]}}, "'0' is not a finite number"),
        ({"box": {"x": 3}}, "3 are no bounds"),
        ({"box": {"z": [0, 1]}}, "unknown key 'z'"),
        ({"boxx": {}}, "did you mean 'box'"),
        ({}, "one box, polygon or circle"),
        ("everywhere", "expected a mapping"),
        ({"polygon": [[0, 0], [10, 10], [10, 0], [0, 10]]}, "crosses itself"),
        ({"polygon": [[0, 0], [10, 0], [5, 0]]}, "crosses itself"),
        ({"polygon": [[0, 0], [10, 0], [10, 10], [10, 10]]}, "crosses itself"),
        ({"polygon": [[0, 0], [10, 0], [10, 10], [5, 0]]}, "crosses itself"),
        ({"polygon": [[0, 0], [10, 0]]}, "3 to 2000 corners"),
        ({"polygon": [[0, 0], [10, 0], [10, 100]]}, "100 lies outside of the grid"),
        ({"polygon": [[0, 0], [10, 0], [10, float("nan")]]}, "nan is not a finite number"),
        ({"circle": {"around": [0, 0], "radius": 0}}, "holds nothing"),
        ({"circle": {"around": [0, 0], "radius": float("nan")}}, "nan is not a finite number"),
        ({"circle": {"around": "position", "radius": 3}}, "'position' is no position"),
        ({"circle": {"around": [0, 91], "radius": 3}}, "91 lies outside of the grid"),
        ({"circle": {"around": [0, 0], "radius": "3 miles"}}, "is not a finite number"),
    ],
)
def test_bad_regions_are_refused_with_their_place(document, says):
    with pytest.raises(GridError) as refused:
        parse_region(document, LAYOUT)
    assert says in str(refused.value)
    assert str(refused.value).startswith("region")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"space": 0}, "asks for nothing"),
        ({"space": "0/4"}, "asks for nothing"),
        ({"space": "5/4"}, "not between 0 and 1"),
        ({"space": 1.5}, "not between 0 and 1"),
        ({"space": -0.5}, "not between 0 and 1"),
        ({"time": float("nan")}, "nan is not a fraction"),
        ({"time": "1/0"}, "is not a fraction"),
        ({"time": True}, "True is not a fraction"),
        ({"space": "half"}, "'half' is not a fraction"),
        ({"space": ["1/2", "1/4"]}, "reversed or empty"),
        ({"space": ["1/4", "1/4"]}, "reversed or empty"),
        ({"space": ["1/4"]}, "no interval"),
        ({"spce": "1/4"}, "did you mean 'space'"),
        ({"time": ["1/1000", "1/999"]}, "no point of a block of 16"),
    ],
)
def test_bad_resolutions_are_refused_with_their_place(document, says):
    with pytest.raises(GridError) as refused:
        parse_resolution(document, LAYOUT)
    assert says in str(refused.value)
    assert str(refused.value).startswith("resolution")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": {"column": "long", "size": 4}}, "did you mean 'lon'"),
        ({"x": {"column": "id", "size": 4}}, "not a number"),
        ({"x": {"column": "lon", "size": 0}}, "number of points"),
        ({"x": {"column": "lon", "size": 4, "bounds": [3, 3]}}, "reversed or empty"),
        ({"y": {"column": "lat", "size": 4, "wrap": True}}, "only the x axis"),
        ({"block": 12}, "no power of two"),
        ({"time": {"column": "at"}}, "bins of a column"),
        ({"time": {"column": "lat", "bin": "1 min"}}, "not a time"),
        ({"time": {"column": "at", "bin": "soon"}}, "is not a duration"),
        ({"time": {"tick": "v"}}, "whole numbers"),
        ({"stations": {"column": "id", "at": {"a": [0, 99]}}}, "outside of the grid"),
        ({"stations": {"column": "id", "at": {"a": 5}}}, "no position"),
        ({"sizes": 3}, "unknown key 'sizes'"),
    ],
)
def test_bad_grids_are_refused_with_their_place(change, says):
    with pytest.raises(GridError) as refused:
        parse_layout({**GRID, **change}, SCHEMA)
    assert says in str(refused.value)
    assert str(refused.value).startswith("grid")


def test_regions_and_resolutions_need_a_grid():
    with pytest.raises(GridError, match="has no grid"):
        grid_predicate(subscribe(resolution={"space": "1/4"}), stream())
    with pytest.raises(GridError, match="no time steps"):
        grid_predicate(subscribe(resolution={"time": "1/4"}), stream(grid={k: GRID[k] for k in ("x", "y")}))
    assert grid_predicate(subscribe(), stream()) is None
    assert layout_of(stream()) is None
