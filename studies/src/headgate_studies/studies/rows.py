"""Running a study's rows: on Spark as tasks, or one after another in this process for live studies."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate_studies.studies.progress import ProgressBar
from headgate_studies.studies.study import Parameters, Study, StudyError

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

_POLL_S = 0.25
_TASKS_A_CORE = 16


def run_here(study: Study, seeds: int) -> pd.DataFrame:
    """Every row, one after another, in this process."""
    work = study.work(seeds)
    found: list[str] = []
    with ProgressBar(study.name, len(work)) as bar:
        for done, (parameters, seed) in enumerate(work):
            found.append(_result(study.run, parameters, seed))
            bar.show(done + 1)
    return _frame(study, work, found)


def run_on_spark(study: Study, seeds: int, spark: SparkSession) -> pd.DataFrame:
    """Every row as part of a Spark job: rows of a DataFrame in, rows of results out.

    Rows are dealt out so that neighbours, which tend to take equally long, go to different tasks.
    """
    work = study.work(seeds)
    tasks = min(len(work), max(1, spark.sparkContext.defaultParallelism * _TASKS_A_CORE))
    order = [number for task in range(tasks) for number in range(task, len(work), tasks)]
    inputs = [(number, json.dumps(work[number][0]), work[number][1]) for number in order]
    frame = spark.createDataFrame(
        spark.sparkContext.parallelize(inputs, tasks), "number long, parameters string, seed long"
    )
    results = frame.mapInArrow(_mapper(study.run), "number long, result string")
    with ProgressBar(study.name, len(work)) as bar:
        table = _collect(spark, results, len(work), tasks, bar)
    found = dict(zip(table["number"].to_pylist(), table["result"].to_pylist(), strict=True))
    return _frame(study, work, [found[number] for number in range(len(work))])


def _mapper(run: Callable[[Parameters, int], Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                result = _result(run, json.loads(row["parameters"]), row["seed"])
                yield pa.record_batch({"number": [row["number"]], "result": [result]})

    return rows


def _collect(spark: SparkSession, results: Any, rows: int, tasks: int, bar: ProgressBar) -> pa.Table:
    """Collect in a thread of its own while this one shows how many tasks are done."""
    from pyspark import InheritableThread

    context = spark.sparkContext
    group = f"study-{id(results)}"
    outcome: list[Any] = []

    def collect() -> None:
        context.setJobGroup(group, "study", interruptOnCancel=True)
        try:
            outcome.append(results.toArrow())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.append(error)

    thread = InheritableThread(target=collect)
    thread.start()
    tracker = context.statusTracker()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            stages = [
                tracker.getStageInfo(stage)
                for job in tracker.getJobIdsForGroup(group)
                for stage in tracker.getJobInfo(job).stageIds
            ]
            bar.show(max((rows * stage.numCompletedTasks // tasks for stage in stages if stage), default=0))
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    if isinstance(outcome[0], BaseException):
        raise StudyError(f"the Spark job failed: {outcome[0]}") from outcome[0]
    bar.show(rows)
    return outcome[0]


def _result(run: Callable[[Parameters, int], Any], parameters: Parameters, seed: int) -> str:
    """One row's results as JSON: a list of rows, or what went wrong. One bad row does not lose the others' work."""
    try:
        rows = run(parameters, seed)
        return json.dumps({"rows": list(rows) if isinstance(rows, Sequence) else [rows]}, default=_plain)
    except Exception:  # noqa: BLE001 - reported with the row that caused it
        return json.dumps({"error": traceback.format_exc(limit=-8)})


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a study's results are numbers, text, lists and dicts, not {type(value).__name__}")


def _frame(study: Study, work: Sequence[tuple[dict[str, Any], int]], results: Sequence[str]) -> pd.DataFrame:
    """Parameters, seed and results as one frame, in the order of the declaration."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for (parameters, seed), result in zip(work, results, strict=True):
        found = json.loads(result)
        if "error" in found:
            raise StudyError(
                f"the study {study.name!r} failed for {json.dumps(parameters)}, seed {seed}:\n{found['error']}"
            )
        rows.extend({**parameters, "seed": seed, **row} for row in found["rows"])
    return pd.DataFrame(rows)
