"""The Spark job on a standalone cluster with 1, 2 and 4 executors of one core each, and 500,000 profiles.

Every run reads the same files, in micro-batches of as many tasks as the largest cluster has executors. So does a run on
this machine without a cluster, whose rows and classes all others have to have. Figures are from the first commit to the
last. While no task runs, executors wait for the driver: that is the serial share, taken from Spark's event log, and
Amdahl's law says what it leaves to be gained by more executors. How long the index takes to reach executors is measured
before, by the functions that a micro-batch uses: the driver makes broadcast variables of its files, and each executor
writes them beside its work.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, SyncFabric
from headgate.matching.live import LiveIndex
from headgate.pipeline.session import local_uri
from headgate.pipeline.sharing import FileSharing, fetched
from headgate.pipeline.states import IndexRef
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate.wire.part import Part
from headgate_studies.bench.pipeline_load import PipelineLoad, PipelineRun
from headgate_studies.spark_cluster import SparkCluster
from headgate_studies.workloads.matching import FEW_MATCHES, MatchingWorkload

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PAPER: Final = (2, 4, 8, 16)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))

UInts = npt.NDArray[np.uint64]
Interval = tuple[float, float]


def run(
    profiles: int = 500_000,
    executors: Sequence[int] = (1, 2, 4),
    rows: int = 50_000,
    batches: int = 6,
    repeats: int = 2,
    seed: int = 1,
) -> dict[str, Any]:
    """Rows per second, index distribution and serial share by executors; `rows` are those of one task."""
    tasks, cores = max(executors), os.cpu_count() or 1
    workload = MatchingWorkload(profiles=profiles, narrowest=FEW_MATCHES.narrowest)
    rng = np.random.default_rng(seed)
    contexts = workload.contexts(rng)
    print(f"{cores} cores here; {tasks} tasks of {rows:,} rows in every micro-batch")
    figures: dict[str, Any] = {"cores": cores, "profiles": profiles, "rows_per_micro_batch": tasks * rows}
    differing = mismatches = 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        EmbeddedServer(Path(scratch) / "nats", sync_always=True) as server,
        SyncFabric(server.url, Logs(root_bytes=8 << 30)) as fabric,
        SparkCluster(Path(scratch) / "cluster") as cluster,
    ):
        place = Path(scratch)
        with session(f"local[{min(cores, tasks)}]", place, {}) as spark:
            load = PipelineLoad(spark, fabric, Address(server.url, fabric.logs), place, workload, tasks)
            index = load.index(contexts)
            load.write(rng, rows, batches)
            local = load.run("local", rows, index)
            mismatches = load.check(local, contexts)
            wanted = content_of(load.parts(local))
        print(f"without a cluster: {local.rows / local.seconds:,.0f} rows/s")
        figures["local_rows_per_s"] = round(local.rows / local.seconds)
        cluster.start_master()
        cluster.start_worker("worker", cores=tasks, memory=f"{tasks}g")
        cluster.wait(workers=1)
        for count in executors:
            settings = {
                "spark.cores.max": str(count),
                "spark.executor.cores": "1",
                "spark.executor.memory": "1g",
                "spark.driver.host": "127.0.0.1",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            }
            with session(cluster.url, place / f"of-{count}", settings) as spark:
                load.spark = spark
                reach = distribute(spark.sparkContext, load, index, count)
                runs = [load.run(f"on-{count}-{number}", rows, index) for number in range(repeats)]
            differing += sum(content_of(load.parts(each)) != wanted for each in runs)
            figures |= _figures(count, runs, reach, task_times(place / f"of-{count}" / "events"))
            print(
                f"{count} executors: {figures[f'rows_per_s_{count}']:,} rows/s, "
                f"serial share {figures[f'serial_share_{count}']:.1%} "
                f"({figures[f'serial_ms_per_micro_batch_{count}']:,} ms a micro-batch); index of {reach.megabytes:.1f} "
                f"MB: {reach.shared_s:.2f} s in the driver, on all executors {reach.reached_s:.2f} s later"
            )
    serial = figures[f"serial_share_{executors[0]}"]
    for count in _PAPER:
        figures[f"on_paper_speedup_{count}"] = round(amdahl(serial, count), 2)
    figures["on_paper_speedup_most"] = round(1 / max(serial, 1e-9), 1)
    told = ", ".join(f"{count}: {figures[f'on_paper_speedup_{count}']}" for count in _PAPER)
    print(f"on paper, times as fast as one executor with a core for each: {told}")
    figures |= {"runs_not_as_local": differing, "oracle_mismatches": mismatches}
    if differing or mismatches:
        raise HeadgateError(
            f"{differing} runs have other rows than without a cluster, {mismatches} lists differ from brute force",
            hint="this is a fault of the pipeline; report it",
        )
    return figures


@contextmanager
def session(master: str, place: Path, settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session with an event log in its directory, where every file is a task of its own."""
    from headgate_studies.session import make_session

    events = place / "events"
    events.mkdir(parents=True, exist_ok=True)
    ours = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": local_uri(events),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "5m",
        "spark.sql.files.openCostInBytes": "4m",
    }
    spark = make_session("bench cluster", master, {**ours, **settings})
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True, slots=True)
class IndexReach:
    """What it takes to have an index on executors: in the driver, and from then on until each of them has its files."""

    megabytes: float
    shared_s: float
    reached_s: float


def distribute(context: SparkContext, load: PipelineLoad, index: LiveIndex, executors: int) -> IndexReach:
    """Share an index once more, under another name, and let all executors take it at the same time."""
    from headgate.matching.compiled.saved import SavedIndexes

    saved = SavedIndexes(load.place / "shared-index")
    saved.save(1, index, {})
    paths = saved.store.files(1)
    slots = context.parallelize(range(executors), executors)
    slots.barrier().mapPartitions(_present).count()  # so that Python runs already
    began = time.perf_counter()
    reference = IndexRef(str(saved.store.directory), 1, 0, FileSharing(context).share(paths))
    shared_s = time.perf_counter() - began

    def take(_: Iterable[int]) -> Iterator[int]:
        yield len(list(Path(fetched(reference, "measured").directory).iterdir()))

    began = time.perf_counter()
    found = slots.barrier().mapPartitions(take).collect()
    reached_s = time.perf_counter() - began
    assert found == [len(paths)] * executors
    return IndexReach(sum(path.stat().st_size for path in paths) / 1e6, shared_s, reached_s)


def _present(_: Iterable[int]) -> Iterator[int]:
    import headgate.pipeline.sharing

    del headgate
    yield 1


def task_times(events: Path) -> list[Interval]:
    """When tasks ran, in milliseconds since 1970, by the event logs in a directory."""
    found = []
    for file in sorted(each for each in events.rglob("*") if each.is_file()):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                task = json.loads(line)["Task Info"]
                found.append((float(task["Launch Time"]), float(task["Finish Time"])))
    return found


def busy_ms(intervals: Iterable[Interval], start_ms: float, end_ms: float) -> float:
    """How long at least one of some intervals lasted between two times.

    >>> busy_ms([(0, 4), (3, 6), (8, 20)], 2, 10)
    6.0
    """
    total, reached = 0.0, start_ms
    for start, end in sorted(intervals):
        first, last = max(start, reached), min(end, end_ms)
        if last > first:
            total += last - first
            reached = last
    return total


def amdahl(serial: float, executors: int) -> float:
    """How many times as fast so many executors are as one, where this share of one's time is serial.

    >>> round(amdahl(0.5, 2), 3), amdahl(0.0, 4)
    (1.333, 4.0)
    """
    return 1 / (serial + (1 - serial) / executors)


def content_of(parts: Iterable[Part]) -> tuple[int, int, int]:
    """Rows, matches, and a sum over all rows of a hash of their values and classes, which their order does not change.

    A row that is missing, comes twice or has another class changes it.
    """
    rows = matches = total = 0
    for part in parts:
        hashed: UInts = np.zeros(part.rows.num_rows, np.uint64)
        for column in part.rows.columns:
            hashed = mixed(hashed + column.to_numpy(zero_copy_only=False).view(np.uint64))
        counts = part.classes.counts()
        of_row = np.repeat(np.arange(len(hashed)), counts)
        ids = mixed(part.classes.ids.astype(np.uint64) + np.uint64(1))
        classes = np.zeros(len(hashed), np.uint64)
        np.add.at(classes, of_row, ids)
        total = (total + int(mixed(hashed + classes).sum(dtype=np.uint64))) % (1 << 64)
        rows, matches = rows + len(hashed), matches + int(counts.sum())
    return rows, matches, total


def mixed(values: UInts) -> UInts:
    """A hash of each number (the last step of SplitMix64)."""
    first, second, third = _SHIFTS
    found = (values ^ (values >> first)) * _MIX[0]
    found = (found ^ (found >> second)) * _MIX[1]
    return np.asarray(found ^ (found >> third), np.uint64)


def _figures(count: int, runs: Sequence[PipelineRun], reach: IndexReach, tasks: list[Interval]) -> dict[str, Any]:
    serial_ms = [
        each.seconds * 1000 - busy_ms(tasks, each.first_ms, each.first_ms + each.seconds * 1000) for each in runs
    ]
    shares = [waited / (each.seconds * 1000) for waited, each in zip(serial_ms, runs, strict=True)]
    return {
        f"rows_per_s_{count}": round(statistics.median(each.rows / each.seconds for each in runs)),
        f"serial_share_{count}": round(statistics.median(shares), 4),
        f"serial_ms_per_micro_batch_{count}": round(
            statistics.median(waited / each.batches for waited, each in zip(serial_ms, runs, strict=True))
        ),
        f"index_mb_{count}": round(reach.megabytes, 1),
        f"index_shared_s_{count}": round(reach.shared_s, 3),
        f"index_reached_s_{count}": round(reach.reached_s, 3),
    }
