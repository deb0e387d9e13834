"""Regions and resolutions in the compiled index against every class evaluated by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.filters import parse_filter
from headgate.grid import layout_of, place_schema, with_grid, with_places
from headgate.matching import ClassSpec
from headgate.matching.compiled.class_index import ClassIndex
from headgate.matching.scan import ScanIndex
from headgate.model import Deployment, Schema, Source, Stream, Subscription
from headgate.pipeline.classes import definitions_of, filters_of, index_of
from headgate.wire.snapshot import Snapshot


def gridded(kind, wrap):
    schema = Schema.of({"lon": kind, "lat": kind, "step": "int", "wind": "double"})
    whole = kind in ("int", "bigint")
    bounds = {} if whole else {"bounds": [-180, 180] if wrap else [-20, 40]}
    grid = {
        "x": {"column": "lon", "size": 72, "wrap": wrap, **bounds},
        "y": {"column": "lat", "size": 50, **({} if whole else {"bounds": [-85, 85]})},
        "block": 8,
        "time": {"tick": "step", "block": 16},
    }
    return Stream("s", schema, Source("generator"), "root", options={"grid": grid})


def axis(stream, name):
    layout = layout_of(stream)
    return layout.x if name == "x" else layout.y


def some_region(rng, stream):
    x, y = axis(stream, "x"), axis(stream, "y")
    spots = np.stack([rng.uniform(x.low, x.high, 3), rng.uniform(y.low, y.high, 3)], axis=1)
    if rng.random() < 0.4:  # on points and borders of cells
        spots = np.clip(np.round(spots), [x.low, y.low], [x.high, y.high])
    choice = rng.integers(5)
    if choice == 0:
        return None
    if choice == 1:
        return {"polygon": spots.tolist()}
    if choice == 2:
        around = spots[0].tolist() if rng.random() < 0.7 else "$position"
        km = not stream.schema.column("lon").type.equals(pa.int32()) and rng.random() < 0.5
        radius = float(rng.uniform(1, 30))
        return {"circle": {"around": around, "radius": f"{100 * radius:.1f} km" if km else radius}}
    left, right = spots[:2, 0].tolist()
    if not (x.wrap and rng.random() < 0.5):
        left, right = sorted((left, right))
    bottom, top = sorted(spots[:2, 1].tolist())
    if rng.random() < 0.2:
        right, top = x.high, y.high
    return {"box": {"x": [left, right], "y": [bottom, top]}}


def some_rows(rng, stream, count):
    x, y = axis(stream, "x"), axis(stream, "y")
    lon = rng.uniform(x.low - 3, x.high + (400 if x.wrap else 3), count)
    lat = rng.uniform(y.low - 3, y.high + 3, count)
    lon[::5], lat[::3] = np.round(lon[::5]), np.round(lat[::3])
    lon[:4], lat[:4] = [x.low, x.high, np.nan, x.high], [y.low, y.high, 0, y.high]
    columns = {"lon": lon, "lat": lat, "step": rng.integers(-5, 40, count), "wind": rng.uniform(0, 10, count)}
    arrays = []
    for field in stream.schema.arrow:
        values = columns[field.name]
        if pa.types.is_integer(field.type):
            values = np.round(np.nan_to_num(values)).astype(np.int64)
        arrays.append(pa.array(values, mask=rng.random(count) < 0.03).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=stream.schema.arrow)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("kind", ["double", "float", "int"])
def test_the_index_finds_the_rows_of_every_region_and_resolution(kind, wrap):
    rng = np.random.default_rng([len(kind), wrap])
    stream = gridded(kind, wrap)
    layout = layout_of(stream)
    specs = []
    for number in range(300):
        region = some_region(rng, stream)
        if isinstance(region, dict) and "box" in region:
            (left, right), (bottom, top) = region["box"]["x"], region["box"]["y"]
            if left == right or bottom == top:
                continue
        resolution = [None, {"space": "1/4"}, {"space": ["1/4", "1/2"], "time": "1/2"}, {"time": "1/16"}][number % 4]
        where = ["true", "wind > 5", f"lat > {int(rng.integers(20))} and wind < 8", "lat is null"][number // 4 % 4]
        place = {"position": [float(rng.uniform(0, 20)), 3.0]} if rng.random() < 0.8 else {}
        wanted = Subscription(f"n{number}", "s", "root", where=where, region=region, resolution=resolution)
        filtered = with_grid(parse_filter(where, stream.schema), wanted, stream, layout=layout)
        specs.append(ClassSpec(number, filtered, place))
    rows = some_rows(rng, stream, 700)
    compiled = ClassIndex(place_schema(stream.schema, layout), specs)
    found = compiled.match(with_places(rows, layout))
    expected = ScanIndex(specs).match(rows)
    assert len(expected.ids) > 1000
    # Those that no row can satisfy ("lat is null" in a region) have no box.
    assert compiled.boxes is not None
    assert len(compiled.boxes.classes) > 0.6 * len(specs)
    assert found.same(expected)


def test_the_job_s_index_of_a_gridded_stream_is_the_compiled_one():
    rng = np.random.default_rng(9)
    stream = gridded("double", wrap=True)
    wanted = {f"n{k}": Subscription(f"n{k}", "s", "root", region=some_region(rng, stream)) for k in range(40)}
    numbers = {name: k for k, name in enumerate(wanted)}
    snapshot = Snapshot(1, Deployment({"s": stream}, {}, subscriptions=wanted), None, numbers, numbers)
    rows = some_rows(rng, stream, 400)
    index = index_of(snapshot, "s")
    assert index.boxes is not None
    assert len(index.boxes.classes) > 0.6 * len(wanted)
    compiled = filters_of(stream)
    specs = [
        ClassSpec(each.id, compiled(each.template), each.context) for each in definitions_of(snapshot, "s").values()
    ]
    assert index.match(rows).same(ScanIndex(specs).match(rows))
