"""A subscription as a streaming source: Spark's offsets are position tokens, and what Spark commits is acknowledged.

A batch that Spark runs again, after a crash of either side, reads the same rows: they are in the inbox until Spark has
committed them, and in the root log for a while after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headgate.spark.ahead import ReadAhead, tallies
from headgate.spark.options import SparkOptions
from headgate.spark.ranges import SubscriptionRange, cut, ranges_between, read_range
from headgate.wire.ledger import DELIVERED, counted_by

Offset = dict[str, Any]


def offset_of(position: str) -> Offset:
    """An offset: the position token, and for people what it says: rows read and given up, and how far."""
    found = [tally for _, tally in tallies(position).values()]
    counts = [counted_by(tally) for tally in found]
    return {
        "position": position,
        "upto": max((tally.mark for tally in found), default=0),
        "rows": sum(count[DELIVERED] for count in counts),
        "given_up": sum(sum(count.values()) - count[DELIVERED] for count in counts),
    }


class SubscriptionReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, with one reader of the subscription; executors read ranges."""

    def __init__(self, options: SparkOptions, target: pa.Schema) -> None:
        self.options = options
        self.target = target
        self._ahead: ReadAhead | None = None
        self._closed = False
        self._initial: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}

    def _follow(self, position: str | None) -> ReadAhead:
        """The reader, at a position: opened there where it is elsewhere, which is so after a start only."""
        if self._ahead is not None and position not in (None, self._ahead.position):
            self._ahead.close()
            self._ahead = None
        if self._ahead is None:
            self._ahead = ReadAhead(self.options, position)
            if self._closed:
                self._ahead.end_here()
        return self._ahead

    def initialOffset(self) -> Offset:
        """What was acknowledged when the query began; Spark asks again when it plans the first batch."""
        if self._initial is None:
            self._initial = offset_of(self._follow(None).position)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_rows_per_trigger`."""
        return ReadMaxRows(self.options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """What has come, up to the limit of this micro-batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.max_rows
        ahead = self._follow(start["position"])
        position = ahead.advance(most)
        return start if position == start["position"] else offset_of(position)

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes from now on belongs to a later query."""
        self._closed = True
        if self._ahead is not None:
            self._ahead.end_here()

    def partitions(self, start: Offset, end: Offset) -> list[SubscriptionRange]:
        """The ranges of a micro-batch; a batch that is run again after a start is one range at each root."""
        # Opening a reader acknowledges what lies before its position: the start, as the batch is not committed yet.
        ahead = self._ahead or self._follow(start["position"])
        marks = ahead.taken
        planned = marks and marks[-1].position == end["position"] and self.options.partitions > 1
        cuts = (
            cut(start["position"], marks, self.options.partitions) if planned else [start["position"], end["position"]]
        )
        return ranges_between(cuts, ahead.names)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        return read_range(partition, self.options, self.target)

    def commit(self, end: Offset) -> None:
        """Acknowledge what Spark has committed."""
        if self._ahead is None or self._ahead.is_before(end["position"]):
            self._follow(end["position"])  # which acknowledges what lies before it
        else:
            self._ahead.confirm(end["position"])

    def stop(self) -> None:
        """Acknowledge what was committed, and go."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
