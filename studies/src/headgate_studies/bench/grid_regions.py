"""Points against many regions in Spark: the index of the live job, a SQL join on bounds, a join on tiles, same answers.

The index is the compiled one that delivery classes get (`grid.bounds` turns regions into its boxes), mapped from a file
by the Spark workers. Each way runs on a few points right before it is timed, so that nobody pays for cold workers:
Spark replaces idle ones while a long join runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.coding import NO_NULLS
from headgate.matching.compiled.files import IndexStore
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.keys import float_keys

TILES = 128
_CHECK = 1_000_003


def boxes_of(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Boxes of 0.2 to 4 % a side, many small and few large, all over the unit square."""
    sides = np.minimum(0.002 * rng.pareto(1.2, (count, 2)) + 0.002, 0.04)
    low = rng.random((count, 2)) * (1 - sides)
    return np.stack([low[:, 0], low[:, 0] + sides[:, 0], low[:, 1], low[:, 1] + sides[:, 1]], axis=1)


def index_of(bounds: npt.NDArray[np.float64], sample: pa.RecordBatch | None = None) -> BoxIndex:
    """The compiled index of boxes ``x0 <= x < x1 and y0 <= y < y1``, numbered by their row."""
    kind = pa.float64()
    boxes = Boxes.unbounded(np.arange(len(bounds), dtype=np.uint32), 2)
    for d in range(2):
        boxes.exact[:, d, 0] = float_keys(bounds[:, 2 * d])
        boxes.exact[:, d, 1] = float_keys(bounds[:, 2 * d + 1]) - 1
    boxes.nulls[:] = NO_NULLS
    return BoxIndex.build([Attribute("x", kind), Attribute("y", kind)], boxes, None, sample)


def compare(subscriptions: int, sample: int, points: int, seed: int, *, warm: int = 200) -> dict[str, Any]:
    """Seconds of each way on the same points, and how many of them disagree on matches or their checksum.

    All ways take `sample` points; the plain join sits out the second round, of `points`.
    """
    from headgate_studies.session import make_session

    spark = make_session("headgate-bench-grid", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    rng = np.random.default_rng(seed)
    bounds = boxes_of(subscriptions, rng)
    at = time.perf_counter()
    index = index_of(bounds, pa.record_batch({"x": rng.random(4096), "y": rng.random(4096)}))
    found: dict[str, Any] = {"build_s": time.perf_counter() - at, "mismatches": 0}
    columns = dict(zip(("x0", "x1", "y0", "y1"), bounds.T, strict=True))
    boxes = spark.createDataFrame(pd.DataFrame({"s": np.arange(subscriptions), **columns})).cache()
    boxes.createOrReplaceTempView("boxes")
    tiled = spark.sql(_TILE.format(t=TILES)).cache()
    tiled.count()
    tiled.createOrReplaceTempView("tiled")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        IndexStore(Path(directory)).publish(1, index)
        ways: dict[str, Callable[[], tuple[int, int]]] = {
            "index": lambda: _index(spark, directory),
            "tiled_join": lambda: _sql(spark, _TILED.format(t=TILES)),
            "sql_join": lambda: _sql(spark, _JOIN),
        }
        few = _points(spark, warm, rng) if warm else None
        for size, names in ((sample, list(ways)), (points, ["index", "tiled_join"])):
            if not size:
                continue
            spots = _points(spark, size, rng)
            answers = {}
            for name in names:
                if few is not None:
                    few.createOrReplaceTempView("points")
                    ways[name]()
                spots.createOrReplaceTempView("points")
                at = time.perf_counter()
                answers[name] = ways[name]()
                found[f"{name}_{size}_s"] = time.perf_counter() - at
            found["mismatches"] += len(set(answers.values())) - 1
            found[f"matches_per_point_{size}"] = answers["index"][0] / size
            spots.unpersist()
    return found


def _points(spark: Any, count: int, rng: np.random.Generator) -> Any:
    places = pd.DataFrame({"p": np.arange(count), "x": rng.random(count), "y": rng.random(count)})
    spots = spark.createDataFrame(places).repartition(2).cache()
    spots.count()
    return spots


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


@lru_cache(maxsize=1)
def _opened(directory: str) -> BoxIndex:
    """The index in a worker process, mapped once."""
    return IndexStore(Path(directory)).open(1, verify=False)


def _index(spark: Any, directory: str) -> tuple[int, int]:
    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = _opened(directory)
        for batch in batches:
            found = index.match(batch)
            owner = np.repeat(batch.column("p").to_numpy(), found.counts())
            checks = (owner * 31 + found.ids.astype(np.int64) * 17) % _CHECK
            yield pa.record_batch({"n": [len(found.ids)], "c": [int(checks.sum())]})

    rows = spark.table("points").mapInArrow(sums, "n bigint, c bigint").collect()
    return sum(row["n"] for row in rows), sum(row["c"] for row in rows)
