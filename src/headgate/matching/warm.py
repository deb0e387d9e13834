"""Compiling the kernels ahead of time, so that the first batch of a worker does not wait for a compiler."""

from __future__ import annotations

from pathlib import Path


def warm_up(cache_dir: Path | None = None) -> None:
    """Compile every kernel and leave it in numba's cache, or load it from there.

    `cache_dir` is where processes that share kernels keep them; it counts only before the first use of the compiled
    index in this process. Setting `NUMBA_CACHE_DIR` in the environment of all of them does the same.
    """
    if cache_dir is not None:
        import numba

        cache_dir.mkdir(parents=True, exist_ok=True)
        numba.config.CACHE_DIR = str(cache_dir)
    import numpy as np
    import pyarrow as pa

    from headgate.matching.compiled.boxes import Attribute, Boxes
    from headgate.matching.compiled.index import BoxIndex
    from headgate.matching.compiled.keys import float_keys
    from headgate.matching.compiled.single import RowMatcher

    ids = np.arange(80, dtype=np.uint32)
    lows = np.arange(80.0)[:, None]
    index = BoxIndex.build([Attribute("x", pa.float64())], Boxes.of_floats(ids, lows, lows + 1))
    rows = pa.RecordBatch.from_pydict({"x": [0.5, None, 79.0]})
    index.match(rows)
    RowMatcher(index).match_floats(np.array([0.5]))
    index.change(ids[:1], np.zeros(1, np.int64), float_keys(np.array([0.25])), float_keys(np.array([0.75])))
    index.remove(ids[:1])
    index.add(Boxes.of_floats(ids[:1], lows[:1], lows[:1]))
    index.tighten()
    index.match(rows, threads=2)
