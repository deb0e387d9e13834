"""Recorded fields as streams: files that the NetCDF library wrote, with the values that it reads from them."""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.test_sources import run

from headgate.model import Schema, Source, Stream
from headgate.model.schema import SchemaError
from headgate.parts import MissingPartError
from headgate.pipeline.sources import SourceError, check_source, read
from headgate.pipeline.sources.grid_file import GridFile
from headgate.pipeline.sources.grid_file_options import GridFileSettings
from headgate.pipeline.validate import DEAD, validate

FILES = Path(__file__).parents[1] / "data" / "grid"
FIELD = json.loads((FILES / "field.json").read_text())
SCHEMA = Schema.of({"time": "timestamp", "lat": "double", "lon": "double", "temp": "double", "land": "boolean"})


def expected():
    """Every row as the NetCDF library reads the file."""
    return [
        {
            "time": datetime.fromisoformat(time).replace(tzinfo=UTC),
            "lat": lat,
            "lon": lon,
            "temp": FIELD["temp"][step][i][j],
            "wind": FIELD["wind"][step][i][j],
            "land": FIELD["land"][i][j],
            "gusts": FIELD["gusts"][step],
            "step": step,
        }
        for step, time in enumerate(FIELD["time"])
        for i, lat in enumerate(FIELD["lat"])
        for j, lon in enumerate(FIELD["lon"])
    ]


@pytest.mark.parametrize("name", ["classic", "offset64", "data64"])
def test_rows_are_those_that_the_netcdf_library_reads(name):
    file = GridFile(FILES / f"{name}.nc", "netcdf")
    assert file.rows(0, 60).to_pylist() == expected()
    assert file.rows(7, 32).to_pylist() == expected()[7:32]
    assert file.rows(9, 9).num_rows == 0
    with pytest.raises(SourceError, match="61 are asked for"):
        file.rows(50, 61)


def test_records_of_one_small_variable_stand_without_a_gap():
    rows = GridFile(FILES / "unpadded.nc", "netcdf").rows(0, 9)
    assert rows["level"].to_pylist() == list(range(9))
    assert rows["t"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_zarr_store_holds_the_same_rows(tmp_path):
    file = GridFile(FILES / "classic.nc", "netcdf")
    file.dataset.drop_vars("time_bnds").to_zarr(tmp_path / "field.zarr", consolidated=False, zarr_format=3)
    assert GridFile(tmp_path / "field.zarr", "zarr").rows(3, 60).to_pylist() == expected()[3:]


def test_a_file_of_hdf5_is_read_or_says_what_it_needs():
    file = GridFile(FILES / "netcdf4.nc", "netcdf")
    if importlib.util.find_spec("h5py"):
        assert file.rows(0, 60).to_pylist() == expected()
    else:
        with pytest.raises(MissingPartError, match="h5py, which is not installed"):
            file.rows(0, 60)


def test_a_cut_or_foreign_file_is_refused(tmp_path):
    whole = (FILES / "classic.nc").read_bytes()
    for size, what in ((40, "ends in its header"), (len(whole) - 5, "ends in variable")):
        (tmp_path / "cut.nc").write_bytes(whole[:size])
        with pytest.raises(SourceError, match=what):
            GridFile(tmp_path / "cut.nc", "netcdf").rows(0, 1)
    (tmp_path / "other.nc").write_text("no such thing")
    with pytest.raises(SourceError, match="no NetCDF file"):
        GridFile(tmp_path / "other.nc", "netcdf").rows(0, 1)
    (tmp_path / "tag.nc").write_bytes(whole[:8] + b"\0\0\0\x63" + whole[12:])
    with pytest.raises(SourceError, match="classic format"):
        GridFile(tmp_path / "tag.nc", "netcdf").rows(0, 1)


def recorded(form="netcdf", schema=SCHEMA, **options):
    source = Source(form, {"path": str(FILES / "classic.nc"), **{name: str(value) for name, value in options.items()}})
    return Stream("field", schema, source, "root", (), "time", rate_rows_per_s=30.0)


def test_steps_appear_whole_and_at_their_rate():
    settings = GridFileSettings.of("netcdf", {**recorded().source.options, "rate": "30"})
    seconds = [settings.available(0, int(second * 1e6)) for second in (-1, 0, 0.4, 0.6, 1.1, 9)]
    assert seconds == [0, 15, 15, 30, 45, 60]
    slow = GridFileSettings.of("netcdf", {**recorded().source.options, "every": "2 s", "times": "live", "limit": "40"})
    assert [slow.available(0, int(second * 1e6)) for second in (0, 1.9, 2, 9)] == [15, 15, 30, 40]
    times = slow.rows(10, 40, 5_000_000)["time"].cast("int64").to_numpy()
    assert np.unique(times).tolist() == [5_000_000, 7_000_000, 9_000_000]


@pytest.mark.long
@pytest.mark.spark
def test_a_file_is_a_stream_with_exact_offsets(spark, tmp_path):
    stream = recorded(pace="none", max_rows_per_trigger=25)
    frame = validate(read(spark, stream), stream)
    rows, sizes = run(frame, "recorded", tmp_path / "checkpoint")
    assert sizes == [25, 25, 10]
    assert rows[DEAD].null_count == 60
    found = sorted(rows.drop_columns([DEAD, "_raw"]).to_pylist(), key=lambda row: (row["time"], row["lat"], row["lon"]))
    wanted = [{name: row[name] for name in SCHEMA.names} for row in expected()]
    assert found == [{**row, "land": bool(row["land"])} for row in wanted]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"path": "/nowhere.nc"}, "there is no /nowhere.nc"),
        ({"time": "lev"}, "no dimension 'lev'"),
        ({"every": "0 s"}, "longer than 0"),
        ({"evry": "1 s"}, "did you mean 'every'"),
        ({"pace": "fast"}, "not a value for 'pace'"),
    ],
)
def test_a_wrong_option_is_refused(options, what):
    with pytest.raises(SourceError, match=what):
        check_source(recorded(**options))


def test_a_column_that_the_file_has_not_is_refused():
    with pytest.raises(SchemaError, match="unknown column 'tmep'"):
        check_source(recorded(schema=Schema.of({"time": "timestamp", "tmep": "double"})))
