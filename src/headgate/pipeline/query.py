"""One streaming query per stream: source, validation, the match pass, the commit."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.fabric import SyncFabric
from headgate.grid.gridding_document import station_schema
from headgate.model import Stream
from headgate.pipeline.commit import commit, pin_batch
from headgate.pipeline.control import Controller
from headgate.pipeline.errors import Errors
from headgate.pipeline.gridding_stage import GriddingStage
from headgate.pipeline.indexes import IndexKeeper
from headgate.pipeline.match import STAGED_DDL, MatchPass
from headgate.pipeline.roots import own_rows
from headgate.pipeline.session import local_uri
from headgate.pipeline.sources import read
from headgate.pipeline.validate import validate
from headgate.pipeline.worker import Address
from headgate.wire.sealed import write_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def lineage_of(checkpoint: Path) -> str:
    """The identity of a checkpoint directory, written beside it when it is made."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    known = checkpoint / "lineage"
    if not known.exists():
        fresh = known.with_suffix(".new")
        fresh.write_text(uuid.uuid4().hex, encoding="utf-8")
        fresh.replace(known)
    return known.read_text(encoding="utf-8").strip()


class Batches:
    """What happens to each micro-batch of a stream, in the driver."""

    def __init__(
        self,
        address: Address,
        fabric: SyncFabric,
        stream: Stream,
        checkpoint: Path,
        new_lineage: bool = False,
        gridding: GriddingStage | None = None,
        told: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.gridding = gridding
        self.address = address
        self.fabric = fabric
        self.stream = stream
        self.lineage = lineage_of(checkpoint)
        self.new_lineage = new_lineage
        self.keeper = IndexKeeper(checkpoint.absolute() / "indexes", stream.name)
        self.control = Controller(stream)
        self.errors = Errors.read(fabric, stream.name)
        self._told = told
        self._purged = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Match, stage and commit one micro-batch."""
        began = time.perf_counter()
        name = self.stream.name
        pin = pin_batch(self.fabric, name, batch, self.control.plan)
        index = self.keeper.ensure(self.fabric, pin.version)
        demands = self.control.demands(self.fabric, pin.version)
        work = MatchPass(
            self.address,
            name,
            pin,
            os.getpid(),
            batch,
            self.control.row_cost_s,
            time.time(),
            index,
            demands.levels,
            demands.in_order,
        )
        rows = frame if self.gridding is None else self.gridding(frame, batch)
        staged = match(own_rows(rows, self.stream), work).collect()
        self.control.learn(staged)
        troubles = {row["trouble"] for row in staged if row["trouble"]}
        if troubles:
            self.keeper.complained(pin.version, troubles)
        manifest = commit(self.fabric, name, self.lineage, batch, pin, staged, new_lineage=self.new_lineage)
        self.new_lineage = False
        if manifest is not None:
            self.errors = self.errors.after(staged, self.fabric, name)
            self._report(batch, manifest.rows_in, staged, time.perf_counter() - began)
        self._purge()

    def _purge(self) -> None:
        """Free the context log of updates that every index in use has in it."""
        if self.keeper.base > self._purged:
            logs = self.fabric.logs
            self.fabric.purge(logs.root(self.stream.name), logs.context(self.stream.name), self.keeper.base)
            self._purged = self.keeper.base

    def _report(self, batch: int, rows: int, staged: list[Any], seconds: float) -> None:
        document = {
            "stream": self.stream.name,
            "state": "running",
            "batch": batch,
            "rows": rows,
            "batch_s": round(seconds, 4),
            "work_s": round(sum(row["busy_s"] for row in staged), 4),
            "match_s": round(sum(row["match_s"] for row in staged), 4),
            "class_s": round(sum(row["class_s"] for row in staged), 4),
            "class_bytes": sum(row["class_bytes"] for row in staged),
            "admission": self.control.method,
            "row_cost_s": self.control.row_cost_s,
            "update_cost_s": self.control.update_cost_s,
            "late_rows": self.control.late_rows,
            "time_ms": int(time.time() * 1000),
        }
        self.fabric.publish(self.fabric.logs.stats("job", self.stream.name), write_object(document))
        if self._told is not None:
            self._told(document)


def match(frame: DataFrame, work: MatchPass) -> DataFrame:
    """DataFrame -> DataFrame: validated rows in, what was staged out."""
    return frame.mapInArrow(work, STAGED_DDL)


def start_query(
    spark: SparkSession,
    stream: Stream,
    address: Address,
    fabric: SyncFabric,
    checkpoint: Path,
    *,
    trigger_s: float = 1.0,
    new_lineage: bool = False,
    shape: Callable[[DataFrame], DataFrame] | None = None,
    told: Callable[[Mapping[str, Any]], None] | None = None,
) -> StreamingQuery:
    """Start a stream's query. `shape` may repartition the rows before they are matched, `told` hears each report."""
    fabric.ensure(fabric.logs.root(stream.name))
    if stream.source.format == "nats":
        fabric.ensure(fabric.logs.input(stream.name))
    server = {"url": address.url, "namespace": address.logs.namespace, **address.options}
    gridding = GriddingStage.of(stream, checkpoint / "gridding")
    given = stream if gridding is None else replace(stream, schema=station_schema(stream))
    frame = validate(read(spark, given, nats=server), given)
    frame = frame if gridding is None else gridding.with_marks(frame)
    frame = shape(frame) if shape else frame
    work = Batches(address, fabric, stream, checkpoint, new_lineage, gridding, told)
    return (
        frame.writeStream.queryName(stream.name)
        .foreachBatch(work)
        .option("checkpointLocation", local_uri(checkpoint / "spark"))
        .trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
        .start()
    )
