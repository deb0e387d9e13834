"""Headgate in any Spark 4 session: subscriptions as sources, streams as sinks.

``headgate.spark.register(spark)``, then ``spark.readStream.format("headgate").option("subscription", "storms")``,
``spark.read.format("headgate")`` for a range, and ``writeStream.format("headgate").option("stream", "readings")``. The
driver and the executors need the base of Headgate (`pip install headgate`) beside PySpark, and nothing else of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.spark.columns import METADATA, given_up, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["METADATA", "given_up", "register", "rows"]


def register(spark: SparkSession) -> None:
    """Make the format `headgate` known to a session."""
    from headgate.spark.source import HeadgateSource

    spark.dataSource.register(HeadgateSource)
