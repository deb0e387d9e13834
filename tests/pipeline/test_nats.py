from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from nats.js import api
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, StringType, StructType

from headgate.fabric import FabricError, SyncFabric
from headgate.model import Schema, Source, Stream
from headgate.pipeline.sources import SourceError, check_source, read
from headgate.pipeline.sources.declarations import GAP, UNSENT, take_declarations
from headgate.pipeline.sources.nats import NatsReader, NatsSettings, SourceGapError, subject_pattern
from headgate.pipeline.validate import DEAD, validate
from headgate.wire.logs import Logs
from headgate.wire.parcel import Parcel, ParcelItem, SiteIntake
from headgate.wire.unsent import Unsent, encode_unsent

READINGS = Schema.of({"station": "string", "n": "int"})
TEXT = StructType().add("value", StringType()).add("_error", StringType())
ARROW = (
    StructType()
    .add("station", StringType())
    .add("n", IntegerType())
    .add("_raw", StringType())
    .add("_error", StringType())
)

pytestmark = pytest.mark.nats


@pytest.fixture
def fabric(nats_url):
    with SyncFabric(nats_url, Logs("nsrc")) as connected:
        yield connected


@pytest.fixture
def filled(fabric, request):
    """The input log of a stream named after the test, with 40 Arrow messages of 10 rows each."""
    name = request.node.name.split("[")[0][-40:]
    log = fabric.logs.input(name)
    fabric.ensure(log)
    fabric.publish_all(fabric.logs.published(name), [message(first) for first in range(0, 400, 10)])
    yield name
    fabric.run(fabric.fabric.delete(log))


def ipc(batch):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def message(first):
    return ipc(pa.record_batch({"station": ["s"] * 10, "n": pa.array(range(first, first + 10), pa.int64())}))


def reader(nats_url, schema=ARROW, **options):
    given = {name: str(value) for name, value in options.items()}
    return NatsReader(NatsSettings.of({"url": nats_url, "namespace": "nsrc", **given}), schema)


def at(source, sequence):
    """An offset in the log as it is now."""
    return {"sequence": sequence, "made": source.reportLatestOffset()["made"]}


def numbers(source, start, end):
    found = []
    for part in source.partitions(start, end):
        for batch in source.read(pickle.loads(pickle.dumps(part))):
            assert batch.schema.equals(source.target)
            found += batch.to_pylist()
    return found


@pytest.mark.parametrize("payload", ["arrow", "json"])
def test_what_senders_gave_up_is_read_in_its_place_and_garbage_is_a_dead_letter(nats_url, fabric, filled, payload):
    subject = fabric.logs.unsent(filled)
    given_up = Unsent(3, {"expired": 2, "latest": 1}, 1, 9)
    garbage = [
        b"[]",
        b"{}",
        b'{"n":1,"why":{"x":2},"seq":[0,0]}',
        b'{"n":1,"why":{"x":1},"seq":[0,0],"of":{"max(q)":[1]}}',
    ]
    fabric.publish_all(subject, [encode_unsent(given_up), *garbage])
    fabric.publish_all(fabric.logs.published(filled), [message(400) if payload == "arrow" else b"{}"])
    source = reader(nats_url, ARROW if payload == "arrow" else TEXT, stream=filled, payload=payload)
    end = source.latestOffset({"sequence": 40}, ReadAllAvailable())
    rows = numbers(source, {"sequence": 40}, end)
    errors = [row["_error"] for row in rows if row["_error"]]
    marked, *dead = errors
    assert marked.startswith(UNSENT)
    assert all("no declaration of a sender" in reason for reason in dead)
    assert len(dead) == len(garbage)
    batch = pa.RecordBatch.from_pydict({DEAD: errors})
    letters, declared = take_declarations(batch, DEAD)
    assert declared == given_up
    assert letters.num_rows == len(garbage)
    source.commit(end)
    left = fabric.read(fabric.logs.input(filled), ">", 0, limit=100)
    assert [stored.sequence for stored in left] == [end["sequence"]]


def test_offsets_are_sequences_and_ranges_are_exact(nats_url, filled):
    source = reader(nats_url, stream=filled, partitions=2)
    start = source.initialOffset()
    assert start == at(source, 0)
    assert source.latestOffset(start, ReadMaxRows(7)) == at(source, 7)
    end = source.latestOffset(start, ReadAllAvailable())
    assert end == at(source, 40) == source.reportLatestOffset()
    assert [row["n"] for row in numbers(source, start, end)] == list(range(400))
    assert [row["n"] for row in numbers(source, {"sequence": 3}, {"sequence": 5})] == list(range(30, 50))
    assert source.partitions(end, end) == []
    again = pickle.loads(pickle.dumps(source))
    assert [row["n"] for row in numbers(again, {"sequence": 39}, end)] == list(range(390, 400))
    again.stop()
    source.stop()


def test_available_now_ends_where_the_log_did(nats_url, filled, fabric):
    source = reader(nats_url, stream=filled)
    source.prepareForTriggerAvailableNow()
    fabric.publish(fabric.logs.published(filled), message(400))
    assert source.latestOffset(at(source, 0), ReadAllAvailable()) == at(source, 40)
    source.stop()


def test_committed_messages_are_purged_but_the_last(nats_url, filled, fabric):
    source = reader(nats_url, stream=filled)
    source.commit({"sequence": 30})
    log = fabric.logs.input(filled)
    assert fabric.get(log, 29) is None
    assert fabric.get(log, 30) is not None
    assert [row["n"] for row in numbers(source, {"sequence": 30}, {"sequence": 40})] == list(range(300, 400))
    assert reader(nats_url, stream=filled).initialOffset()["sequence"] == 29
    kept = reader(nats_url, stream=filled, purge="never")
    kept.commit({"sequence": 40})
    assert fabric.get(log, 35) is not None
    for each in (source, kept):
        each.stop()


@pytest.mark.parametrize("schema", [ARROW, TEXT], ids=["arrow", "text"])
def test_a_hole_fails_or_is_declared(nats_url, filled, fabric, schema):
    log = fabric.logs.input(filled)
    for sequence in (5, 6, 39, 40):
        fabric.run(fabric.fabric._js.delete_msg(log.name, sequence))
    fabric.purge(log, fabric.logs.published(filled), 3)
    payload = "arrow" if schema is ARROW else "json"
    strict = reader(nats_url, schema, stream=filled, payload=payload)
    with pytest.raises(SourceGapError, match=r"source gap: messages 1 to 2 of NSRC_IN_.*`on_gap: declare`"):
        numbers(strict, {"sequence": 0}, {"sequence": 40})
    with pytest.raises(SourceGapError, match="messages 39 to 40 of"):
        numbers(strict, {"sequence": 6}, {"sequence": 40})
    rows = numbers(
        reader(nats_url, schema, stream=filled, payload=payload, on_gap="declare"), {"sequence": 0}, {"sequence": 40}
    )
    gaps = [row["_error"].split(" of ")[0] for row in rows if row["_error"] and row["_error"].startswith(GAP)]
    assert gaps == [f"{GAP}: messages {first} to {last}" for first, last in ((1, 2), (5, 6), (39, 40))]
    if schema is ARROW:
        left = [row["n"] for row in rows if row["_error"] is None]
        assert left == [*range(20, 40), *range(60, 380)]


def test_another_subject_in_the_same_log_is_no_gap(nats_url, fabric):
    config = api.StreamConfig(name="NSRC_SHARED", subjects=["shared.>"], allow_direct=True)
    fabric.run(fabric.fabric._js.add_stream(config))
    for number in range(20):
        fabric.publish(f"shared.{'abc'[number % 3]}.x", json.dumps({"n": number}).encode())
    source = reader(nats_url, TEXT, subject="shared.*.x", payload="json")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert len(numbers(source, {"sequence": 0}, end)) == 20
    only = reader(nats_url, TEXT, subject="shared.b.>", log="NSRC_SHARED", payload="json")
    found = [json.loads(row["value"])["n"] for row in numbers(only, {"sequence": 0}, end)]
    assert found == list(range(1, 20, 3))
    assert reader(nats_url, TEXT, subject="shared.>", start="new").initialOffset()["sequence"] == 20
    assert reader(nats_url, TEXT, subject="shared.>", start="11").initialOffset()["sequence"] == 10
    fabric.run(fabric.fabric._js.delete_stream("NSRC_SHARED"))


def test_what_is_not_there_is_named(nats_url):
    with pytest.raises(SourceError, match=r"no log holds the subject 'nobody.here'.*give the option `log`"):
        reader(nats_url, subject="nobody.here").initialOffset()
    with pytest.raises(SourceError, match="there is no log 'NSRC_IN_unknown'"):
        reader(nats_url, stream="unknown").initialOffset()
    with pytest.raises(FabricError, match="cannot connect to NATS"):
        reader("nats://127.0.0.1:1", stream="x").initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subjcet": "a"}, "did you mean 'subject'"),
        ({"payload": "jason"}, "did you mean 'json'"),
        ({"on_gap": "ignore"}, "write one of fail, declare"),
        ({"start": "0"}, "write first, new or a sequence"),
        ({"max_messages_per_trigger": "none"}, "write a number above 0"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(options, message):
    with pytest.raises(SourceError, match=message):
        check_source(Stream("s", READINGS, Source("nats", options), "root"))


def test_wildcards_are_those_of_nats():
    cases = {"a.b": ("a.b", "a.c"), "a.*": ("a.b", "a.b.c"), "a.>": ("a.b.c", "a"), "*.b": ("x.b", "x.y.b")}
    for pattern, (inside, outside) in cases.items():
        assert subject_pattern(pattern).fullmatch(inside)
        assert not subject_pattern(pattern).fullmatch(outside)


def run(frame, directory):
    """Every row that the directory's query has written so far, and the sizes of this run's micro-batches."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "rows"))
    query.awaitTermination()
    rows = frame.sparkSession.read.parquet(str(directory / "rows")).toArrow().to_pylist()
    return rows, [progress["numInputRows"] for progress in query.recentProgress]


@pytest.mark.long
@pytest.mark.spark
def test_published_rows_arrive_once_over_a_restart(spark, nats_url, filled, fabric, tmp_path):
    stream = Stream(filled, READINGS, Source("nats"), "root", ("station",))
    server = {"url": nats_url, "namespace": "nsrc"}
    subject = fabric.logs.published(filled)
    fabric.publish(subject, b"not arrow")
    fabric.publish(subject, ipc(pa.record_batch({"station": [None, "s"], "n": [1, 2**40]})))

    def frame():
        return validate(read(spark, stream, max_rows_per_trigger=25, nats=server), stream)

    rows, sizes = run(frame(), tmp_path)
    assert [size for size in sizes if size] == [250, 153]
    assert sorted(row["n"] for row in rows if row[DEAD] is None) == list(range(400))
    dead = sorted(row[DEAD].split(":")[0] for row in rows if row[DEAD])
    assert dead == ["key column 'station' is null", "message 41 is not an Arrow stream", "message 42"]
    fabric.publish(subject, message(400))
    rows, sizes = run(frame(), tmp_path)
    assert [size for size in sizes if size] == [10]
    assert sorted(row["n"] for row in rows if row[DEAD] is None) == list(range(410))


@pytest.mark.spark
def test_json_lines_are_rows_and_bad_ones_dead_letters(spark, nats_url, filled, fabric, tmp_path):
    stream = Stream(filled, READINGS, Source("nats", {"payload": "jsonl", "start": "41"}), "root", ("station",))
    subject = fabric.logs.published(filled)
    fabric.publish(subject, b'{"station": "a", "n": 1}\n{"station": "b", "n": 2}\n{"n": 3}\noops\n')
    fabric.publish(fabric.logs.published(filled), b'{"station": "c"}\xff')
    rows, _ = run(validate(read(spark, stream, nats={"url": nats_url, "namespace": "nsrc"}), stream), tmp_path)
    assert sorted((row["station"], row["n"]) for row in rows if row[DEAD] is None) == [("a", 1), ("b", 2)]
    dead = {row[DEAD]: row["_raw"] for row in rows if row[DEAD]}
    assert dead == {
        "key column 'station' is null": None,
        "not one JSON object": "oops",
        "message 42 is not UTF-8": '{"station": "c"}\ufffd',
    }


@pytest.mark.parametrize("anew", [True, False])
def test_a_log_that_moved_backwards_is_refused_or_declared(nats_url, fabric, filled, anew):
    """Before, messages with numbers that had been read before were passed over without a word."""
    read = at(reader(nats_url, stream=filled), 40)
    log = fabric.logs.input(filled)
    if anew:
        fabric.run(fabric.fabric.delete(log))
        fabric.ensure(log)
        fabric.publish_all(fabric.logs.published(filled), [message(first) for first in range(1000, 1500, 10)])
    else:
        read["sequence"] = 45
    strict, lenient = (reader(nats_url, stream=filled, on_gap=word) for word in ("fail", "declare"))
    with pytest.raises(
        SourceGapError, match="was made anew" if anew else "ends with message 40, but messages up to 45"
    ):
        strict.latestOffset(read, ReadAllAvailable())
    end = lenient.latestOffset(read, ReadAllAvailable())
    (declared,) = numbers(lenient, read, end)
    assert declared["_error"].startswith("source gap: ")
    later = lenient.latestOffset(end, ReadAllAvailable())
    assert len(numbers(lenient, end, later)) == (500 if anew else 0)
    ahead = reader(nats_url, stream=filled, start="100")
    assert ahead.latestOffset(ahead.initialOffset(), ReadAllAvailable()) == ahead.initialOffset()


def test_what_was_published_at_sites_is_read_in_its_place_and_the_last_parcel_stays(nats_url, fabric, filled):
    carried, rows = (
        fabric.logs.carried(filled),
        [ParcelItem(7, "rows", "a-1", message(400)), ParcelItem(9, "rows", "", message(410))],
    )
    fabric.publish(carried, Parcel(filled, "paris", 0, 9, rows, {"paris": SiteIntake(9, 2, 0)}).encode())
    large = [ParcelItem(11, "large", "", b"9000000")]
    fabric.publish(carried, Parcel(filled, "paris", 9, 11, large, {"paris": SiteIntake(11, 3, 0)}).encode())
    fabric.publish(carried, b"garbage")
    fabric.publish_all(fabric.logs.published(filled), [message(420)])
    source = reader(nats_url, stream=filled)
    found = numbers(source, source.initialOffset(), at(source, 44))
    assert [row["n"] for row in found if row["_error"] is None] == list(range(430))
    errors = [row["_error"] for row in found if row["_error"] is not None]
    assert "a message of 9000000 bytes, published at paris, fits no parcel" in errors[0]
    assert "message 43" in errors[1]
    source.commit(at(source, 44))
    kept = fabric.read(fabric.logs.input(filled), ">", 0)
    assert [(stored.sequence, stored.subject) for stored in kept] == [
        (43, carried),
        (44, fabric.logs.published(filled)),
    ]
    source.stop()
