"""One streaming query per stream: source, validation, the match pass, the commit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.deriving import derivation_of
from headgate.errors import HeadgateError
from headgate.fabric import SyncFabric
from headgate.grid.gridding_document import station_schema
from headgate.model import Stream
from headgate.pipeline.causes import cause_of
from headgate.pipeline.checkpoint import FileEntry, SparkCheckpoint
from headgate.pipeline.commit import BatchReading, commit, pin_batch
from headgate.pipeline.control import UpdateController
from headgate.pipeline.deriving import by_key
from headgate.pipeline.errors import Errors
from headgate.pipeline.filelists import FileLists, files_read
from headgate.pipeline.gridding_stage import GriddingStage
from headgate.pipeline.indexes import IndexKeeper, Share
from headgate.pipeline.match import MatchPass
from headgate.pipeline.memory_keeper import MemoryKeeper
from headgate.pipeline.pacing import ON_ARRIVAL, TICK_S
from headgate.pipeline.planned import PlannedPass, set_pass
from headgate.pipeline.resuming import note, resume
from headgate.pipeline.roots import own_rows
from headgate.pipeline.sampled_rows import SampleKeeper
from headgate.pipeline.session import is_local, local_uri
from headgate.pipeline.shares import MatchingShares
from headgate.pipeline.sharing import FileSharing
from headgate.pipeline.slow_classes import slow_classes
from headgate.pipeline.sources import read
from headgate.pipeline.staged import STAGED_DDL, Staged
from headgate.pipeline.validate import validate
from headgate.pipeline.waterfall import BatchTimes
from headgate.pipeline.worker import Address
from headgate.protocol.reports import JobReport, SlowClass
from headgate.wire.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_AROUND: Final = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets")
"""What Spark does for a micro-batch before and after it calls us, as its progress names it."""

MOST_ROWS: Final = 500_000
"""The most rows that a micro-batch reads where its source has no limit of its own."""

TRIGGER_S: Final = 1.0
"""The longest interval between two micro-batches where nobody says another."""


class BatchError(HeadgateError):
    """A micro-batch failed; the message is the cause."""


class Batches:
    """What happens to each micro-batch of a stream, in the driver."""

    def __init__(
        self,
        address: Address,
        fabric: SyncFabric,
        stream: Stream,
        checkpoint: Path,
        lineage: str,
        gridding: GriddingStage | None = None,
        told: Callable[[JobReport], None] | None = None,
        share: Share | None = None,
    ) -> None:
        self.gridding = gridding
        self.address = address
        self.fabric = fabric
        self.stream = stream
        self.directory = checkpoint
        self.checkpoint = SparkCheckpoint(checkpoint / "spark")
        self.lineage = lineage
        self.lists = FileLists(fabric.fabric, stream.name)
        self.keeper = IndexKeeper(checkpoint.absolute() / "indexes", stream.name, share)
        self.control = UpdateController(stream)
        self.errors = Errors.read(fabric, stream.name)
        self._told = told
        self._purged = 0
        self._slow_batches: dict[int, int] = {}
        self.shares = MatchingShares(stream.name, TRIGGER_S)
        self._samples = SampleKeeper(stream.name)
        self.query: StreamingQuery | None = None
        self.rest: Callable[[float], object] | None = None
        self.planned = False
        self.remembered: MemoryKeeper | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Match, stage and commit one micro-batch.

        What Spark raises is passed on as its cause alone: when a query is stopped, Spark searches the text of the error
        with a pattern that recurses at each character, and a long one ends in a StackOverflowError.
        """
        began = time.perf_counter()
        try:
            self._run(frame, batch)
        except HeadgateError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Spark, Arrow or NATS raise
            raise BatchError(cause_of(error)) from None
        if self.rest is not None:
            self.rest(time.perf_counter() - began + sum(self._last_ms().get(name, 0.0) for name in _AROUND) / 1000)

    def _run(self, frame: DataFrame, batch: int) -> None:
        began = time.perf_counter()
        name = self.stream.name
        pin = pin_batch(self.fabric, name, batch, self.control.plan)
        index = self.keeper.ensure(self.fabric, pin.version)
        demands = self.fabric.run(self.control.demands(self.fabric.fabric, pin.version))
        pinned = time.perf_counter()
        work = MatchPass(
            self.address,
            name,
            pin,
            driver_pid=os.getpid(),
            row_cost_s=self.control.row_cost_s,
            began_s=time.time(),
            index=index,
            levels=demands.levels,
            in_order=demands.in_order,
            parts=self.fabric.run(self.shares.serve(self.fabric.fabric, pin.version)).parts,
            memory=None if self.remembered is None else self.remembered.begin(batch),
        )
        if self.planned:
            told = set_pass(frame, work)
        else:
            rows = frame if self.gridding is None else self.gridding(frame, batch)
            told = match(own_rows(rows, self.stream), work)
        staged = Staged.collected(told.collect())
        collected = time.perf_counter()
        self.control.learn(staged)
        if troubles := staged.troubles():
            self.keeper.complained(pin.version, troubles)
        reading = replace(self._reading(batch), memory=() if work.memory is None else work.memory.places)
        manifest = commit(self.fabric, name, self.lineage, batch, pin, staged, reading)
        if manifest is not None:
            if self.remembered is not None:
                self.remembered.learn(staged, manifest)
            ended = time.perf_counter()
            times = BatchTimes(
                manifest.lag_ms / 1000,
                pinned - began,
                collected - pinned,
                staged.total("busy_s"),
                staged.total("match_s"),
                ended - collected,
                staged.count("partition"),
            )
            note(self.directory, manifest)
            self.fabric.run(self.lists.purge())
            self.errors = self.errors.after(staged, self.fabric, name)
            self._report(batch, manifest.rows_in, staged, time.perf_counter() - began, times)
            self.shares.learn(staged, time.perf_counter() - began)
            self._samples.learn(staged.samples(), self.fabric)
        self._purge()

    def _reading(self, batch: int) -> BatchReading:
        """What the running micro-batch reads. Spark wrote its offsets before it called us, and would replay by them."""
        ranges = self.checkpoint.ranges(batch)
        new = files_read(self.checkpoint, ranges)

        def everything() -> dict[int, list[FileEntry]]:
            return files_read(self.checkpoint, [replace(each, before=None) for each in ranges])

        async def place(last: Manifest | None) -> int:
            return await self.lists.append(last, new, everything)

        return BatchReading(ranges, place)

    def _purge(self) -> None:
        """Free the context log of updates that every index in use has in it."""
        if self.keeper.base > self._purged:
            logs = self.fabric.logs
            self.fabric.purge(logs.root(self.stream.name), logs.context(self.stream.name), self.keeper.base)
            self._purged = self.keeper.base

    def _slow(self, staged: Staged) -> tuple[SlowClass, ...]:
        """The classes that took too long, with how often they did in a row."""
        self._slow_batches, found = slow_classes(self._slow_batches, staged)
        return found

    def _last_ms(self) -> Mapping[str, float]:
        """What Spark says about the micro-batch before this one."""
        progress = None if self.query is None else self.query.lastProgress
        return {} if progress is None else dict(progress["durationMs"])

    def _report(self, batch: int, rows: int, staged: Staged, seconds: float, times: BatchTimes) -> None:
        report = JobReport(
            stream=self.stream.name,
            state="running",
            batch=batch,
            rows=rows,
            batch_s=round(seconds, 4),
            work_s=round(staged.total("busy_s"), 4),
            match_s=round(staged.total("match_s"), 4),
            class_s=round(staged.total("class_s"), 4),
            class_bytes=staged.total("class_bytes"),
            admission=self.control.method,
            row_cost_s=self.control.row_cost_s,
            update_cost_s=self.control.update_cost_s,
            late_rows=self.control.late_rows,
            latency_s=times.waterfall(self._last_ms()),
            slow=self._slow(staged),
            derived=None if self.remembered is None else self.remembered.report(),
            **self.shares.report(),
            time_ms=int(time.time() * 1000),
        )
        self.fabric.publish(self.fabric.logs.stats("job", self.stream.name), report.encode())
        if self._told is not None:
            self._told(report)


def match(frame: DataFrame, work: MatchPass | PlannedPass) -> DataFrame:
    """DataFrame -> DataFrame: validated rows in, what was staged out."""
    return frame.mapInArrow(work, STAGED_DDL)


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """How a stream's query runs: how often, in how many partitions its rows are matched; `told` hears each report.

    With `new_lineage` a checkpoint that the root log does not lead up to is taken as it is. `rest` is called after each
    micro-batch with the seconds that it took, and returns when the next one may begin; with it `trigger_s` is no
    interval any more for sources that can be asked at any time (`pacing.ON_ARRIVAL`). `max_rows` bounds a batch of
    Headgate's own sources (messages, for `nats`) that do not say so themselves: after a burst or a pause what has piled
    up is committed piece by piece, and not when all of it is done.
    """

    trigger_s: float = TRIGGER_S
    partitions: int | None = None
    new_lineage: bool = False
    told: Callable[[JobReport], None] | None = None
    rest: Callable[[float], object] | None = None
    max_rows: int = MOST_ROWS


def start_query(
    spark: SparkSession,
    stream: Stream,
    address: Address,
    fabric: SyncFabric,
    checkpoint: Path,
    settings: QuerySettings,
) -> StreamingQuery:
    """Start a stream's query."""
    fabric.ensure(fabric.logs.root(stream.name))
    if stream.source.has_input:
        fabric.ensure(fabric.logs.input(stream.name))
    server = {"url": address.url, "namespace": address.logs.namespace, **address.options}
    gridding = GriddingStage.of(stream, checkpoint / "gridding")
    given = replace(stream, schema=stream.source_schema if gridding is None else station_schema(stream))
    derivation = derivation_of(stream)
    frame = validate(read(spark, given, max_rows_per_trigger=settings.max_rows, nats=server), given)
    frame = frame if gridding is None else gridding.with_marks(frame)
    if settings.partitions is not None and derivation is None:
        frame = frame.repartition(settings.partitions)
    compact_every = int(str(spark.conf.get("spark.sql.streaming.fileSource.log.compactInterval", "10")))
    lineage = resume(fabric, stream, checkpoint, accept=settings.new_lineage, compact_every=compact_every)
    share = None if is_local(str(spark.sparkContext.master)) else FileSharing(spark.sparkContext).share
    work = Batches(address, fabric, stream, checkpoint, lineage, gridding, settings.told, share)
    # A grid is made of rows of several micro-batches, and executors of a cluster get the index by the function itself.
    work.planned = gridding is None and share is None
    if derivation is not None:
        cores = settings.partitions or spark.sparkContext.defaultParallelism
        work.remembered = MemoryKeeper.of(fabric, stream.name, cores)
        frame = by_key(frame, derivation, work.remembered.partitions)
    frame = match(own_rows(frame, stream), PlannedPass(address)) if work.planned else frame
    work.rest = settings.rest if stream.source.format in ON_ARRIVAL else None
    every_s = settings.trigger_s if work.rest is None else min(TICK_S, settings.trigger_s)
    work.shares = MatchingShares(stream.name, settings.trigger_s)
    work.query = (
        frame.writeStream.queryName(stream.name)
        .foreachBatch(work)
        .option("checkpointLocation", local_uri(checkpoint / "spark"))
        .trigger(processingTime=f"{int(every_s * 1000)} milliseconds")
        .start()
    )
    return work.query
