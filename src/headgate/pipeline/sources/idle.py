"""The Spark source `headgate-idle`: a mark when a stage holds rows and no micro-batch has come for a while.

Spark runs no micro-batch when a source has nothing new, so that what a stage holds back would stay there when its
source ends. This source, joined to the stream's own, gives one row then, which is in the offsets like any other: a
replay finds it in the same micro-batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

HELD = "*.arrow"
"""Files of what a stage holds, one for each micro-batch, named by its number; those of the last two are kept."""


class IdleSource(DataSource):
    """Registered as `headgate-idle`; options are the `directory` of what is held and `idle_s`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headgate-idle"

    def schema(self) -> str:
        """The number of the micro-batch after which nothing came."""
        return "after bigint"

    def streamReader(self, schema: StructType) -> IdleReader:  # noqa: ARG002 - Spark gives it
        """A reader of marks."""
        return IdleReader(Path(self.options["directory"]), float(self.options["idle_s"]))


class IdleReader(DataSourceStreamReader):
    """Offsets are `{"next": number}`, one more than the last micro-batch when the mark was given.

    Time is counted from when this reader first saw the newest file, which is after its micro-batch had ended and after
    any restart: neither a slow micro-batch nor a stop of the whole deployment counts as idle.
    """

    def __init__(self, directory: Path, idle_s: float) -> None:
        self.directory = directory
        self.idle_s = idle_s
        self.seen: tuple[Path, float] | None = None

    def initialOffset(self) -> dict[str, int]:
        """No mark yet."""
        return {"next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """One mark at most is ever due."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002 - Spark gives it
        """A further mark when rows are held and the newest micro-batch is old enough."""
        newest = max(self.directory.glob(HELD), default=None)
        if newest is None:
            return start
        now = time.monotonic()
        if self.seen is None or self.seen[0] != newest:
            self.seen = (newest, now)
        due = int(newest.stem) + 1
        if due <= start["next"] or now - self.seen[1] < self.idle_s or not held_rows(newest):
            return start
        return {"next": due}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002 - as above
        """The mark."""
        return [InputPartition(end["next"])]

    def read(self, partition: Any) -> Iterator[tuple[int]]:
        """The mark as a row."""
        yield (partition.value,)


def held_rows(path: Path) -> int:
    """How many rows a file holds."""
    with pa.OSFile(str(path), "rb") as file:
        return int(pa.ipc.open_file(file).read_all().num_rows)
