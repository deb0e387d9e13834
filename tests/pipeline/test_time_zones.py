"""Times of sources in other zones, and clocks that step: the rules of docs/sources.md."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.model import Schema, Source, Stream
from headgate.pipeline.sources import read
from headgate.pipeline.sources.generator_options import GeneratorSettings
from headgate.pipeline.sources.paced import PacedReader
from headgate.pipeline.validate import DEAD, validate

BERLIN = ZoneInfo("Europe/Berlin")
SCHEMA = Schema.of({"k": "int", "at": "timestamp"})
# Around both changes of the clocks: 02:30 of 25 October is there twice, 02:30 of 29 March never.
LOCAL = [
    datetime.fromisoformat(text)
    for text in ("2026-01-01T00:00", "2026-03-29T01:59", "2026-03-29T03:00", "2026-07-01T12:00", "2026-10-25T03:00")
]


def times(spark: Any, form: str, folder: Path, **options: str) -> list[datetime | None]:
    """The times that a stream of files has, in the order of their keys, as instants."""
    stream = Stream("s", SCHEMA, Source(form, {"path": str(folder), **options}), "root", ("k",), "at")
    name = f"zones_{folder.name}"
    query = (
        validate(read(spark, stream), stream)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder.parent / f"{folder.name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = sorted(spark.table(name).toArrow().to_pylist(), key=lambda row: row["k"])
    assert all(row[DEAD] is None or row["at"] is None for row in rows)
    return [None if row["at"] is None else row["at"].astimezone(UTC) for row in rows]


def written(folder: Path, texts: list[str], form: str) -> Path:
    folder.mkdir()
    lines = {
        "json": [json.dumps({"k": k, "at": text}) for k, text in enumerate(texts)],
        "csv": ["k,at", *(f"{k},{text}" for k, text in enumerate(texts))],
    }
    (folder / f"rows.{form}").write_text("\n".join(lines[form]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.spark
def test_offsets_are_followed_and_what_has_none_is_utc_wherever_the_machine_is(spark: Any, tmp_path: Path) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    zones = (UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8)))
    texts = [moment.astimezone(zone).isoformat() for zone in zones] + ["2026-10-25T00:30:00", "2026-10-25 00:30:00"]
    for form in ("json", "csv"):
        found = times(
            spark, form, written(tmp_path / form, texts, form), **({"header": "true"} if form == "csv" else {})
        )
        assert found == [moment] * len(texts), form


@pytest.mark.spark
@pytest.mark.parametrize("form", ["json", "csv"])
def test_local_times_are_those_of_the_zone_that_the_source_names(spark: Any, tmp_path: Path, form: str) -> None:
    """Through the year and beside the changes of the clocks, against Python's own table of zones."""
    more = {"header": "true"} if form == "csv" else {}
    folder = written(tmp_path / f"{form}_local", [each.isoformat() for each in LOCAL], form)
    found = times(spark, form, folder, timeZone="Europe/Berlin", **more)
    assert found == [each.replace(tzinfo=BERLIN).astimezone(UTC) for each in LOCAL]
    shown = [f"{each:%d.%m.%Y %H:%M}" for each in LOCAL]
    folder = written(tmp_path / f"{form}_shown", shown, form)
    found = times(spark, form, folder, timeZone="Europe/Berlin", timestampFormat="dd.MM.yyyy HH:mm", **more)
    assert found == [each.replace(tzinfo=BERLIN).astimezone(UTC) for each in LOCAL]


@pytest.mark.spark
def test_typed_files_keep_their_instants_whatever_zone_they_show(spark: Any, tmp_path: Path) -> None:
    instants = [each.replace(tzinfo=BERLIN) for each in LOCAL]
    for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata"):
        folder = tmp_path / zone.replace("/", "_")
        folder.mkdir()
        table = pa.table(
            {
                "k": pa.array(range(len(instants)), pa.int32()),
                "at": pa.array(instants, pa.timestamp("us", zone)),
            }
        )
        pq.write_table(table, folder / "rows.parquet")
        assert times(spark, "parquet", folder) == [each.astimezone(UTC) for each in instants]


def test_a_clock_that_steps_repeats_no_row_of_a_paced_source_and_leaves_none_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Back: nothing comes until the clock is there again. Ahead: what has happened by then comes at once."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    clock = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    reader = PacedReader(GeneratorSettings.of({"kind": "pulse", "rate": "10"}), StructType())
    offset, rows = reader.initialOffset(), []
    for step_s in (0.0, 1.0, -3600.0, 1.0, 3598.0, 1.0, 1.0, 7200.0, 1.0):
        clock[0] += step_s
        offset = reader.latestOffset(offset, ReadAllAvailable())
        rows.append(offset["row"])
    assert rows == [1, 11, 11, 11, 11, 11, 21, 72_021, 72_031]
    assert offset["origin_us"] == 1_800_000_000_000_000
