"""Options of the sources `netcdf` and `zarr`, checked without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.model import Schema, parse_duration
from headgate.pipeline.sources.grid_file import GridFile
from headgate.pipeline.sources.options import SourceError, check_names, count, happened, instant_us, one_of, rate

FORMATS = ("netcdf", "zarr")

OPTIONS: Mapping[str, str] = {
    "path": "the file, or the directory of a Zarr store",
    "time": "the dimension of the time steps (the one whose coordinate is a time)",
    "rate": "rows a second, whole time steps at once (the stream's expected rate)",
    "every": "instead of `rate`: how long a time step lasts, such as `1 s`",
    "times": "`recorded`: the file's own times; `live`: the time at which a step is replayed (`recorded`)",
    "limit": "rows in total; the stream ends there (the end of the file)",
    "pace": "`clock`, or `none`: every row is there at once (`clock`)",
    "origin": "the time at which step 0 is replayed (when the stream starts)",
    "catch_up": "how much of a pause is made up for at a restart, where no origin is given (60 s)",
    "max_rows_per_trigger": "rows in one micro-batch (500,000)",
    "partitions": "tasks that a large micro-batch is read by (2)",
}


@dataclass
class GridFileSettings:
    """The options of a recorded field, checked; `file` is opened where it is first needed."""

    file: GridFile
    given_rate: float
    every_s: float | None
    live: bool
    limit: int | None
    paced: bool
    origin_us: int | None
    max_rows: int | None
    partitions: int
    catch_up_s: float

    @classmethod
    def of(cls, form: str, options: Mapping[str, str]) -> GridFileSettings:
        """Check the options as they stand in a deployment file."""
        options = {name.lower(): str(value) for name, value in options.items()}
        check_names(form, options, OPTIONS)
        if "path" not in options:
            raise SourceError(f"the source {form!r} needs a file", hint="give its path as `path`")
        every = parse_duration(options["every"]) if "every" in options else None
        if every is not None and (every <= 0 or "rate" in options):
            raise SourceError("a time step lasts longer than 0", hint="write `every: 1 s`, or a `rate`, not both")
        return cls(
            file=GridFile(Path(options["path"]), form, options.get("time")),
            given_rate=rate(options, 100.0),
            every_s=every,
            live=one_of(options, "times", ("recorded", "live")) == "live",
            limit=count(options, "limit"),
            paced=one_of(options, "pace", ("clock", "none")) == "clock",
            origin_us=instant_us(options["origin"], "origin") if "origin" in options else None,
            max_rows=count(options, "max_rows_per_trigger"),
            partitions=count(options, "partitions", 2) or 2,
            catch_up_s=parse_duration(options.get("catch_up", "60 s")),
        )

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.given_rate if self.every_s is None else self.file.cells / self.every_s

    @property
    def total(self) -> int:
        """Rows that there are."""
        rows = self.file.steps * self.file.cells
        return rows if self.limit is None else min(rows, self.limit)

    def rows(self, start: int, stop: int, origin_us: int) -> pa.RecordBatch:
        """Rows [start, stop), with the time of their replay where that was asked for."""
        found = self.file.rows(start, stop)
        if not self.live:
            return found
        steps = pa.array(range(start, stop), pa.int64()).to_numpy() // self.file.cells
        times = origin_us + (steps * (self.file.cells * 1e6 / self.rate)).astype("int64")
        place = found.schema.get_field_index(self.file.along)
        kind = pa.timestamp("us", tz="UTC")
        return found.set_column(place, pa.field(self.file.along, kind), pa.array(times).cast(kind))

    def available(self, origin_us: int, now_us: int) -> int:
        """How many rows have happened by a time, whole steps at once."""
        if not self.paced:
            return self.total
        return min(happened(self.rate, self.file.cells, origin_us, now_us), self.total)

    @property
    def schema(self) -> Schema:
        """The file's columns; the time is one even where the file counts, if times are those of the replay."""
        from headgate.model import Column

        if not self.live:
            return self.file.schema
        kind = pa.timestamp("us", tz="UTC")
        return Schema(
            tuple(Column(c.name, kind if c.name == self.file.along else c.type) for c in self.file.schema.columns)
        )


def check_grid_file(form: str, options: Mapping[str, str], schema: Schema) -> None:
    """Refuse a recorded field that cannot be read or does not have the stream's columns."""
    own = GridFileSettings.of(form, options).schema
    for column in schema.columns:
        own.column(column.name)
