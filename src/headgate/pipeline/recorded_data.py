"""Recorded data through the match pass: the rows of each micro-batch that would have been, matched and encoded.

Rows are put into the order of their event times and cut where a micro-batch would have ended. Each piece goes through
`MatchPass.run`, as in the live job. Parts come back as a column instead of being staged in a log, so that executors
need to reach nothing but Spark. Admission control and the meter of slow filters are left out: both act on how busy a
machine is, and recorded data says nothing about that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.matching import ContextState
from headgate.matching.metering import Meter
from headgate.model import Stream
from headgate.pipeline.classes import index_of
from headgate.pipeline.derived_memory import DerivedMemory
from headgate.pipeline.deriving import with_columns
from headgate.pipeline.match import MatchPass
from headgate.pipeline.ordering import micros
from headgate.pipeline.roots import own_rows
from headgate.pipeline.sources.reading import read_recorded
from headgate.pipeline.staged import Staged
from headgate.pipeline.states import IndexRef, StreamState
from headgate.pipeline.validate import validate
from headgate.pipeline.worker import Address
from headgate.protocol.records import Pin
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 1
"""The version of the catalog that recorded rows are matched with."""
MAX_PAYLOAD: Final = 8 << 20
_DDL: Final = "tick bigint, rows bigint, staged binary, parts array<binary>"
_COLUMNS: Final = pa.schema(
    [("tick", pa.int64()), ("rows", pa.int64()), ("staged", pa.binary()), ("parts", pa.list_(pa.binary()))]
)


@dataclass(frozen=True, slots=True)
class Pace:
    """When recorded rows come: at their event times, `speed` times as fast, or evenly at a `rate` in rows a second.

    A micro-batch begins every `trigger_s`.
    """

    trigger_s: float = 1.0
    speed: float = 1.0
    rate_rows_per_s: float | None = None

    @property
    def tick_us(self) -> int:
        """Recorded time that one micro-batch covers."""
        return max(1, round(self.trigger_s * self.speed * 1e6))

    @property
    def tick_rows(self) -> int:
        """Rows of one micro-batch where they come evenly."""
        assert self.rate_rows_per_s is not None
        return max(1, round(self.rate_rows_per_s * self.trigger_s))


class MicroBatch(NamedTuple):
    """What one micro-batch stages: its number, None where no row of it has a time, rows read, and encoded parts.

    Parts and dead letters have places from 1 on in `staged`, in the order of `parts`.
    """

    number: int | None
    rows: int
    staged: Staged
    parts: tuple[bytes, ...]


class _Kept:
    """The log of a match pass that is read back: what it is given is handed on, dead letters are counted only."""

    def __init__(self) -> None:
        self.logs = Logs()
        self.max_payload = MAX_PAYLOAD
        self.parts: list[bytes] = []

    def publish_all(self, subject: str, messages: list[bytes]) -> list[int]:
        """Keep parts; their places are those in `parts`, from 1 on."""
        if subject.endswith(".dead"):
            return [0] * len(messages)
        first = len(self.parts) + 1
        self.parts.extend(messages)
        return list(range(first, first + len(messages)))


class _RecordedBench:
    """What a Spark worker matches recorded rows with: an index for each stream, compiled once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.fabric = _Kept()
        self._snapshot = snapshot
        self._held: dict[str, StreamState] = {}
        self._meter = Meter(lambda: 0.0)

    def state(self, stream: str, version: int, ref: IndexRef | None, context: int) -> StreamState:
        """The index of a stream; contexts are as the deployment file says."""
        if stream not in self._held:
            state = ContextState(index_of(self._snapshot, stream), context, lambda: 0.0)
            self._held[stream] = StreamState(self._snapshot.deployment.streams[stream], state, version, ref)
        return self._held[stream]

    def stricter(self, stream: str, version: int, tolerance: float, context: int) -> StreamState:
        """Nothing is withheld from anybody, so nobody asks."""
        del version, tolerance, context
        raise AssertionError(f"{stream}: no admission control while recorded data is read")

    def meter(self, stream: str) -> Meter:
        """Nothing is measured."""
        del stream
        return self._meter

    def memory(self, stream: str) -> DerivedMemory:
        """Derived columns were added before, so nobody asks."""
        raise AssertionError(f"{stream}: recorded rows come with their derived columns")


_benches: dict[bytes, _RecordedBench] = {}


@dataclass(frozen=True)
class RecordedPass:
    """The function that Spark runs on each partition of recorded, validated rows in order."""

    snapshot: bytes
    stream: str
    pace: Pace

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each piece of a micro-batch."""
        bench = _benches.get(self.snapshot)
        if bench is None:
            _benches.clear()
            bench = _benches[self.snapshot] = _RecordedBench(Snapshot.from_bytes(self.snapshot))
        work = MatchPass(Address("", Logs()), self.stream, Pin(VERSION))
        stream = bench.state(self.stream, VERSION, None, 0).stream
        for batch in batches:
            for number, rows in self._pieces(batch, stream):
                staged = Staged.of(work.run(bench, iter([rows])))
                parts, bench.fabric.parts = bench.fabric.parts, []
                row = [[number], [rows.num_rows], [_packed(staged.table)], [parts]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(value, field.type) for value, field in zip(row, _COLUMNS, strict=True)], schema=_COLUMNS
                )

    def _pieces(self, batch: pa.RecordBatch, stream: Stream) -> Iterator[tuple[int | None, pa.RecordBatch]]:
        """The rows of each micro-batch, by its number."""
        if self.pace.rate_rows_per_s is not None:
            for start in range(0, batch.num_rows, self.pace.tick_rows):
                yield None, batch.slice(start, self.pace.tick_rows)
            return
        assert stream.event_time is not None
        times = micros(batch, stream.event_time)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        ticks = times.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) // self.pace.tick_us
        unknown = int(np.argmax(known)) if known.any() else batch.num_rows  # rows without a time come first
        if unknown:
            yield None, batch.slice(0, unknown)
        edges = [unknown, *(np.flatnonzero(np.diff(ticks[unknown:])) + unknown + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(edges):
            if stop > start:
                yield int(ticks[start]), batch.slice(start, stop - start)


def match_recorded(spark: SparkSession, snapshot: Snapshot, stream: Stream, pace: Pace) -> DataFrame:
    """What the micro-batches of recorded rows stage, in their order. `stream.source` says where the rows are."""
    if "gridding" in stream.options:
        raise HeadgateError(
            f"stream {stream.name!r} makes a grid of stations, which keeps state from one micro-batch to the next",
            hint="replay the gridded rows: give the stream without `gridding`",
        )
    given = replace(stream, schema=stream.source_schema)
    frame = with_columns(own_rows(validate(read_recorded(spark, given), given), stream), stream)
    if stream.event_time is not None:
        frame = frame.orderBy(f"`{stream.event_time}`")
    return frame.mapInArrow(RecordedPass(snapshot.to_bytes(), stream.name, pace), _DDL)


def ticks_of(rows: Iterator[Any], pace: Pace) -> Iterator[tuple[float, MicroBatch]]:
    """Micro-batches with their ends, in seconds since 1970, or since the first row where rows come evenly.

    Rows without a time belong to the first micro-batch that has one.
    """
    if pace.rate_rows_per_s is not None:
        read = 0
        for row in rows:
            tick = _tick(row)
            read += tick.rows
            yield read / pace.rate_rows_per_s, tick
        return
    waiting: list[MicroBatch] = []
    for number, group in groupby(map(_tick, rows), key=lambda tick: tick.number):
        waiting += group
        if number is not None:
            yield (number + 1) * pace.tick_us / 1e6, _joined(waiting)
            waiting = []
    if waiting:
        yield 0.0, _joined(waiting)


def _joined(ticks: list[MicroBatch]) -> MicroBatch:
    """One micro-batch of its pieces, with the places of their parts counted on."""
    if len(ticks) == 1:
        return ticks[0]
    tables, parts = [], list[bytes]()
    for tick in ticks:
        places = tick.staged.table.column("log_sequence").to_numpy()
        moved = pa.array(np.where(places > 0, places + len(parts), 0))
        column = tick.staged.table.schema.get_field_index("log_sequence")
        tables.append(tick.staged.table.set_column(column, "log_sequence", moved))
        parts += tick.parts
    return MicroBatch(
        ticks[-1].number, sum(tick.rows for tick in ticks), Staged(pa.concat_tables(tables)), tuple(parts)
    )


def _tick(row: Any) -> MicroBatch:
    with pa.ipc.open_stream(bytes(row["staged"])) as reader:
        return MicroBatch(
            row["tick"], row["rows"], Staged(reader.read_all()), tuple(bytes(part) for part in row["parts"])
        )


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def placed(tick: MicroBatch, places: list[int]) -> Staged:
    """What was staged, with the places that its parts got in a log."""
    table = tick.staged.table
    given = np.array([0, *places], np.int64)
    column = pa.array(given[table.column("log_sequence").to_numpy()])
    return replace(
        tick.staged, table=table.set_column(table.schema.get_field_index("log_sequence"), "log_sequence", column)
    )
