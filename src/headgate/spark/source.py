"""The format `headgate`: what Spark asks for a reader or a writer."""

from __future__ import annotations

import os

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.spark.columns import check_columns, delivered_schema
from headgate.spark.options import SparkOptionError, SparkOptions
from headgate.spark.publishing import FramePublisher, StreamPublisher, input_schema
from headgate.spark.ranges import RangeReader
from headgate.spark.subscription import SubscriptionReader
from headgate.wire.snapshot import Snapshot


class HeadgateSource(DataSource):
    """Reads a subscription (`subscription`) or publishes into a stream (`stream`); see `headgate.spark.options`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headgate"

    def _options(self) -> SparkOptions:
        return SparkOptions.of(dict(self.options), os.environ)

    def schema(self) -> str:
        """The columns of the subscription, as it is now."""
        options = self._options()
        return delivered_schema(_snapshot(options), options.reads, metadata=options.metadata).ddl

    def _target(self, options: SparkOptions, schema: StructType) -> pa.Schema:
        has = delivered_schema(_snapshot(options), options.reads, metadata=options.metadata)
        fix = "leave out .schema(...), or ask for {type} and cast it in the query"
        check_columns(schema, has, f"the subscription {options.reads!r}", fix)
        return to_arrow_schema(schema, timezone="UTC")

    def streamReader(self, schema: StructType) -> SubscriptionReader:
        """A streaming source of the columns asked for."""
        options = self._options()
        for name, value in {"position": options.position, "after": options.after, "upto": options.upto}.items():
            if value is not None:
                raise SparkOptionError(
                    f"the option {name!r} is for batch reads", hint="a query goes on where its checkpoint is"
                )
        return SubscriptionReader(options, self._target(options, schema))

    def reader(self, schema: StructType) -> RangeReader:
        """A batch read of a range."""
        options = self._options()
        return RangeReader(options, self._target(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamPublisher:
        """The sink of a streaming query."""
        return StreamPublisher(self._writing(schema, overwrite))

    def writer(self, schema: StructType, overwrite: bool) -> FramePublisher:
        """The sink of a batch write."""
        return FramePublisher(self._writing(schema, overwrite))

    def _writing(self, schema: StructType, overwrite: bool) -> SparkOptions:
        options = self._options()
        if overwrite:
            raise SparkOptionError("a stream cannot be overwritten", hint="write with the mode `append`")
        has = input_schema(_snapshot(options), options.writes)
        fix = "write col({name!r}).cast({type!r})"
        check_columns(schema, has, f"the stream {options.writes!r}", fix)
        return options


def _snapshot(options: SparkOptions) -> Snapshot:
    """The deployment as it is now."""
    with options.connect() as client:
        return client.call(lambda each: each.snapshot())
