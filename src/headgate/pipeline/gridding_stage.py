"""Gridding in a running stream: rows of stations are held until their time step is closed, then become its grid.

What is held is a file beside Spark's checkpoint, one for each micro-batch, made from the one before it and from the
batch's rows: a batch that is replayed finds the same rows and gives the same grid. A row that comes after its step was
closed, or has no place or time, becomes a dead letter with that reason. Stations are few, so they pass through the
driver; the grid is made by the workers (`pipeline.gridding`) and goes straight into the match pass.

Beside its own source a stream with `gridding:` reads `headgate-idle`, which gives a mark when nothing has come for the
declared `idle` time: a micro-batch of a mark alone closes every step that is open, so that the last steps of a source
that ends are not held for ever. Without `idle` there are no marks; the source is there all the same, so that it can be
declared later, without a new checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import HeadgateError
from headgate.grid import GridLayout, layout_of
from headgate.grid.gridding_document import STATIONS, Gridding, gridding_of, station_schema
from headgate.model import Stream, type_name
from headgate.pipeline.gridding import gridding
from headgate.pipeline.sources.idle import HELD
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.sources.reading import register_sources
from headgate.pipeline.validate import DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLOSED = b"closed_before"
LATE = "its time step was closed before it came"
NOWHERE = "it has no place or no time on the grid"
IDLE = "\0idle"
"""What a mark has for a reason; no dead letter's reason starts so."""


@dataclass(frozen=True, slots=True)
class OpenSteps:
    """Rows whose time step is open, and the step that all closed ones lie before (None while none is)."""

    rows: pa.Table
    closed_before: int | None


@dataclass(frozen=True)
class GriddingStage:
    """The stage of one stream; `directory` is where it keeps what it holds."""

    stream: Stream
    layout: GridLayout
    plan: Gridding
    directory: Path

    @classmethod
    def of(cls, stream: Stream, directory: Path) -> GriddingStage | None:
        """The stage of a stream, None when it has no `gridding:`."""
        plan, layout = gridding_of(stream), layout_of(stream)
        return None if plan is None or layout is None else cls(stream, layout, plan, directory)

    def __call__(self, frame: DataFrame, batch: int) -> DataFrame:
        """The grid of every step that this micro-batch closes, and its dead letters, in the form of a validated row."""
        taken = frame.toArrow()
        marks = pc.fill_null(pc.equal(taken[DEAD], IDLE), False)
        rows = taken.filter(pc.invert(marks))
        held, closed, dead = self.sort(self.load(batch - 1), rows, ended=0 == rows.num_rows < taken.num_rows)
        self.save(batch, held)
        letters = self._letters(frame.sparkSession, dead)
        return self._grid(frame.sparkSession, closed).unionByName(letters) if closed.num_rows else letters

    def with_marks(self, frame: DataFrame) -> DataFrame:
        """The validated rows of the stream's source, and a mark when nothing has come for the idle time."""
        from pyspark.sql import functions as f

        idle_s = math.inf if self.plan.idle_s is None else self.plan.idle_s
        options = {"directory": str(self.directory), "idle_s": str(idle_s)}
        register_sources(frame.sparkSession, "headgate-idle")
        marks = frame.sparkSession.readStream.format("headgate-idle").options(**options).load()
        nothing = {field.name: f.lit(None).cast(field.dataType) for field in frame.schema.fields}
        columns = {**nothing, DEAD: f.lit(IDLE)}
        return frame.unionByName(marks.select(*[column.alias(name) for name, column in columns.items()]))

    def sort(
        self, before: OpenSteps | None, taken: pa.Table, *, ended: bool = False
    ) -> tuple[OpenSteps, pa.Table, pa.Table]:
        """What stays, the rows of closed steps, and the dead letters, of what was held and what has come.

        When the source has `ended`, or seems to, every step is closed.
        """
        names = list(station_schema(self.stream).names)
        rows, dead = taken.filter(pc.is_null(taken[DEAD])), taken.filter(pc.is_valid(taken[DEAD]))
        steps, known = self._steps(rows)
        closed_before = before.closed_before if before is not None else None
        late = known & (steps < closed_before) if closed_before is not None else np.zeros(len(steps), dtype=bool)
        reasons = np.where(late, LATE, NOWHERE)[late | ~known]
        lost = (
            rows.filter(pa.array(late | ~known))
            .drop_columns([DEAD])
            .append_column(DEAD, pa.array(reasons, pa.string()))
        )
        dead = pa.concat_tables([dead, lost.select(dead.column_names).cast(dead.schema)])
        kept = rows.filter(pa.array(known & ~late)).select(names)
        if before is not None:
            kept = pa.concat_tables([before.rows.cast(kept.schema), kept])
        steps, _ = self._steps(kept)
        if len(steps):
            plan = replace(self.plan, late=0) if ended else self.plan
            closed_before = plan.closed_before(int(steps.max()), closed_before)
        done = steps < closed_before if closed_before is not None else np.zeros(len(steps), dtype=bool)
        return OpenSteps(kept.filter(pa.array(~done)), closed_before), kept.filter(pa.array(done)), dead

    def _steps(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The time step of each row, and whether it has one and a place."""
        assert self.layout.time is not None
        batch = rows.combine_chunks().to_batches()
        if not batch:
            return np.zeros(0, np.int64), np.zeros(0, dtype=bool)
        steps, known = self.layout.time.steps(batch[0])
        x, y = self.layout.positions(batch[0])
        return np.asarray(steps), np.asarray(known & np.isfinite(x) & np.isfinite(y))

    def _grid(self, spark: SparkSession, closed: pa.Table) -> DataFrame:
        from pyspark.sql import functions as f

        time = self.layout.time
        assert time is not None
        stations = spark.createDataFrame(closed, station_schema(self.stream).ddl)
        cells = gridding(stations, self.layout, self.plan.values, self.plan.radius, tiles=self.plan.tiles)
        made = {self.layout.x.column, self.layout.y.column, *self.plan.values, STATIONS}
        columns = []
        for column in self.stream.schema.columns:
            if column.name == time.column:
                found = f.col("step") if time.bin_us is None else f.timestamp_micros(f.col("step") * time.bin_us)
            else:
                found = f.col(f"`{column.name}`") if column.name in made else f.lit(None)
            columns.append(found.cast(type_name(column.type)).alias(column.name))
        nothing = f.lit(None).cast("string")
        return cells.select(*columns, nothing.alias(DEAD), nothing.alias(RAW))

    def _letters(self, spark: SparkSession, dead: pa.Table) -> DataFrame:
        from pyspark.sql import functions as f

        ddl = f"{station_schema(self.stream).ddl}, `{DEAD}` string, `{RAW}` string"
        letters = spark.createDataFrame(dead, ddl)
        if STATIONS in self.stream.schema.names and STATIONS not in letters.columns:
            kind = type_name(self.stream.schema.column(STATIONS).type)
            letters = letters.withColumn(STATIONS, f.lit(None).cast(kind))
        return letters

    # What is held between micro-batches

    def _file(self, batch: int) -> Path:
        return self.directory / f"{batch:012d}.arrow"

    def load(self, batch: int) -> OpenSteps | None:
        """What was held after a micro-batch; None where nothing ever was."""
        path = self._file(batch)
        if not path.exists():
            if batch >= 0:
                raise HeadgateError(
                    f"the stations that were held after micro-batch {batch} are gone",
                    where=str(path),
                    hint="restore the checkpoint directory as a whole, or delete it and start with --new-lineage",
                )
            return None
        with pa.OSFile(str(path), "rb") as file:
            rows = pa.ipc.open_file(file).read_all()
        mark = (rows.schema.metadata or {}).get(_CLOSED, b"")
        return OpenSteps(rows.replace_schema_metadata(None), int(mark) if mark else None)

    def save(self, batch: int, held: OpenSteps) -> None:
        """Keep what is held after a micro-batch; what a replay of it or of the next one cannot need is deleted."""
        self.directory.mkdir(parents=True, exist_ok=True)
        mark = b"" if held.closed_before is None else str(held.closed_before).encode()
        rows = held.rows.replace_schema_metadata({_CLOSED: mark})
        fresh = self._file(batch).with_suffix(".new")
        with pa.OSFile(str(fresh), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        fresh.replace(self._file(batch))
        for old in self.directory.glob(HELD):
            if int(old.stem) < batch - 1:
                old.unlink()
