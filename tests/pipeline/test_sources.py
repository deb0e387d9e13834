from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest

from headgate.catalog import checks
from headgate.model import Schema, Source, Stream
from headgate.model.schema import SchemaError
from headgate.pipeline.causes import cause_of
from headgate.pipeline.resuming import REBUILT
from headgate.pipeline.sources import GENERATOR_SCHEMAS, SourceError, check_source, generate, read
from headgate.pipeline.sources.generators import ORIGIN_US, GeneratorError
from headgate.pipeline.sources.idle import IdleSource
from headgate.pipeline.sources.jsontext import from_json
from headgate.pipeline.sources.reading import own_sources
from headgate.pipeline.validate import DEAD, validate

READINGS = Schema.of({"station": "string", "temp": "double", "n": "int", "at": "timestamp", "tags": "array<string>"})


def generated(kind, schema=None, **options):
    source = Source("generator", {"kind": kind, **{name: str(value) for name, value in options.items()}})
    return Stream("s", schema or GENERATOR_SCHEMAS[kind], source, "root", (), "at", rate_rows_per_s=500.0)


def run(frame, name, checkpoint):
    """Every row that is there, as an Arrow table, and the sizes of the micro-batches."""
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    return frame.sparkSession.table(name).toArrow(), [size for size in sizes if size]


def ordered(rows, kind):
    keys = ["step", "y", "x"] if kind == "weather" else ["at"]
    names = GENERATOR_SCHEMAS[kind].names
    found = rows.select(names).cast(GENERATOR_SCHEMAS[kind].arrow)
    return found.take(pc.sort_indices(found, [(key, "ascending") for key in keys])).to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize("kind", sorted(GENERATOR_SCHEMAS))
def test_the_source_gives_the_rows_of_the_pure_function(spark, kind):
    options = {"kind": kind, "seed": "9", "limit": "12000", "rate": "500", "pace": "none"}
    rows = spark.read.format("generator").options(**options).load().toArrow()
    assert ordered(rows, kind) == generate(kind, 9, 0, 12_000, rate=500.0).to_pylist()


@pytest.mark.spark
def test_a_query_does_not_read_by_a_registration_that_others_have_spoilt(spark, tmp_path):
    """Queries that start together may leave a map of Spark's with a wrong count of its entries, for good."""
    spoilt = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("generator")
    variables = spoilt.dataSourceCls().envVars()
    count = variables.getClass().getDeclaredField("size")
    count.setAccessible(True)
    count.setInt(variables, variables.size() + 1)
    options = {"kind": "ticks", "seed": "9", "limit": "100", "rate": "500", "pace": "none"}
    with pytest.raises(Exception) as failed:
        spark.read.format("generator").options(**options).load().toArrow()
    assert "OptionalDataException" in cause_of(failed.value)
    stream = generated("ticks", seed=9, limit=100)
    rows, _ = run(read(spark, stream), "gen_registered", tmp_path)
    assert rows.num_rows == 100


@pytest.mark.spark
def test_the_stream_gives_the_same_rows_in_bounded_batches(spark, tmp_path):
    stream = generated("ticks", seed=9, limit=13_000)
    rows, sizes = run(validate(read(spark, stream, max_rows_per_trigger=12_000), stream), "gen_ticks", tmp_path)
    assert sizes == [12_000, 1_000]
    assert rows[DEAD].null_count == rows.num_rows
    assert ordered(rows, "ticks") == generate("ticks", 9, 0, 13_000, rate=500.0).to_pylist()


def reader(**options):
    from pyspark.sql.types import StructType

    from headgate.pipeline.sources.generator_options import GeneratorSettings
    from headgate.pipeline.sources.paced import PacedReader

    settings = GeneratorSettings.of({name: str(value) for name, value in options.items()})
    return PacedReader(settings, StructType())


def test_offsets_follow_the_clock_from_the_start_that_they_hold():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    paced = reader(kind="pulse", rate=1000)
    before = int(time.time() * 1e6)
    start = paced.initialOffset()
    assert before <= start["origin_us"] <= time.time() * 1e6
    started = {"row": 0, "origin_us": before - 5_000_000}
    assert paced.latestOffset(started, ReadMaxRows(700)) == {**started, "row": 700}
    end = paced.latestOffset(started, ReadAllAvailable())
    assert 5_001 <= end["row"] <= 1000 * (time.time() - before / 1e6 + 5) + 1
    ahead = {"row": 10**9, "origin_us": before}
    assert paced.latestOffset(ahead, ReadAllAvailable()) == ahead


def test_a_long_pause_moves_time_but_no_row():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    now = int(time.time() * 1e6)
    paused = {"row": 5_000, "origin_us": now - 86_400_000_000}
    resumed = reader(kind="pulse", rate=100, catch_up="10 s")
    first = resumed.latestOffset(paused, ReadMaxRows(300))
    assert first["row"] == 5_300
    assert abs(first["origin_us"] + 50_000_000 - (now - 10_000_000)) < 5_000_000
    assert resumed.latestOffset(first, ReadMaxRows(100)) == {**first, "row": 5_400}
    short = {"row": 5_000, "origin_us": now - 55_000_000}
    assert reader(kind="pulse", rate=100).latestOffset(short, ReadAllAvailable())["origin_us"] == short["origin_us"]
    fixed = reader(kind="pulse", rate=100, origin="2020-01-01")
    start = fixed.initialOffset()
    assert fixed.latestOffset(start, ReadMaxRows(10)) == {**start, "row": 10}


def test_available_now_closes_the_stream():
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    paced = reader(kind="pulse", rate=1e6)
    paced.prepareForTriggerAvailableNow()
    start = {"row": 0, "origin_us": int(time.time() * 1e6) - 10_000}
    first = paced.latestOffset(start, ReadAllAvailable())
    assert paced.latestOffset(first, ReadAllAvailable()) == first


def test_a_grid_appears_step_by_step():
    settings = reader(kind="weather", width=4, height=5, rate=10).settings
    assert [settings.available(0, second * 1_000_000) for second in (-1, 0, 1, 2, 3, 4)] == [0, 20, 20, 40, 40, 60]


def test_ranges_are_contiguous_and_take_the_ends_origin():
    large = reader(kind="ticks", limit=10**6, partitions=3)
    ranges = large.partitions({"row": 10, "origin_us": 1}, {"row": 20_010, "origin_us": 2})
    assert [(part.start, part.stop, part.origin_us) for part in ranges] == [
        (10, 6676, 2),
        (6676, 13343, 2),
        (13343, 20010, 2),
    ]
    assert len(large.partitions({"row": 0, "origin_us": 1}, {"row": 100, "origin_us": 1})) == 1
    assert large.partitions({"row": 5, "origin_us": 1}, {"row": 5, "origin_us": 1}) == []


def test_a_limit_alone_needs_no_clock_and_a_rate_brings_it_back():
    assert not reader(kind="ticks", limit=5).settings.paced
    assert reader(kind="ticks", limit=5).initialOffset()["origin_us"] == ORIGIN_US
    assert reader(kind="ticks", limit=5, rate=3).settings.paced
    assert reader(kind="ticks", origin="2026-02-03T00:00:00Z").settings.origin_us == int(
        datetime(2026, 2, 3, tzinfo=UTC).timestamp() * 1e6
    )


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (generated("flet", READINGS), GeneratorError, "did you mean 'fleet'"),
        (generated("fleet", vehicels=3), SourceError, "no option 'vehicels' .did you mean 'vehicles'"),
        (generated("fleet", rate="fast"), SourceError, "'fast' is not a value for 'rate'"),
        (generated("fleet", limit="2.5"), SourceError, "whole number"),
        (generated("fleet", pace="clok"), SourceError, "did you mean 'clock'"),
        (generated("fleet", origin="yesterday"), SourceError, "write a time such as"),
        (generated("fleet", Schema.of({"sped": "double", "at": "timestamp"})), SchemaError, "did you mean 'speed'"),
        (generated("fleet", Schema.of({"speed": "int"})), SchemaError, "makes double"),
        (
            Stream("s", READINGS, Source("json", {"path": "x"}), "root", ("statoin",)),
            SchemaError,
            "did you mean 'station'",
        ),
    ],
)
def test_a_wrong_source_is_refused_before_anything_starts(stream, error, message):
    with pytest.raises(error, match=message):
        check_source(stream)


FORMATS = [source.name() for source in own_sources() if source is not IdleSource]


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_of_our_own_is_known_wherever_formats_are_listed(form):
    assert form in checks.FORMATS, f"headgate check knows no misspelling of {form!r}: add it to catalog/checks.py"
    assert form in REBUILT, f"a lost checkpoint of {form!r} would stop the stream: add it to pipeline/resuming.py"
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    assert f"`{form}`" in page, f"docs/sources.md does not describe {form!r}"


def test_sources_are_checked_where_spark_is_not_installed():
    """`headgate check` runs on machines without Spark: what it imports of a source must not need it."""
    script = f"""
import sys
sys.modules["pyspark"] = None
from headgate.errors import HeadgateError
from headgate.model import Schema, Source, Stream
from headgate.pipeline.sources import check_source
for form in {FORMATS!r}:
    try:
        check_source(Stream("s", Schema.of({{"n": "int"}}), Source(form, {{}}), "root"))
    except HeadgateError:
        pass
    except ImportError as error:
        raise SystemExit(f"check_source imports Spark for {{form!r}}: keep its options in a module without") from error
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def json_lines():
    good = {"station": "oslo", "temp": 1.5, "n": 3, "at": "2026-01-01T00:00:00Z", "tags": ["a"]}
    return {
        "good": json.dumps(good),
        "extra column": json.dumps({**good, "unknown": 1}),
        "null value": json.dumps({**good, "temp": None, "tags": None}),
        "missing value": json.dumps({"station": "oslo", "at": "2026-01-01T00:00:00Z"}),
        "not a number": json.dumps({**good, "temp": float("nan")}),
        "unicode": json.dumps({**good, "station": "Å😀"}, ensure_ascii=False),
        "null key": json.dumps({**good, "station": None}),
        "missing time": json.dumps({"station": "oslo"}),
        "wrong type": json.dumps({**good, "temp": "warm"}),
        "overflow": json.dumps({**good, "n": 2**40}),
        "bad time": json.dumps({**good, "at": "soon"}),
        "two wrong": json.dumps({**good, "temp": "warm", "n": "many"}),
        "object as text": json.dumps({**good, "station": {"name": "oslo"}}),
        "list as text": json.dumps({**good, "station": ["oslo"]}),
        "text like an object": json.dumps({**good, "station": '{"name": "oslo"}'}),
        "beyond a double": json.dumps(good).replace("1.5", "-1e999"),
        "infinite by name": json.dumps({**good, "temp": "Infinity"}),
        "not UTF-8": json.dumps(good).replace("oslo", "o\udcffslo"),
        "truncated": json.dumps(good)[:-5],
        "not json": "hello",
        "array": json.dumps([good, good]),
        "number": "5",
        "two objects": json.dumps(good) + json.dumps(good),
        "two in a list": json.dumps(good) + "," + json.dumps(good),
        "rubbish behind": json.dumps(good) + "]",
    }


REASONS = {
    "null key": "key column 'station' is null",
    "missing time": "event time 'at' is null",
    "wrong type": "column 'temp' is not a double",
    "overflow": "column 'n' is not a int",
    "bad time": "column 'at' is not a timestamp",
    "two wrong": "column 'temp' is not a double; column 'n' is not a int",
    "object as text": "column 'station' is not a string but an object or a list",
    "list as text": "column 'station' is not a string but an object or a list",
    "beyond a double": "column 'temp' is beyond what a double holds",
    "not UTF-8": "not UTF-8",
    **dict.fromkeys(["truncated", "not json", "array", "number"], "not one JSON object"),
    **dict.fromkeys(["two objects", "two in a list", "rubbish behind"], "not one JSON object"),
}


@pytest.mark.spark
def test_json_files_give_good_rows_and_dead_letters_with_reasons(spark, tmp_path, json_lines):
    folder = tmp_path / "incoming files"
    folder.mkdir()
    (folder / "one.json").write_bytes(as_bytes("\n\n".join(json_lines.values()) + "\r\n  \n"))
    stream = Stream("s", READINGS, Source("json", {"path": str(folder)}), "root", ("station",), "at")
    rows, _ = run(validate(read(spark, stream), stream), "json_files", tmp_path / "checkpoint")
    check_dead(rows, json_lines)


@pytest.mark.long
@pytest.mark.spark
def test_json_messages_are_judged_like_json_files(spark, json_lines):
    stream = Stream("s", READINGS, Source("kafka", {"payload": "json"}), "root", ("station",), "at")
    values = [(as_bytes(line), None) for line in json_lines.values()]
    frame = spark.createDataFrame(values, "value binary, _error string")
    rows = validate(from_json(frame, stream), stream).toArrow()
    check_dead(rows, json_lines)
    broken = spark.createDataFrame([(None, None), ("", None), ("x", "no such codec")], "value string, _error string")
    dead = validate(from_json(broken, stream), stream).select(DEAD).toArrow()[DEAD].to_pylist()
    assert dead == ["not one JSON object"] * 2 + ["no such codec"]
    strict = Stream("s", READINGS, Source("kafka", {"payload": "json", "unknown_columns": "dead"}), "root")
    dead = validate(from_json(frame, strict), strict).select(DEAD).toArrow()[DEAD].to_pylist()
    assert [reason for reason in dead if reason and "unknown" in reason] == ["unknown columns: unknown"]


def as_bytes(text):
    """The text in UTF-8, with the byte FF where it has the code that stands for it."""
    return text.encode(errors="surrogateescape")


def check_dead(rows, lines):
    assert rows.num_rows == len(lines)
    by_reason = {}
    for row in rows.to_pylist():
        by_reason.setdefault(row[DEAD], []).append(row)
    assert len(by_reason[None]) == len(lines.keys() - REASONS)
    assert all(row["_raw"] is None for row in by_reason[None])
    assert {row["station"] for row in by_reason[None]} == {"oslo", "Å😀", '{"name": "oslo"}'}
    for reason in set(REASONS.values()):
        wanted = [name for name in lines if REASONS.get(name) == reason]
        assert len(by_reason[reason]) == len(wanted), (reason, by_reason)
        if "is null" not in reason:
            shown = {as_bytes(lines[name]).decode(errors="replace") for name in wanted}
            assert {row["_raw"] for row in by_reason[reason]} == shown
    assert set(by_reason) == {None, *REASONS.values()}


@pytest.mark.spark
def test_csv_files_keep_what_they_cannot_read(spark, tmp_path):
    from pyspark.errors import StreamingQueryException

    schema = Schema.of({"station": "string", "temp": "double", "at": "timestamp"})
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "one.csv").write_text(
        "station,temp,at\noslo,1.5,2026-01-01T00:00:00Z\noslo,warm,2026-01-01T00:00:00Z\n,2.0,\nbergen\n"
    )
    stream = Stream("s", schema, Source("csv", {"path": str(folder), "header": "true"}), "root", ("station",), "at")
    rows, _ = run(validate(read(spark, stream), stream), "csv_files", tmp_path / "checkpoint")
    found = {(row["_raw"], row[DEAD]) for row in rows.to_pylist()}
    (folder / "two.csv").write_text("temp,station,at\n1.5,oslo,2026-01-01T00:00:00Z\n")
    with pytest.raises(StreamingQueryException):  # a header in another order is refused, not read by place
        run(validate(read(spark, stream), stream), "csv_header", tmp_path / "other")
    assert found == {
        (None, None),
        ("oslo,warm,2026-01-01T00:00:00Z", "column 'temp' is not a double"),
        (None, "event time 'at' is null; key column 'station' is null"),
        ("bergen", "not a csv record of the stream's schema"),
    }


@pytest.mark.spark
def test_a_typed_source_is_cast_and_what_does_not_fit_is_dead(spark):
    from headgate.pipeline.sources.reading import _typed

    schema = Schema.of({"n": "tinyint", "at": "timestamp"})
    stream = Stream("s", schema, Source("rate"), "root", options={"required": ["n"]})
    frame = spark.sql(
        "select n, timestamp '2026-01-01' as at, 1 as other from values (5D), (2.5D), (500D), (null) t(n)"
    )
    rows = validate(_typed(frame, stream), stream).toArrow()
    assert rows.schema.names == ["n", "at", "_dead", "_raw"]
    reasons = {row["n"]: row[DEAD] for row in rows.to_pylist() if row[DEAD] is None}
    assert reasons == {5: None}
    assert sorted(filter(None, rows[DEAD].to_pylist())) == ["column 'n' is not a tinyint"] * 2 + ["column 'n' is null"]


@pytest.mark.spark
def test_a_source_without_a_declared_column_is_an_error_of_the_deployment(spark):
    stream = Stream("s", Schema.of({"value": "bigint", "tmp": "double"}), Source("rate"), "root")
    with pytest.raises(SchemaError, match=r"declares the column 'tmp'.*the source has timestamp, value"):
        read(spark, stream)
    with pytest.raises(SchemaError, match="lacks the column 'tmp'"):
        validate(spark.range(1).withColumnRenamed("id", "value"), stream)
    messages = Stream("s", READINGS, Source("nothing", {"payload": "json"}), "root")
    with pytest.raises(SourceError, match="no column 'value'"):
        from_json(spark.range(1), messages)
