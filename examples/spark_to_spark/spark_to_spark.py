"""A subscription as a streaming source of another Spark job, into Parquet, exactly once; and a stream as its sink.

headgate up headgate.yaml                 # in one terminal
python spark_to_spark.py                  # in another one, in the same directory
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headgate.spark

NOTHING: Mapping[str, str] = {}


def stopped(spark: SparkSession, options: Mapping[str, str] = NOTHING) -> DataFrame:
    """Vehicles that stand, as they come; the columns are those of the subscription."""
    return spark.readStream.format("headgate").option("subscription", "stopped").options(**options).load()


def keep(frame: DataFrame, directory: Path) -> Any:
    """Write every row into Parquet, once."""
    writer = frame.writeStream.format("parquet").option("path", str(directory / "stopped"))
    return writer.option("checkpointLocation", str(directory / "checkpoints" / "stopped")).start()


def warn(frame: DataFrame, directory: Path, options: Mapping[str, str] = NOTHING) -> Any:
    """Publish vehicles that stand with little fuel into the stream `warnings`, for its own subscribers."""
    warnings = frame.where("fuel < 20").select("vehicle", "fuel", "at")
    writer = warnings.writeStream.format("headgate").option("stream", "warnings").options(**options)
    return writer.option("checkpointLocation", str(directory / "checkpoints" / "warnings")).start()


def main() -> None:
    spark = SparkSession.builder.appName("stopped vehicles").getOrCreate()
    headgate.spark.register(spark)
    keep(stopped(spark), Path("lake"))
    warn(stopped(spark, {"subscription": "thirsty"}), Path("lake"))
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
