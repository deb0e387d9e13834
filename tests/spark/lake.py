"""A program that writes a subscription into Parquet for ever: `python lake.py STATE_DIR SUBSCRIPTION DIRECTORY`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(state_dir: str, subscription: str, directory: Path) -> None:
    from pyspark.sql import SparkSession

    import headgate.spark
    from headgate.pipeline.java import java_home

    os.environ.update(JAVA_HOME=str(java_home()), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    headgate.spark.register(spark)
    frame = (
        spark.readStream.format("headgate")
        .option("subscription", subscription)
        .option("state_dir", state_dir)
        .option("max_rows_per_trigger", "150")
        .option("metadata", "true")
        .load()
    )
    rows = headgate.spark.rows(frame).selectExpr("_headgate.seq as seq", "vehicle", "fuel", "at")
    writer = rows.writeStream.format("parquet").option("path", str(directory / "rows"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
