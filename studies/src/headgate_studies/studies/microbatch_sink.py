"""A Python stream sink that takes its rows and gives nothing: the least that committing through a sink can cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

FORMAT = "headgate-taken"


@dataclass
class TaskCount(WriterCommitMessage):
    """How many rows one task took: what a task that stages parts would name."""

    rows: int


class TakenSink(DataSource):
    """The sink, registered by the study that measures it."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """A writer of one query."""
        return _Writer()


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskCount(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
