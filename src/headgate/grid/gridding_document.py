"""The `gridding:` document of a stream: its source gives irregular stations, its subscribers get a complete grid.

```yaml
gridding:
  values: [temp, wind]   # columns that are interpolated
  radius: 2              # how far a station reaches, in the axes' unit
  tiles: 2               # regions along each axis, each computed on its own with its neighbours' border
  late: 1                # a time step is closed when so many later ones have begun; 0: its rows always come together
  idle: 30 s             # when nothing has come for so long, all open steps are closed; default: they wait
```
A row of the grid has the stream's columns: the axes, the time of its step, the values, and, where the stream has a
whole-number column `stations`, how many stations the cell is made of. All others are null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.grid.axis import parse_count, parse_number
from headgate.grid.errors import GridError, at, check_keys
from headgate.grid.layout import GridLayout, layout_of
from headgate.model import Schema, Stream, parse_duration

STATIONS = "stations"
_EXAMPLE = "{values: [temp], radius: 2}"


@dataclass(frozen=True, slots=True)
class Gridding:
    """How stations become a grid. `late` is how many time steps a straggler may lag behind the newest one.

    `idle_s` closes every open step when nothing has come for so long, None leaves them open.
    """

    values: tuple[str, ...]
    radius: float
    tiles: int = 2
    late: int = 1
    idle_s: float | None = None

    def closed_before(self, newest: int, before: int | None) -> int:
        """The step that all closed ones lie before, given the newest step seen and what was closed before.

        >>> Gridding(("t",), 1.0, late=1).closed_before(5, None), Gridding(("t",), 1.0, late=0).closed_before(5, 7)
        (5, 7)
        """
        closed = newest + 1 - self.late
        return closed if before is None else max(before, closed)


def gridding_of(stream: Stream) -> Gridding | None:
    """The gridding of a stream, None when its source gives the grid itself; a wrong document is refused."""
    document = stream.options.get("gridding")
    if document is None:
        return None
    layout = layout_of(stream)
    where = f"stream {stream.name!r}, gridding"
    if layout is None:
        raise GridError("gridding needs a grid", where=where, hint="give the stream a `grid:` with its x and y columns")
    return parse_gridding(document, layout, stream, where)


def parse_gridding(document: Any, layout: GridLayout, stream: Stream, where: str) -> Gridding:
    """The gridding of a document, with every column checked."""
    found = check_keys(document, ("values", "radius", "tiles", "late", "idle"), where, _EXAMPLE)
    if layout.time is None:
        raise GridError("gridding needs time steps", where=where, hint="give the grid a `time:`")
    values = found.get("values")
    names = [values] if isinstance(values, str) else values
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise GridError("gridding needs the columns to interpolate", where=at(where, "values"), hint=_EXAMPLE)
    for axis in (layout.x, layout.y):
        whole = pa.types.is_integer(stream.schema.column(axis.column).type)
        if whole and (axis.step != 1 or axis.centres(0) % 1):
            raise GridError(
                f"column {axis.column!r} holds whole numbers, and the cells of its axis have others",
                where=where,
                hint="declare it as double",
            )
    axes = {layout.x.column, layout.y.column, layout.time.column}
    for name in names:
        if name not in stream.schema.names:
            known = ", ".join(stream.schema.names)
            raise GridError(f"unknown column {name!r}", where=at(where, "values"), hint=f"columns are {known}")
        if name in axes or not pa.types.is_floating(stream.schema.column(name).type):
            raise GridError(
                f"column {name!r} is no value to interpolate",
                where=at(where, "values"),
                hint="a value is a double or a float, and neither an axis nor the time",
            )
    if "radius" not in found:
        raise GridError("gridding needs a radius", where=where, hint=_EXAMPLE)
    radius = parse_number(found["radius"], at(where, "radius"))
    if radius <= 0:
        raise GridError(f"a radius of {radius:g} reaches nothing", where=at(where, "radius"), hint="above 0")
    late = found.get("late", 1)
    if not isinstance(late, int) or isinstance(late, bool) or not 0 <= late <= 1000:
        raise GridError(f"{late!r} is no number of steps", where=at(where, "late"), hint="0 to 1000")
    made = axes | set(names) | {STATIONS}
    _only(stream.key, made, at(where, "values"), "key column")
    _only([stream.event_time] if stream.event_time else [], made, at(where, "values"), "event time")
    _only(map(str, stream.options.get("required", ())), made, at(where, "values"), "required column")
    tiles = parse_count(found.get("tiles", 2), 64, at(where, "tiles"), "tiles")
    return Gridding(tuple(names), radius, tiles, late, _idle(found.get("idle"), at(where, "idle")))


def _idle(given: Any, where: str) -> float | None:
    if given is None:
        return None
    try:
        return parse_duration(given)
    except (HeadgateError, TypeError) as error:
        raise GridError(f"{given!r} is no time to wait", where=where, hint="as in `30 s`, or `0 s`") from error


def _only(names: Iterable[str], made: set[str], where: str, what: str) -> None:
    for name in names:
        if name not in made:
            raise GridError(
                f"the {what} {name!r} would be null in every row of the grid",
                where=where,
                hint="a grid's rows have the axes, the time and the values: name one of those",
            )


def station_schema(stream: Stream) -> Schema:
    """The columns that the source of a stream gives: all, but for the count of stations that gridding adds."""
    return stream.schema.select([name for name in stream.schema.names if name != STATIONS])
