"""How a stream's rows lie on a grid: the `grid:` document of a stream.

```yaml
grid:
  x: {column: lon, bounds: [-180, 180], size: 360, wrap: true}
  y: {column: lat, bounds: [-90, 90], size: 180}
  block: 16                        # points along one side of a block, a power of two
  time: {column: at, bin: 10 min, block: 64}   # or {tick: step, block: 64} for a column that counts
  stations: {column: id, at: {OSL: [10.7, 59.9], ...}}   # irregular points: ranked along a curve through them
```
Ranks depend on the row alone (its place, its event time or its tick), never on arrival, so every site and every replay
thins alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.grid.axis import Axis, Floats, parse_axis, parse_count, parse_number
from headgate.grid.errors import GridError, at, check_keys
from headgate.grid.permutation import line_rank, plane_rank
from headgate.grid.space import DzSpace, Ints
from headgate.model import Schema, Stream, parse_duration
from headgate.model.schema import SchemaError
from headgate.model.units import UnitError

T = TypeVar("T")

MAX_STATIONS = 1 << 20
_CURVE = DzSpace.round_robin({"x": 16, "y": 16})


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Time steps of a stream: bins of event time, or a column that counts ticks when `bin_us` is None."""

    column: str
    bin_us: int | None
    bits: int

    def steps(self, batch: pa.RecordBatch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Number of the time step of each row, and whether it has one."""
        column = batch.column(self.column)
        known = np.asarray(pc.is_valid(column))
        if self.bin_us is not None:
            ticks = pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64())
            return np.floor_divide(pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False), self.bin_us), known
        return pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False), known


@dataclass(frozen=True, slots=True)
class Stations:
    """Irregular points: each has its place along a z-order curve through all of them, and is ranked by that place.

    Every 2**j-th station along the curve is a subset of exactly that share, spread as the stations are.
    """

    column: str
    names: tuple[str, ...]
    bits: int

    def ranks(self, batch: pa.RecordBatch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Rank of each row's station, and whether it is a known one."""
        column = pc.cast(batch.column(self.column), pa.string())
        places = pc.index_in(column, value_set=pa.array(self.names, pa.string()))
        known = np.asarray(pc.is_valid(places))
        return line_rank(pc.fill_null(places, 0).to_numpy(zero_copy_only=False), self.bits), known


@dataclass(frozen=True)
class GridLayout:
    """The axes of a gridded stream. `bits` is log2 of a block's side."""

    x: Axis
    y: Axis
    bits: int
    time: TimeAxis | None = None
    stations: Stations | None = None
    _last: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def space_bits(self) -> int:
        """log2 of the number of spatial ranks."""
        return self.stations.bits if self.stations else 2 * self.bits

    def positions(self, batch: pa.RecordBatch) -> tuple[Floats, Floats]:
        """X and y of each row; NaN where a row has none."""
        return self._once(batch, "positions", lambda: (_floats(batch, self.x.column), _floats(batch, self.y.column)))

    def cells(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Cell numbers of each row; -1 where it lies outside of the grid."""

        def compute() -> tuple[Ints, Ints]:
            x, y = self.positions(batch)
            return self.x.cells(x), self.y.cells(y)

        return self._once(batch, "cells", compute)

    def space_ranks(self, batch: pa.RecordBatch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Spatial rank of each row, and whether it has a place on the grid."""

        def compute() -> tuple[Ints, npt.NDArray[np.bool_]]:
            if self.stations:
                return self.stations.ranks(batch)
            x, y = self.cells(batch)
            return plane_rank(x, y, self.bits), np.asarray((x >= 0) & (y >= 0))

        return self._once(batch, "space", compute)

    def time_ranks(self, batch: pa.RecordBatch) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Temporal rank of each row, and whether it has a time."""
        if self.time is None:
            raise ValueError("the grid has no time axis")
        time = self.time

        def compute() -> tuple[Ints, npt.NDArray[np.bool_]]:
            steps, known = time.steps(batch)
            return line_rank(steps, time.bits), known

        return self._once(batch, "time", compute)

    def _once(self, batch: pa.RecordBatch, what: str, compute: Callable[[], T]) -> T:
        """Ranks of the batch at hand are computed once and shared by all predicates of the stream.

        The entry pairs a batch with its own results and is replaced as a whole, so threads never mix batches up.
        """
        entry = self._last.get("entry")
        if entry is None or entry[0] is not batch:
            entry = self._last["entry"] = (batch, {})
        results: dict[str, T] = entry[1]
        if what not in results:
            results[what] = compute()
        return results[what]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": {}}


def _floats(batch: pa.RecordBatch, column: str) -> Floats:
    values = pc.cast(batch.column(column), pa.float64())
    return np.asarray(pc.fill_null(values, float("nan")).to_numpy(zero_copy_only=False))


def parse_layout(document: Any, schema: Schema, *, where: str | None = "grid") -> GridLayout:
    """The layout of a `grid:` document, with every column checked against the stream's schema."""
    example = "{x: {column: i, size: 64}, y: {column: j, size: 64}}"
    found = check_keys(document, ("x", "y", "block", "time", "stations"), where, example)
    for name in ("x", "y"):
        if name not in found:
            raise GridError(f"a grid needs its {name} axis", where=where, hint=f"write for example {example}")
    x, y = (parse_axis(found[name], at(where, name)) for name in ("x", "y"))
    _numeric(schema, x.column, at(where, "x"))
    _numeric(schema, y.column, at(where, "y"))
    if y.wrap:
        raise GridError("only the x axis can wrap", where=at(where, "y.wrap"))
    bits = _block(found.get("block", 16), 1 << 12, at(where, "block"))
    time = _parse_time(found["time"], schema, at(where, "time")) if "time" in found else None
    stations = _parse_stations(found["stations"], schema, x, y, at(where, "stations")) if "stations" in found else None
    return GridLayout(x, y, bits, time, stations)


def layout_of(stream: Stream) -> GridLayout | None:
    """The layout of a stream, None when it is not gridded."""
    document = stream.options.get("grid")
    return None if document is None else parse_layout(document, stream.schema, where=f"stream {stream.name!r}, grid")


def _column(schema: Schema, name: Any, where: str) -> pa.DataType:
    try:
        return schema.column(str(name)).type
    except SchemaError as error:
        raise GridError(error.message, where=where, hint=error.hint) from None


def _numeric(schema: Schema, name: str, where: str) -> None:
    kind = _column(schema, name, where)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise GridError(f"column {name!r} is not a number but {kind}", where=where, hint="an axis is a numeric column")


def _block(value: Any, most: int, where: str) -> int:
    side = parse_count(value, most, where, "block size")
    if side & (side - 1):
        raise GridError(f"a block of {side} points is no power of two", where=where, hint="write 8, 16, 32, ...")
    return side.bit_length() - 1


def _parse_time(document: Any, schema: Schema, where: str) -> TimeAxis:
    found = check_keys(document, ("column", "bin", "tick", "block"), where, "{column: at, bin: 10 min}")
    bits = _block(found.get("block", 64), 1 << 20, at(where, "block"))
    if ("tick" in found) == ("bin" in found) or ("column" in found) != ("bin" in found):
        raise GridError(
            "time steps are bins of a column or a column of ticks",
            where=where,
            hint="write {column: at, bin: 10 min} or {tick: step}",
        )
    if "tick" in found:
        kind = _column(schema, found["tick"], at(where, "tick"))
        if not pa.types.is_integer(kind):
            raise GridError(f"ticks are whole numbers, and {found['tick']!r} is {kind}", where=at(where, "tick"))
        return TimeAxis(str(found["tick"]), None, bits)
    kind = _column(schema, found["column"], at(where, "column"))
    if not pa.types.is_temporal(kind):
        raise GridError(f"column {found['column']!r} is not a time but {kind}", where=at(where, "column"))
    try:
        width = round(parse_duration(found["bin"]) * 1e6)
    except UnitError as error:
        raise GridError(error.message, where=at(where, "bin"), hint=error.hint) from None
    if width < 1:
        raise GridError("a bin lasts at least a microsecond", where=at(where, "bin"), hint="write for example 10 min")
    return TimeAxis(str(found["column"]), width, bits)


def _parse_stations(document: Any, schema: Schema, x: Axis, y: Axis, where: str) -> Stations:
    found = check_keys(document, ("column", "at"), where, "{column: id, at: {OSL: [10.7, 59.9]}}")
    places = found.get("at")
    if not isinstance(places, Mapping) or not 1 <= len(places) <= MAX_STATIONS:
        raise GridError("stations need their positions", where=at(where, "at"), hint="write {OSL: [10.7, 59.9], ...}")
    _column(schema, found.get("column"), at(where, "column"))
    names = [str(name) for name in places]
    spots = np.empty((len(names), 2))
    for row, (name, place) in enumerate(places.items()):
        if not isinstance(place, (list, tuple)) or len(place) != 2:
            raise GridError(f"{place!r} is no position", where=at(where, f"at.{name}"), hint="write [x, y]")
        spots[row] = [parse_number(value, at(where, f"at.{name}")) for value in place]
    fine = np.stack(
        [Axis("", 1 << 16, axis.low, axis.high, axis.wrap).cells(spots[:, d]) for d, axis in enumerate((x, y))], axis=1
    )
    outside = np.flatnonzero((fine < 0).any(axis=1))
    if len(outside):
        name = names[int(outside[0])]
        raise GridError(f"station {name!r} lies outside of the grid", where=at(where, "at"), hint="check the bounds")
    order = np.lexsort((np.array(names), _CURVE.encode(fine)))
    bits = max(1, (len(names) - 1).bit_length())
    return Stations(str(found["column"]), tuple(names[i] for i in order), bits)
