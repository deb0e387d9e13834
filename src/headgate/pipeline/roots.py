"""The rows of one region root: those that lie in its region, each row of a shared source at exactly one root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.grid import BoxRegion, layout_of, parse_region
from headgate.model import Stream
from headgate.model.roots import root_region
from headgate.pipeline.validate import DEAD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTSIDE = "it lies outside of the region of this root"


def own_rows(frame: DataFrame, stream: Stream) -> DataFrame:
    """The validated rows that belong to a stream's root; all of them where the stream is whole."""
    from pyspark.sql import functions as f

    mine, layout = root_region(stream), layout_of(stream)
    if mine is None or layout is None:
        return frame
    box = parse_region(mine.region, layout)
    assert isinstance(box, BoxRegion)
    x, y = (f.col(f"`{axis.column}`").cast("double") for axis in (layout.x, layout.y))
    on_grid = y.between(layout.y.low, layout.y.high)
    if layout.x.wrap:
        on_grid &= f.abs(x) < f.lit(float("inf"))
        x = f.lit(layout.x.low) + f.pmod(x - layout.x.low, f.lit(layout.x.extent))
    else:
        on_grid &= x.between(layout.x.low, layout.x.high)
    inside = _side(x, *box.x, layout.x.high)
    if box.x[1] > layout.x.high:
        inside |= x < box.x[1] - layout.x.extent
    known = f.coalesce(on_grid, f.lit(False))
    here = known & inside & _side(y, *box.y, layout.y.high)
    alive = f.col(DEAD).isNull()
    if mine.alone:
        return frame.withColumn(DEAD, f.when(alive & ~here, f.lit(OUTSIDE)).otherwise(f.col(DEAD)))
    return frame.where((alive & here) | (~alive | ~known) if mine.rest else alive & here)


def _side(value: Column, low: float, high: float, end: float) -> Column:
    """Between two bounds; the upper one belongs to it only where the axis ends."""
    return (value >= low) & ((value <= high) if high >= end else (value < high))
