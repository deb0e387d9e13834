"""Points against many regions in Spark: the region index, a SQL join on bounds, a join on tiles, same answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from headgate.grid import RegionIndex

TILES = 128
_CHECK = 1_000_003


def boxes_of(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Boxes of 0.2 to 4 % a side, many small and few large, all over the unit square."""
    sides = np.minimum(0.002 * rng.pareto(1.2, (count, 2)) + 0.002, 0.04)
    low = rng.random((count, 2)) * (1 - sides)
    return np.stack([low[:, 0], low[:, 0] + sides[:, 0], low[:, 1], low[:, 1] + sides[:, 1]], axis=1)


def compare(subscriptions: int, sample: int, points: int, seed: int, *, warm: int = 200) -> dict[str, Any]:
    """Seconds of each way on the same points, and how many of them disagree on matches or their checksum.

    All ways run on `warm` points first and on `sample` points then; the plain join sits out the last round of `points`.
    """
    from headgate.pipeline.session import make_session

    spark = make_session("headgate-bench-grid", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    rng = np.random.default_rng(seed)
    bounds = boxes_of(subscriptions, rng)
    at = time.perf_counter()
    index = RegionIndex.build(bounds, (0.0, 1.0), (0.0, 1.0))
    built = time.perf_counter() - at
    columns = dict(zip(("x0", "x1", "y0", "y1"), bounds.T, strict=True))
    boxes = spark.createDataFrame(pd.DataFrame({"s": np.arange(subscriptions), **columns})).cache()
    boxes.createOrReplaceTempView("boxes")
    tiled = spark.sql(_TILE.format(t=TILES)).cache()
    tiled.count()
    tiled.createOrReplaceTempView("tiled")
    found: dict[str, Any] = {"build_s": built}
    ways: dict[str, Callable[[], tuple[int, int]]] = {
        "sql_join": lambda: _sql(spark, _JOIN),
        "tiled_join": lambda: _sql(spark, _TILED.format(t=TILES)),
        "index": lambda: _index(spark, index),
    }
    wrong = 0
    for size, names in ((warm, list(ways)), (sample, list(ways)), (points, ["tiled_join", "index"])):
        if not size:
            continue
        places = pd.DataFrame({"p": np.arange(size), "x": rng.random(size), "y": rng.random(size)})
        spots = spark.createDataFrame(places).repartition(2).cache()
        spots.count()
        spots.createOrReplaceTempView("points")
        answers = {}
        for name in names:
            at = time.perf_counter()
            answers[name] = ways[name]()
            found[f"{name}_{size}_s"] = time.perf_counter() - at
        wrong += len(set(answers.values())) - 1
        found[f"matches_per_point_{size}"] = answers["index"][0] / size
        spots.unpersist()
    return {**found, "mismatches": wrong}


_TILE = """
select s, x0, x1, y0, y1, tx, ty from boxes
lateral view explode(sequence(cast(floor(x0 * {t}) as int), cast(least(floor(x1 * {t}), {t} - 1) as int))) as tx
lateral view explode(sequence(cast(floor(y0 * {t}) as int), cast(least(floor(y1 * {t}), {t} - 1) as int))) as ty
"""
_SUMS = f"select count(*) as n, coalesce(sum((p * 31 + s * 17) % {_CHECK}), 0) as c from"
_INSIDE = "x >= x0 and x < x1 and y >= y0 and y < y1"
_JOIN = f"{_SUMS} points join boxes on {_INSIDE}"
_TILED = (
    _SUMS
    + " points join tiled on tx = cast(floor(x * {t}) as int) and ty = cast(floor(y * {t}) as int)"
    + f" and {_INSIDE}"
)


def _sql(spark: Any, text: str) -> tuple[int, int]:
    row = spark.sql(text).collect()[0]
    return int(row["n"]), int(row["c"])


def _index(spark: Any, index: RegionIndex) -> tuple[int, int]:
    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            x, y, p = (batch.column(name).to_numpy() for name in ("x", "y", "p"))
            offsets, hits = index.match(x, y)
            owner = np.repeat(p, np.diff(offsets))
            checks = (owner * 31 + hits * 17) % _CHECK
            yield pa.record_batch({"n": [len(hits)], "c": [int(checks.sum())]})

    rows = spark.table("points").mapInArrow(sums, "n bigint, c bigint").collect()
    return sum(row["n"] for row in rows), sum(row["c"] for row in rows)
