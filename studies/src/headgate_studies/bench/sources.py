"""Sources: Arrow batches against row tuples, JSON with and without our check, NATS ranges against a consumer."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headgate.model import Schema, Source, Stream
from headgate.pipeline.sources.generators import GENERATOR_SCHEMAS, generate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(rows: int = 200_000, messages: int = 4_000, repeats: int = 3, master: str = "local[*]") -> dict[str, Any]:
    """Ratios of our sources to the obvious way of doing the same, each the median of alternating runs."""
    from headgate_studies.session import make_session

    spark = make_session("bench sources", master)
    figures = {
        **_arrow_against_tuples(spark, rows, repeats),
        **_json_against_spark(spark, rows, repeats),
        **_ranges_against_consumer(messages, repeats),
    }
    print(f"{'figure':<44} {'value':>12}")
    for name, value in figures.items():
        print(f"{name:<44} {value:>12,.3f}")
    return figures


def _compare(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of both, run in turns after a warm-up of each."""
    one(), other()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, found in zip((one, other), times, strict=True):
            began = time.perf_counter()
            work()
            found.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


class TupleSource(DataSource):
    """The same rows as Python tuples, which is how Spark's documentation shows it."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tuple_generator"

    def schema(self) -> str:
        """The schema of `pulse`."""
        return GENERATOR_SCHEMAS["pulse"].ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's interface
        """A reader of two halves."""
        return TupleReader(int(self.options["limit"]))


class TupleReader(DataSourceReader):
    """Makes the rows vectorised, as our source does, and hands them over one by one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def partitions(self) -> list[InputPartition]:
        """Two halves."""
        return [InputPartition((0, self.limit // 2)), InputPartition((self.limit // 2, self.limit))]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a half."""
        start, stop = partition.value
        for first in range(start, stop, 10_000):
            batch = generate("pulse", 1, first, min(first + 10_000, stop))
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _arrow_against_tuples(spark: SparkSession, rows: int, repeats: int) -> dict[str, float]:
    spark.dataSource.register(TupleSource)

    def read(source: str) -> None:
        options = {"limit": str(rows)} | ({"kind": "pulse", "seed": "1"} if source == "generator" else {})
        spark.read.format(source).options(**options).load().write.format("noop").mode("overwrite").save()

    ours, tuples = _compare(lambda: read("generator"), lambda: read("tuple_generator"), repeats)
    return {"generator rows/s": rows / ours, "generator: speed-up over row tuples": tuples / ours}


def _json_against_spark(spark: SparkSession, rows: int, repeats: int) -> dict[str, float]:
    from pyspark.sql import functions as f

    from headgate.pipeline.sources.jsontext import from_json

    schema = Schema.of({"station": "string", "n": "bigint", "x": "double"})
    stream = Stream("s", schema, Source("kafka", {"payload": "json"}), "root")
    text = f.to_json(f.struct(f.lit("oslo").alias("station"), f.col("id").alias("n"), f.rand(1).alias("x")))
    lines = spark.range(rows).select(text.alias("value")).cache()
    lines.count()

    def save(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    ours, plain = _compare(
        lambda: save(from_json(lines, stream)),
        lambda: save(lines.select(f.from_json("value", schema.ddl).alias("row")).select("row.*")),
        repeats,
    )
    lines.unpersist()
    return {"json rows/s": rows / ours, "json: time over Spark's reader without the check": ours / plain}


def _ranges_against_consumer(messages: int, repeats: int) -> dict[str, float]:
    from nats.js import api

    from headgate.fabric import EmbeddedServer, SyncFabric
    from headgate.pipeline.sources.nats import read_range
    from headgate.wire.logs import Log

    payload = json.dumps({"pad": "x" * 1000}).encode()
    with (
        tempfile.TemporaryDirectory() as place,
        EmbeddedServer(Path(place), sync_always=False) as server,
        SyncFabric(server.url) as fabric,
    ):
        log = Log("BENCH", ("bench.in",), -1)
        fabric.ensure(log)
        for _ in range(0, messages, 500):
            fabric.publish_all("bench.in", [payload] * 500)
        last = 500 * -(-messages // 500)
        client = fabric.fabric._js  # noqa: SLF001 - the peer is nats-py itself

        def ours() -> None:
            assert sum(len(found) for found in read_range(fabric, "BENCH", 1, last + 1)) == last

        async def consume() -> None:
            config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE)
            subscription = await client.pull_subscribe("bench.in", stream="BENCH", config=config)
            left = last
            while left:
                left -= len(await subscription.fetch(min(512, left), timeout=10))
            await subscription.unsubscribe()

        mine, peer = _compare(ours, lambda: fabric.run(consume()), repeats)
    return {"nats messages/s": last / mine, "nats: speed-up over a pull consumer": peer / mine}
