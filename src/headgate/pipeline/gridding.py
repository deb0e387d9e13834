"""The gridding stage: rows of irregular stations in, a complete grid per time step out, region by region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headgate.grid import GridError, GridLayout
from headgate.grid.gridding import interpolate, tile_window, tiles_near

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def gridding(
    stations: DataFrame, layout: GridLayout, values: tuple[str, ...], radius: float, *, tiles: int = 2
) -> DataFrame:
    """Every cell of the grid at every time step that has a station: `step`, x, y, the values, `stations`.

    Each of ``tiles * tiles`` regions is computed on its own, from its stations and from those of its neighbours within
    the radius of the border, so that no seam shows. A cell that no station reaches is declared: its values are null
    and `stations` is 0. `step` is the number of the time step, 0 on a grid without time.
    """
    for axis in (layout.x, layout.y):
        if axis.column in values:
            raise GridError(f"{axis.column!r} is an axis, not a value")
    if tiles < 1 or radius <= 0:
        raise GridError("gridding needs at least one tile and a radius above 0")
    x, y = layout.x.column, layout.y.column
    numbers = ", ".join(f"`{name}` double" for name in values)

    def spread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            across, up = layout.positions(batch)
            steps = np.zeros(batch.num_rows, dtype=np.int64)
            known = np.isfinite(across) & np.isfinite(up)
            if layout.time is not None:
                steps, timed = layout.time.steps(batch)
                known &= timed
            kept = np.flatnonzero(known)
            rows, near = tiles_near(layout, layout.x.wrapped(across[kept]), up[kept], tiles, radius)
            rows = kept[rows]
            # A row without a place makes sure that a region which no station reaches is declared too.
            seen = np.unique(steps[kept])
            every_step, every_tile = np.repeat(seen, tiles * tiles), np.tile(np.arange(tiles * tiles), len(seen))
            nowhere = np.full(len(every_step), np.nan)
            columns = {
                "step": np.concatenate([steps[rows], every_step]),
                "tile": np.concatenate([near, every_tile]),
                "sx": np.concatenate([across[rows], nowhere]),
                "sy": np.concatenate([up[rows], nowhere]),
            }
            for name in values:
                cast = batch.column(name).cast(pa.float64())
                numbers_of = np.asarray(cast.fill_null(float("nan")).to_numpy(zero_copy_only=False))
                columns[name] = np.concatenate([numbers_of[rows], nowhere])
            yield pa.record_batch(columns)

    def cells(group: pa.Table) -> pa.Table:
        window = tile_window(layout, tiles, group.column("tile")[0].as_py())
        data = np.array([group.column(name).to_numpy() for name in values])
        found, used = interpolate(
            layout, group.column("sx").to_numpy(), group.column("sy").to_numpy(), data, radius, window
        )
        shown_x, shown_y = np.meshgrid(
            layout.x.centres(np.arange(window[0], window[1])), layout.y.centres(np.arange(window[2], window[3]))
        )
        step = group.column("step")[0].as_py()
        columns = {"step": np.full(shown_x.size, step), x: shown_x.ravel(), y: shown_y.ravel()}
        arrays = {name: pa.array(column) for name, column in columns.items()}
        for name, field in zip(values, found, strict=True):
            arrays[name] = pa.array(field.ravel(), from_pandas=True)
        arrays["stations"] = pa.array(used.max(axis=0).ravel().astype(np.int32))
        return pa.table(arrays)

    marked = stations.mapInArrow(spread, f"step bigint, tile bigint, sx double, sy double, {numbers}")
    out = f"step bigint, `{x}` double, `{y}` double, {numbers}, stations int"
    return marked.groupBy("step", "tile").applyInArrow(cells, out)
