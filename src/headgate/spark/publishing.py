"""A stream as a sink: rows of a frame are published into a stream whose source is `nats`.

Nothing is published before all tasks of a micro-batch are done: they hand their rows to the driver, whose commit
publishes them in the order of the tasks. Every message has an id of the query, the batch and its rows, by which the
server knows it for two hours: a batch that is run again with the same rows in the same order is stored once. Where a
query gives its rows in another order when it runs again (after a shuffle), no row is lost, but those that were
published before the crash are published twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headgate.client import Client
from headgate.client.publishing import check_published
from headgate.errors import nearest
from headgate.model import Schema
from headgate.spark.options import SparkOptionError, SparkOptions
from headgate.spark.ranges import client_here
from headgate.wire.snapshot import Snapshot

_QUERY: Final = "sql.streaming.queryId"


@dataclass
class WrittenRows(WriterCommitMessage):
    """What one task wrote: its rows as an Arrow stream, and the query that it is of."""

    query: str
    data: bytes


def input_schema(snapshot: Snapshot, stream: str) -> Schema:
    """The columns of a stream that rows can be published into; any other stream is refused."""
    streams = snapshot.deployment.streams
    if stream not in streams:
        close = nearest(stream, streams)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(sorted(streams)) or 'none'}"
        raise SparkOptionError(f"no stream {stream!r}", hint=hint)
    check_published(streams[stream].source, stream)
    return streams[stream].source_schema


class RowPublisher:
    """Collects the rows of tasks and publishes them."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """The rows of one task, for the driver to publish."""
        sink, writer = pa.BufferOutputStream(), None
        for batch in iterator:
            if batch.num_rows:
                writer = writer or pa.ipc.new_stream(
                    sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
                )
                writer.write_batch(batch)
        if writer is not None:
            writer.close()
        context = TaskContext.get()
        query = (context.getLocalProperty(_QUERY) if context else None) or ""
        return WrittenRows(query, sink.getvalue().to_pybytes())

    def publish(self, messages: list[Any], batch: int | None) -> None:
        """Publish what the tasks wrote; as one batch of a query where it is one."""
        written = [each for each in messages if each is not None and each.data]
        if not written:
            return
        table = pa.concat_tables(pa.ipc.open_stream(each.data).read_all() for each in written)
        key = None
        if batch is not None:
            content = hashlib.sha256()
            for chunk in table.combine_chunks().to_batches():
                content.update(chunk.serialize())
            key = f"spark.{written[0].query}.{batch}.{content.hexdigest()[:32]}"

        async def work(client: Client) -> None:
            await client.publish(self.options.writes, table, key=key)

        client_here(self.options).call(work)


class StreamPublisher(RowPublisher, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish a micro-batch; one that was published before is not stored again."""
        self.publish(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing was published yet."""


class FramePublisher(RowPublisher, DataSourceArrowWriter):
    """The sink of a batch write."""

    def commit(self, messages: list[Any]) -> None:
        """Publish a frame."""
        self.publish(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """Nothing was published yet."""
