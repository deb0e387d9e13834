"""`headgate bench shares`: what filters of one identity that the index decides cost others, served whole and in part.

Two thousand ordinary filters are matched without and with those of one identity, at the default limit of subscriptions,
each of which takes every row: there is no filter of the index that costs more. Then these are served on a part of the
rows, as they are while a stream is behind (`headgate.matching.indexed_shares`). Figures are CPU time for a row: to look
it up, to write its classes, to count them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headgate.filters import parse_filter
from headgate.matching.definitions import ClassGroup, RowReading
from headgate.matching.live import LiveIndex
from headgate.matching.metering import Meter
from headgate.model import Schema
from headgate.pipeline.counts import Counted
from headgate.pipeline.match import Spent, cut

SCHEMA = Schema.of({"n": "int", "x": "double", "y": "double"})
PARTS = (0.5, 0.125, 1 / 64)


def run(
    *, others: int = 2_000, filters: int = 1_000, rows: int = 20_000, seed: int = 1, repeats: int = 5
) -> dict[str, Any]:
    """Print the table and return the figures."""
    rng = np.random.default_rng(seed)
    batch = pa.record_batch(
        [pa.array(rng.integers(0, 1_000_000, rows), pa.int32()), rng.random(rows), rng.random(rows)], SCHEMA.arrow
    )
    drawn = rng.random((others, 2))
    honest = [f"x > {low:.4f} AND x < {low + 0.05:.4f} AND y < {top:.4f}" for low, top in drawn.tolist()]
    index = index_of(honest, batch)
    crowded = index_of([*honest, *(f"n >= -{each}" for each in range(1, filters + 1))], batch)
    table = Table(title=f"{others} filters, {filters} of one identity that take every row: us a row, CPU")
    for heading in ("", "look up", "write", "count", "all", "to without"):
        table.add_column(heading)
    figures: dict[str, Any] = {"others": others, "filters": filters, "rows": rows}
    tried: list[tuple[str, LiveIndex, float]] = [("without", index, 1.0), ("with", crowded, 1.0)]
    tried += [(f"served 1/{round(1 / part)}", crowded, part) for part in PARTS]
    base = 0.0
    for name, matched, part in tried:
        parts = {} if part == 1.0 else {others + each: part for each in range(filters)}
        taken = [figure / rows * 1e6 for figure in measure(matched, batch, parts, repeats)]
        base = base or sum(taken)
        table.add_row(name, *(f"{each:.2f}" for each in (*taken, sum(taken))), f"{sum(taken) / base:.1f}")
        figures[f"{name.replace(' ', '_').replace('1/', '')}_row_us"] = round(sum(taken), 3)
    Console(width=120).print(table)
    return figures


def index_of(texts: list[str], sample: pa.RecordBatch) -> LiveIndex:
    """The index of these filters, numbered in their order."""
    groups = [ClassGroup(text, np.array([each], np.uint32), [{}]) for each, text in enumerate(texts)]
    return LiveIndex.build(RowReading(SCHEMA, lambda text: parse_filter(text, SCHEMA)), groups, sample)


def measure(
    index: LiveIndex, batch: pa.RecordBatch, parts: Mapping[int, float], repeats: int
) -> tuple[float, float, float]:
    """The least CPU seconds of several tries: to look rows up, to write their classes, to count them."""
    meter, found = Meter(time.thread_time), []
    index.measure(meter)
    for turn in range(repeats):
        meter.serve(parts, turn)
        began = time.thread_time()
        lists = index.match(batch)
        matched_s, spent = time.thread_time() - began, Spent()
        list(cut(batch, lists, 1 << 30, spent))
        began = time.thread_time()
        Counted().add(lists)
        found.append((matched_s, spent.class_s, time.thread_time() - began))
    least = np.min(np.array(found), axis=0)
    return float(least[0]), float(least[1]), float(least[2])
