"""Stations of a running stream become the grid of each time step, once, whatever comes late or is replayed."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from tests.live import running, sites

from headgate.errors import HeadgateError
from headgate.grid import GridError, layout_of
from headgate.grid.gridding import interpolate
from headgate.grid.gridding_document import gridding_of
from headgate.model import Schema, Source, Stream
from headgate.pipeline.gridding_stage import LATE, NOWHERE, GriddingStage
from headgate.pipeline.sources.idle import IdleReader

COLUMNS = {"id": "string", "lon": "double", "lat": "double", "at": "timestamp", "temp": "double", "stations": "int"}
GRID = {
    "x": {"column": "lon", "size": 6, "bounds": [0, 6]},
    "y": {"column": "lat", "size": 4, "bounds": [0, 4]},
    "time": {"column": "at", "bin": "10 min"},
}
GRIDDING = {"values": ["temp"], "radius": 1.5, "tiles": 2}
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def stream(**gridding):
    options = {"grid": GRID, "gridding": {**GRIDDING, **gridding}}
    return Stream("air", Schema.of(COLUMNS), Source("json"), "root", event_time="at", options=options)


def reading(name, step, lon, lat, temp=1.0):
    return {"id": name, "lon": lon, "lat": lat, "at": NOON + timedelta(minutes=10 * step + 1), "temp": temp}


def taken(*rows):
    fields = [("id", pa.string()), ("lon", pa.float64()), ("lat", pa.float64())]
    fields += [("at", pa.timestamp("us", tz="UTC")), ("temp", pa.float64())]
    fields += [("_dead", pa.string()), ("_raw", pa.string())]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def test_a_step_is_held_until_later_ones_have_begun(tmp_path):
    stage = GriddingStage.of(stream(), tmp_path)
    first, closed, dead = stage.sort(None, taken(reading("a", 0, 1, 1), reading("b", 0, 2, 2)))
    assert (first.rows.num_rows, closed.num_rows, dead.num_rows) == (2, 0, 0)
    stage.save(0, first)
    news = taken(reading("c", 0, 3, 3), reading("a", 1, 1, 1), reading("d", 1, None, 1), {"_dead": "not JSON"})
    second, closed, dead = stage.sort(stage.load(0), news)
    assert closed["id"].to_pylist() == ["a", "b", "c"]
    assert second.rows["id"].to_pylist() == ["a"]
    assert dead["_dead"].to_pylist() == ["not JSON", NOWHERE]
    stage.save(1, second)
    again = stage.sort(stage.load(0), news)
    assert again[0].rows.equals(second.rows)
    assert again[1].equals(closed)
    third, closed, dead = stage.sort(stage.load(1), taken(reading("b", 0, 2, 2), reading("b", 1, 2, 2)))
    assert (closed.num_rows, third.rows.num_rows, dead["_dead"].to_pylist()) == (0, 2, [LATE])
    stage.save(2, third)
    assert sorted(path.stem for path in tmp_path.glob("*.arrow")) == ["000000000001", "000000000002"]
    with pytest.raises(HeadgateError, match="after micro-batch 7 are gone"):
        stage.load(7)


def test_rows_that_come_together_close_their_step_at_once(tmp_path):
    stage = GriddingStage.of(stream(late=0), tmp_path)
    held, closed, _ = stage.sort(None, taken(reading("a", 3, 1, 1), reading("b", 2, 2, 2)))
    assert (held.rows.num_rows, closed.num_rows) == (0, 2)
    _, closed, dead = stage.sort(held, taken(reading("a", 3, 1, 1)))
    assert (closed.num_rows, dead["_dead"].to_pylist()) == (0, [LATE])


def test_an_ended_source_leaves_nothing_held_and_stragglers_are_late(tmp_path):
    stage = GriddingStage.of(stream(late=3), tmp_path)
    held, closed, _ = stage.sort(None, taken(reading("a", 4, 1, 1), reading("b", 3, 2, 2)))
    assert (held.rows.num_rows, closed.num_rows) == (2, 0)
    held, closed, _ = stage.sort(held, taken(), ended=True)
    assert (held.rows.num_rows, sorted(closed["id"].to_pylist())) == (0, ["a", "b"])
    held, _, dead = stage.sort(held, taken(reading("c", 4, 1, 1), reading("c", 5, 1, 1)))
    assert (held.rows["at"].to_pylist(), dead["_dead"].to_pylist()) == ([reading("c", 5, 1, 1)["at"]], [LATE])


def test_a_mark_is_due_when_rows_are_held_and_no_micro_batch_came_since(tmp_path):
    stage = GriddingStage.of(stream(), tmp_path)
    patient, hasty = IdleReader(tmp_path, 3600.0), IdleReader(tmp_path, 0.0)
    start = hasty.initialOffset()
    assert hasty.latestOffset(start, None) == start  # nothing was ever held
    held, _, _ = stage.sort(None, taken(reading("a", 0, 1, 1)))
    stage.save(7, held)
    assert patient.latestOffset(start, None) == start
    due = hasty.latestOffset(start, None)
    assert due == {"next": 8}
    assert [list(hasty.read(each)) for each in hasty.partitions(start, due)] == [[(8,)]]
    assert hasty.latestOffset(due, None) == due  # one for each micro-batch
    stage.save(8, stage.sort(held, taken(), ended=True)[0])
    assert hasty.latestOffset(due, None) == due  # nothing is held any more


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"values": [], "radius": 1}, "columns to interpolate"),
        ({"values": "wind", "radius": 1}, "unknown column 'wind'"),
        ({"values": "lon", "radius": 1}, "no value to interpolate"),
        ({"values": "temp", "radius": 0}, "reaches nothing"),
        ({"values": "temp"}, "needs a radius"),
        ({"values": "temp", "radius": 1, "late": -1}, "no number of steps"),
        ({"values": "temp", "radius": 1, "tile": 2}, "tile"),
        ({"values": "temp", "radius": 1, "idle": "soon"}, "'soon' is no time to wait"),
    ],
)
def test_a_wrong_document_is_refused(document, what):
    wrong = Stream("air", Schema.of(COLUMNS), Source("json"), "root", options={"grid": GRID, "gridding": document})
    with pytest.raises(GridError, match=what):
        gridding_of(wrong)


def test_a_key_that_no_grid_row_has_is_refused():
    keyed = Stream("air", Schema.of(COLUMNS), Source("json"), "root", ("id",), options=dict(stream().options))
    with pytest.raises(GridError, match="'id' would be null"):
        gridding_of(keyed)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.nats
def test_subscribers_get_the_grid_of_every_closed_step(spark, nats_url, tmp_path):
    rng = np.random.default_rng(4)
    batches = [
        [reading(f"s{k}", step, *rng.uniform([0, 0], [4, 4]).tolist(), float(rng.normal())) for k in range(5)]
        for step in (0, 1)
    ]
    batches[1].append(reading("lost", 1, None, 1.0))
    source = tmp_path / "stations"
    source.mkdir()
    for number, rows in enumerate(batches):
        lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows]
        (source / f"{number}.json").write_text("\n".join(lines))
        os.utime(source / f"{number}.json", (number, number))  # Spark takes files by age
    document = {
        "sites": sites("root"),
        "streams": {
            "air": {
                "root": "root",
                "schema": COLUMNS,
                "source": {"format": "json", "path": str(source), "maxFilesPerTrigger": 1},
                "event_time": "at",
                "grid": GRID,
                "gridding": {**GRIDDING, "idle": "0 s"},
            }
        },
        "subscriptions": {"all": {"stream": "air", "site": "root"}},
    }

    async def run():
        async with running(document, tmp_path, nats_url, spark) as live:
            live.readers.start(["all"])
            await live.run_queries("air")
            return await live.settle(), live.rows("all")

    status, found = asyncio.run(run())
    assert status["streams"]["air"]["dead"] == 1
    # The last step comes too, when the source has ended: whole, with the cells that no station reaches declared.
    assert status["streams"]["air"]["rows_in"] == 2 * 24 + 1
    last = [row for row in found.to_pylist() if row["at"] == NOON + timedelta(minutes=10)]
    assert len(last) == 24
    assert any(row["stations"] == 0 and row["temp"] is None for row in last)
    x, y, temp = (np.array([row[name] for row in batches[0]]) for name in ("lon", "lat", "temp"))
    values, used = interpolate(layout_of(stream()), x, y, temp[None], 1.5)
    mine = sorted(found.to_pylist(), key=lambda row: (row["at"], row["lat"], row["lon"]))[:24]
    assert {row["at"] for row in mine} == {NOON}
    assert [row["stations"] for row in mine] == used.ravel().tolist()
    assert [row["temp"] for row in mine] == [None if np.isnan(v) else v for v in values.ravel().tolist()]
    assert 0 in used
    assert all(row["id"] is None for row in mine)
