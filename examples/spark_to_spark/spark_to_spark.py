"""A subscription as a streaming source of another Spark job: exactly once, by position tokens as Spark's offsets.

headgate up headgate.yaml                 # in one terminal
python spark_to_spark.py                  # in another one, in the same directory
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from headgate.client import SyncClient

Offset = dict[str, str]


class Subscription(DataSource):
    """The format `headgate`: options `name`, and `nats` and `namespace` or `state_dir`; the schema is yours to give."""

    @classmethod
    def name(cls) -> str:
        return "headgate"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return Reader(dict(self.options), schema.fieldNames())


class Reader(SimpleDataSourceStreamReader):
    """Reads what has come; an offset is a position token, which names everything that was delivered before it."""

    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        self.options, self.columns = options, columns

    def _client(self) -> SyncClient:
        state_dir = Path(self.options["state_dir"]) if "state_dir" in self.options else None
        namespace = self.options.get("namespace", "hg")
        return SyncClient(self.options.get("nats"), state_dir=state_dir, namespace=namespace)

    def _read(self, start: Offset, upto: int | None) -> tuple[list[tuple[Any, ...]], Offset]:
        """Rows behind an offset, up to a row number where one is given; a replay may be cut into other deliveries."""
        end, rows = start, []
        wanted = {"position": start["position"] or None, "timeout_s": 0.5}
        with self._client() as client, closing(client.subscribe(self.options["name"], **wanted)) as deliveries:
            for delivery in deliveries:
                for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                    if upto is None or seq <= upto:
                        rows.append(tuple(row[name] for name in self.columns))
                end = {"position": delivery.position, "upto": str(delivery.upto)}
                if len(rows) >= 10_000 if upto is None else delivery.upto >= upto:
                    break
        return rows, end

    def initialOffset(self) -> Offset:
        return {"position": "", "upto": "0"}

    def read(self, start: Offset) -> tuple[Iterator[tuple[Any, ...]], Offset]:
        rows, end = self._read(start, None)
        return iter(rows), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[Any, ...]]:
        return iter(self._read(start, int(end["upto"]))[0])


SCHEMA = "vehicle string, lat double, lon double, fuel double, at timestamp"


def main() -> None:
    spark = SparkSession.builder.appName("stopped vehicles").getOrCreate()
    spark.dataSource.register(Subscription)
    frame = spark.readStream.format("headgate").schema(SCHEMA).option("name", "stopped").load()
    query = frame.writeStream.format("console").option("checkpointLocation", "checkpoint").start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
