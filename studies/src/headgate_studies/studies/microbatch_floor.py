"""What one Spark micro-batch costs at least, and what Python in the loop adds. Measures time, so it runs alone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.pipeline.session import local_uri
from headgate_studies.studies import charts
from headgate_studies.studies.intervals import bootstrap_interval
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

_WARM = 4
_LOOPS = ("jvm", "python pass", "python source", "both", "source and sink")


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Times of micro-batches triggered one straight after the other, the first few left out."""
    from pyspark.sql import SparkSession

    from headgate_studies.session import make_session

    cold = SparkSession.getActiveSession() is None
    spark = make_session("microbatch-floor", str(parameters["master"]))
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    rows, batches = int(parameters["rows"]), int(parameters["batches"])
    if cold:
        for loop in ("jvm", "both"):
            _times(spark, loop, rows, 10, seed)
    times = _times(spark, str(parameters["loop"]), rows, batches, seed)
    return [{"batch": number, "ms": time} for number, time in enumerate(times)]


def _times(spark: SparkSession, loop: str, rows: int, batches: int, seed: int) -> list[int]:
    place = Path(tempfile.mkdtemp(prefix="headgate-floor-"))
    frame = _source(spark, loop, rows, batches + _WARM, seed, place)
    if loop in ("python pass", "both"):
        frame = frame.mapInArrow(_same, frame.schema)
    query = (
        _sink(spark, loop, frame)
        .option("checkpointLocation", local_uri(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
        shutil.rmtree(place, ignore_errors=True)
    return [progress["durationMs"]["triggerExecution"] for progress in found[_WARM:]]


def _sink(spark: SparkSession, loop: str, frame: DataFrame) -> Any:
    """`foreachBatch`, or a Python sink that could match in its tasks and so needs no pass before it."""
    if loop != "source and sink":
        return frame.writeStream.foreachBatch(_consume)
    from headgate_studies.studies.microbatch_sink import FORMAT, TakenSink

    spark.dataSource.register(TakenSink)
    return frame.writeStream.format(FORMAT)


def _source(spark: SparkSession, loop: str, rows: int, batches: int, seed: int, place: Path) -> DataFrame:
    """The same rows from the generator, or from Parquet files that were written from it, one a micro-batch."""
    options = {"kind": "pulse", "seed": str(seed), "limit": str(rows * batches)}
    if loop in ("python source", "both", "source and sink"):
        limited = {**options, "max_rows_per_trigger": str(rows), "partitions": "1"}
        return spark.readStream.format("generator").options(**limited).load()
    import pyarrow.parquet as pq

    from headgate.pipeline.sources.generators import GENERATOR_SCHEMAS, generate

    files = place / "files"
    files.mkdir()
    for batch in range(batches):
        made = generate("pulse", seed, batch * rows, (batch + 1) * rows)
        with pq.ParquetWriter(files / f"{batch:04}.parquet", made.schema) as writer:
            writer.write_batch(made)
    reader = spark.readStream.format("parquet").schema(GENERATOR_SCHEMAS["pulse"].ddl)
    return reader.option("maxFilesPerTrigger", 1).load(str(files))


def _same(batches: Any) -> Any:
    yield from batches


def _consume(frame: DataFrame, _: int) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _median(results: pd.DataFrame, loop: str, rows: int | None = None) -> float:
    found = results[results["loop"] == loop]
    if rows is not None:
        found = found[found["rows"] == rows]
    return float(np.median(found["ms"]))


def _python_in_the_loop(results: pd.DataFrame) -> tuple[str, str]:
    rows = int(results["rows"].min())
    one, both = _median(results, "python pass", rows), _median(results, "both", rows)
    words = f"{one:.0f} ms with a Python pass, {both:.0f} ms with a Python source too (medians at {rows:,} rows)"
    inside = [150 <= value <= 250 for value in (one, both)]
    return words, REPRODUCES if all(inside) else PARTLY if any(inside) else FAILS


def _rows_are_cheap(results: pd.DataFrame) -> tuple[str, str]:
    few, many = int(results["rows"].min()), int(results["rows"].max())
    added = _median(results, "both", many) - _median(results, "both", few)
    per_second = (many - few) / (added / 1000.0) if added > 0 else float("inf")
    verdict = REPRODUCES if per_second >= 300_000 else FAILS
    return f"{many - few:,} rows more take {added:.0f} ms more: {per_second / 1e6:.2f} M rows a second", verdict


def _adds(results: pd.DataFrame) -> tuple[str, str]:
    rows = int(results["rows"].min())
    floor, both = _median(results, "jvm", rows), _median(results, "both", rows)
    verdict = REPRODUCES if both < 1000.0 else FAILS
    return f"{floor:.0f} ms without Python, {both:.0f} ms with a Python source and pass: both below a second", verdict


def _pass_or_sink(results: pd.DataFrame) -> tuple[str, str]:
    found = [(_median(results, "both", rows), _median(results, "source and sink", rows)) for rows in _sizes(results)]
    words = "; ".join(
        f"{one:.0f} ms with a pass and foreachBatch, {other:.0f} ms with a sink at {rows:,} rows"
        for rows, (one, other) in zip(_sizes(results), found, strict=True)
    )
    better = [one <= other for one, other in found]
    return words, REPRODUCES if all(better) else PARTLY if any(better) else FAILS


def _sizes(results: pd.DataFrame) -> list[int]:
    return sorted(int(rows) for rows in results["rows"].unique())


def chart(results: pd.DataFrame) -> Figure:
    """Medians of a micro-batch's time by what is in the loop, with their intervals."""
    sizes = _sizes(results)
    figure, panels = charts.panels(len(sizes), width=4.6)
    for axes, rows in zip(panels, sizes, strict=True):
        shown = results[results["rows"] == rows]
        found = [
            bootstrap_interval(shown[shown["loop"] == loop]["ms"].to_numpy(), lambda values: float(np.median(values)))
            for loop in _LOOPS
        ]
        middle = [each.mean for each in found]
        errors = [[each.mean - each.low for each in found], [each.high - each.mean for each in found]]
        charts.draw_bars(axes, [loop.replace(" ", "\n") for loop in _LOOPS], middle, errors)
        axes.set(ylabel="ms a micro-batch (median)", title=f"{rows:,} rows")
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Medians by what is in the loop, and what Python adds as a ratio to the loop without it."""
    rows = int(results["rows"].min())
    medians = {loop: _median(results, loop, rows) for loop in _LOOPS}
    ratios = {f"ratio {loop}": round(value / medians["jvm"], 3) for loop, value in medians.items() if loop != "jvm"}
    return {**{f"ms {loop}": round(value, 1) for loop, value in medians.items()}, **ratios}


STUDY = Study(
    name="microbatch-floor",
    about="What one micro-batch of Spark Structured Streaming costs, without Python, with a Python pass, with a "
    "Python source, and with a Python sink in place of the pass.",
    parameters={"loop": list(_LOOPS), "rows": [1_000, 50_000], "master": ["local[*]"], "batches": [25]},
    run=run,
    chart=chart,
    statements=(
        Statement("A micro-batch with Python in the loop costs 150-250 ms (our design)", _python_in_the_loop),
        Statement("One pass handles about 1 M rows a CPU-second at 10-50 k rows a batch (our design)", _rows_are_cheap),
        Statement(
            "Committing from foreachBatch costs no more than a Python sink, the other place for it (our design)",
            _pass_or_sink,
        ),
        Statement("A trigger of one second leaves room on two cores (our design)", _adds),
    ),
    summary=summary,
    seeds=1,
    live=True,
    notes="Batches follow one another without a pause; the first four of each run are left out. Times are of the "
    "machine that the study ran on: the ratios carry over, the milliseconds do not.",
)
