"""From irregular stations to a complete grid: a cell gets the mean of the stations around it, the nearer the more.

The weight of a station is one over its squared distance, within a radius; a station at the centre of a cell decides
alone. A cell without a station in its radius is declared missing, never guessed. The result depends on the stations
within the radius only, so a region that also sees its neighbours' stations near the border gets exactly the cells that
the whole field would get.
"""

from __future__ import annotations

import numpy as np

from headgate.grid._jit import kernel
from headgate.grid.axis import Floats
from headgate.grid.layout import GridLayout
from headgate.grid.space import Ints

Window = tuple[int, int, int, int]


@kernel
def _spread(
    x: Floats, y: Floats, values: Floats, cx: Floats, cy: Floats, radius: float, period: float, out: Floats, used: Ints
) -> None:
    for row in range(cy.shape[0]):
        for column in range(cx.shape[0]):
            for v in range(values.shape[0]):
                total = 0.0
                weight = 0.0
                count = 0
                for i in range(x.shape[0]):
                    if np.isnan(values[v, i]):
                        continue
                    across = abs(x[i] - cx[column])
                    if period > 0.0:
                        across = across % period
                        across = min(across, period - across)
                    square = across * across + (y[i] - cy[row]) ** 2
                    if square > radius * radius:
                        continue
                    if square == 0.0:
                        total = values[v, i]
                        weight = 1.0
                        count = 1
                        break
                    total += values[v, i] / square
                    weight += 1.0 / square
                    count += 1
                if count:
                    out[v, row, column] = total / weight
                used[v, row, column] = count


def interpolate(
    layout: GridLayout, x: Floats, y: Floats, values: Floats, radius: float, window: Window | None = None
) -> tuple[Floats, Ints]:
    """Values at the cells of a window (first and past-last column, first and past-last row; the whole grid by default).

    `values` has a row per quantity and a column per station. Gives the values, NaN where a cell is missing, and how
    many stations each is made of.
    """
    if radius <= 0:
        raise ValueError("a radius is above 0")
    left, right, bottom, top = window or (0, layout.x.size, 0, layout.y.size)
    known = np.isfinite(x) & np.isfinite(y)
    order = np.lexsort((y[known], x[known]))  # one order of summation, whatever the rows' own
    x, y, values = x[known][order], y[known][order], np.ascontiguousarray(values[:, known][:, order])
    cx, cy = layout.x.centres(np.arange(left, right)), layout.y.centres(np.arange(bottom, top))
    out = np.full((len(values), len(cy), len(cx)), np.nan)
    used = np.zeros(out.shape, dtype=np.int64)
    period = layout.x.extent if layout.x.wrap else 0.0
    _spread(x, y, values, cx, cy, radius, period, out, used)
    return out, used


def tile_window(layout: GridLayout, tiles: int, tile: int) -> Window:
    """The cells of one of ``tiles * tiles`` regions, row by row."""
    row, column = divmod(tile, tiles)
    across = [layout.x.size * k // tiles for k in (column, column + 1)]
    up = [layout.y.size * k // tiles for k in (row, row + 1)]
    return across[0], across[1], up[0], up[1]


def tiles_near(layout: GridLayout, x: Floats, y: Floats, tiles: int, radius: float) -> tuple[Ints, Ints]:
    """Pairs of station and region for every region that a station matters to: its own and those within the radius."""
    found_rows, found_tiles = [], []
    for tile in range(tiles * tiles):
        left, right, bottom, top = tile_window(layout, tiles, tile)
        if left == right or bottom == top:
            continue
        low, high = layout.x.centres([left, right - 1])
        below, above = layout.y.centres([bottom, top - 1])
        across = np.maximum(np.maximum(low - x, x - high), 0)
        if layout.x.wrap:
            for shift in (-layout.x.extent, layout.x.extent):
                across = np.minimum(across, np.maximum(np.maximum(low - (x + shift), x + shift - high), 0))
        up = np.maximum(np.maximum(below - y, y - above), 0)
        near = np.flatnonzero(across**2 + up**2 <= radius**2 * (1 + 1e-9))
        found_rows.append(near)
        found_tiles.append(np.full(len(near), tile))
    return np.concatenate(found_rows).astype(np.int64), np.concatenate(found_tiles).astype(np.int64)
