"""Rows of a gridded stream put together to a field: it fills in as rows arrive and refines with every further interval.

A `Field` is filled with the record batches that a subscriber receives, in any order and with repeats; a point that came
twice keeps its last value. It becomes an xarray Dataset (`to_xarray`), a Zarr store (`to_zarr`), or a picture in which
each point that is not there shows its nearest neighbour (`filled`). xarray and zarr come with the extra `grid`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.grid._jit import kernel
from headgate.grid.axis import Floats
from headgate.grid.layout import GridLayout
from headgate.grid.space import Ints
from headgate.parts import part


@kernel
def _nearest(known: npt.NDArray[np.bool_], rows: Ints, columns: Ints, wrap: bool) -> None:
    """For each cell the row and column of a known cell close to it, by two sweeps of neighbours' answers.

    `rows` starts as -1 where nothing is known. Distances are those of the answers themselves, so the result is the
    nearest cell but for rare ties of the sweep.
    """
    height, width = known.shape
    for _ in range(2):
        for forward in (True, False):
            for i in range(height):
                y = i if forward else height - 1 - i
                for j in range(width * (2 if wrap else 1)):
                    x = (j if forward else width * (2 if wrap else 1) - 1 - j) % width
                    best = np.inf
                    if rows[y, x] >= 0:
                        across = abs(columns[y, x] - x)
                        if wrap:
                            across = min(across, width - across)
                        best = across**2 + (rows[y, x] - y) ** 2
                    step = -1 if forward else 1
                    for dy, dx in ((0, step), (step, 0), (step, step), (step, -step)):
                        ny, nx = y + dy, x + dx
                        if wrap:
                            nx %= width
                        if 0 <= ny < height and 0 <= nx < width and rows[ny, nx] >= 0:
                            across = abs(columns[ny, nx] - x)
                            if wrap:
                                across = min(across, width - across)
                            away = across**2 + (rows[ny, nx] - y) ** 2
                            if away < best:
                                best = away
                                rows[y, x] = rows[ny, nx]
                                columns[y, x] = columns[ny, nx]


class Field:
    """Values of a gridded stream by time step, row and column.

    `values` names the columns to keep. `steps` keeps that many newest time steps; older ones make room.
    """

    def __init__(self, layout: GridLayout, values: tuple[str, ...], *, steps: int = 24) -> None:
        if not values or steps < 1:
            raise ValueError("a field keeps at least one column and one step")
        self.layout = layout
        self.values = values
        self.steps = steps
        self._data: dict[int, dict[str, Floats]] = {}
        self.points = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Put rows in their place; returns how many had one (rows outside of the grid or without time have none).

        Rows that come without the time column, by a subscription that leaves it out, all belong to one step.
        """
        x, y = self.layout.cells(batch)
        placed = (x >= 0) & (y >= 0)
        if self.layout.time is not None and self.layout.time.column in batch.schema.names:
            steps, known = self.layout.time.steps(batch)
            placed &= known
        else:
            steps = np.zeros(batch.num_rows, dtype=np.int64)
        columns = {
            name: np.asarray(
                pc.fill_null(pc.cast(batch.column(name), pa.float64()), float("nan")).to_numpy(zero_copy_only=False)
            )
            for name in self.values
        }
        for step in np.unique(steps[placed]).tolist():
            which = np.flatnonzero(placed & (steps == step))
            frame = self._frame(step)
            if frame is None:
                continue
            for name, column in columns.items():
                frame[name][y[which], x[which]] = column[which]
        count = int(placed.sum())
        self.points += count
        return count

    def _frame(self, step: int) -> dict[str, Floats] | None:
        if step not in self._data:
            if len(self._data) >= self.steps:
                oldest = min(self._data)
                if step < oldest:
                    return None
                del self._data[oldest]
            shape = (self.layout.y.size, self.layout.x.size)
            self._data[step] = {name: np.full(shape, np.nan) for name in self.values}
        return self._data[step]

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the time steps kept, oldest first."""
        return tuple(sorted(self._data))

    def at(self, name: str, step: int | None = None) -> Floats:
        """A column at a time step (the newest by default), NaN where no row came."""
        if not self._data:
            return np.full((self.layout.y.size, self.layout.x.size), np.nan)
        return self._data[max(self._data) if step is None else step][name]

    def share(self, name: str, step: int | None = None) -> float:
        """Share of the grid's points that have a value."""
        return float(np.isfinite(self.at(name, step)).mean())

    def filled(self, name: str, step: int | None = None, *, reach: float | None = None) -> Floats:
        """A column with the nearest known value where there is none; all NaN while nothing is known.

        With `reach`, cells that are more than so many cells away from any known one stay NaN.
        """
        shown = self.at(name, step)
        known = np.isfinite(shown)
        places = np.indices(shown.shape)
        rows, columns = np.where(known, places[0], -1), np.where(known, places[1], 0)
        _nearest(known, rows, columns, self.layout.x.wrap)
        found = np.where(rows >= 0, shown[rows, columns], np.nan)
        if reach is None:
            return found
        across = np.abs(columns - places[1])
        if self.layout.x.wrap:
            across = np.minimum(across, self.layout.x.size - across)
        return np.where(across**2 + (rows - places[0]) ** 2 <= reach**2, found, np.nan)

    def to_xarray(self) -> Any:
        """The field as an xarray Dataset over time step, y and x, with missing points as NaN."""
        xarray = part("xarray")
        steps = self.kept
        shape = (len(steps), self.layout.y.size, self.layout.x.size)
        axes: dict[str, Any] = {
            "step": np.array(steps, dtype=np.int64),
            self.layout.y.column: self.layout.y.centres(np.arange(self.layout.y.size)),
            self.layout.x.column: self.layout.x.centres(np.arange(self.layout.x.size)),
        }
        if self.layout.time is not None and self.layout.time.bin_us is not None:
            axes["step"] = (axes["step"] * self.layout.time.bin_us).astype("datetime64[us]")
        return xarray.Dataset(
            {
                name: (tuple(axes), np.array([self._data[step][name] for step in steps]).reshape(shape))
                for name in self.values
            },
            coords=axes,
        )

    def to_zarr(self, path: Path | str) -> None:
        """Write the field to a Zarr store, replacing what is there."""
        part("zarr")
        self.to_xarray().to_zarr(str(path), mode="w", consolidated=False)
