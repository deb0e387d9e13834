"""Reduction: time and memory of a link's buffer for many receivers, and the speed of every filter and digester.

Receivers with equal policies share one queue; with distinct policies each has its own references. The baseline of the
memory figures is one copy of the waiting rows per receiver, which is what a queue per receiver would hold. The baseline
of the time figures is one pack for one receiver.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.model import Schema
from headgate.reduction import Moment, parse_policy
from headgate.reduction.rows import row_bytes
from headgate_studies.bench.reduction_loop import hold_ups
from headgate_studies.models.link_buffer import LinkBuffer

_SCHEMA = Schema.of({"k": "int", "x": "double", "i": "int", "s": "string", "t": "timestamp", "tags": "array<string>"})
_DOCUMENTS: dict[str, Any] = {
    "match": {"drop": {"match": "^a", "attribute": "s"}},
    "within": {"drop": {"within": [-1, 1], "attribute": "x"}},
    "in_set": {"drop": {"in_set": ["a", "c"], "attribute": "s"}},
    "contain": {"drop": {"contain": "a", "attribute": "tags"}},
    "subset": {"drop": {"subset": ["a", "b"], "attribute": "tags"}},
    "supset": {"drop": {"supset": ["a", "b"], "attribute": "tags"}},
    "first": {"first": {"key": "k"}},
    "last": {"last": {"key": "k"}},
    "uniq": {"uniq": {"attribute": "s", "key": "k"}},
    "guniq": {"guniq": {"attribute": "i", "key": "k"}},
    "delta": {"delta": {"attribute": "x", "change": 0.5, "key": "k"}},
    "latest": {"latest": {"n": 10, "key": "k"}},
    "every": {"every": {"n": 3, "key": "k"}},
    "random": {"random": 0.25},
    "conflate": {"conflate": "k"},
    "thin_time": {"thin_time": {"step": "10 s", "key": "k"}},
    "extremes": {"extremes": {"attribute": "x", "step": "10 s", "key": "k"}},
    "thin_space": {"thin_space": {"x": "i", "y": "k"}},
    "max_age": {"max_age": {"age": "30 s", "attribute": "t"}},
    "priority": {"priority": {"attribute": "x"}},
    "tail": "tail",
    "aggregate": {"aggregate": {"of": ["x"], "window": "10 s", "key": "k"}},
    "drop_where": {"drop where": "x > 0 and i < 500"},
    "keep_where": {"keep where": "x > 0 and i < 500"},
}
_COMPARISONS = ("gt", "ge", "eq", "ne", "lt", "le")


def _rows(count: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    words = pa.array(["a", "b", "c", "d"])
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(0, 2 * count + 1, 2), pa.int32()), words.take(pa.array(rng.integers(0, 4, 2 * count)))
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rng.integers(0, 1000, count), pa.int32()),
            pa.array(rng.normal(size=count)),
            pa.array(rng.integers(0, 1000, count), pa.int32()),
            words.take(pa.array(rng.integers(0, 4, count))),
            pa.array(np.arange(count) * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            lists.cast(_SCHEMA.column("tags").type),
        ],
        schema=_SCHEMA.arrow,
    )


def run(
    receivers: Any = (10, 1000, 10_000), rows: int = 1500, limit: int = 1000, filter_rows: int = 100_000
) -> dict[str, Any]:
    """`receivers` behind one link whose buffer holds `limit` rows, offered `rows` rows in blocks of 100. CPU time."""
    figures: dict[str, Any] = dict(_filters(filter_rows))
    counts = [int(receivers)] if isinstance(receivers, int) else [int(each) for each in receivers]
    single = _time(1, True, rows, limit)
    print(f"\none link, {rows} rows in blocks of 100, buffer of {limit} rows, a tenth of what comes is taken; CPU time")
    heads = ("receivers", "policies", "queues", "ms/pack", "of one", "ms/take", "KiB", "of copies")
    print(" ".join(f"{head:>9}" for head in heads))
    for count in counts:
        for equal in (True, False):
            found = _time(count, equal, rows, limit) | _memory(count, equal, limit)
            name = "equal" if equal else "distinct"
            found["pack_ratio_to_one"] = found["pack_ms"] / single["pack_ms"]
            cells = (found[key] for key in ("pack_ms", "pack_ratio_to_one", "take_ms", "held_kib", "of_copies"))
            print(f"{count:>9} {name:>9} {found['queues']:>9} " + " ".join(f"{cell:>9.4g}" for cell in cells))
            figures |= {f"{count}_{name}_{key}": round(value, 4) for key, value in found.items()}
    return figures | hold_ups(min(1000, max(counts)), limit)


def _link(receivers: int, equal: bool, limit: int) -> LinkBuffer:
    """A link to receivers of one class, with one policy or with fractions of their own."""
    link = LinkBuffer(_SCHEMA, limit)
    for number in range(receivers):
        fraction = 0.25 if equal else 0.1 + 0.4 * number / receivers
        document = {"levels": [{"random": fraction}, {"every": 2}], "digest": [{"max": "x"}]}
        link.add(f"r{number}", 1, parse_policy(document, _SCHEMA))
    return link


def _offer(link: LinkBuffer, batch: pa.RecordBatch, start: int) -> None:
    seqs = np.arange(start + 1, start + 101, dtype=np.uint64)
    link.offer(seqs, batch.slice(start, 100), np.arange(101), np.ones(100, dtype=np.int64), start / 100)


def _time(receivers: int, equal: bool, rows: int, limit: int) -> dict[str, float]:
    batch = _rows(rows)
    link = _link(receivers, equal, limit)
    pack_s = take_s = 0.0
    takes = 0
    for start in range(0, rows, 100):
        packs = link.packs
        began = time.process_time()
        _offer(link, batch, start)
        pack_s += time.process_time() - began if link.packs > packs else 0.0
        began = time.process_time()
        link.take(10)
        take_s += time.process_time() - began
        takes += 1
    return {
        "queues": len(link.groups),
        "packs": link.packs,
        "pack_ms": pack_s * 1e3 / max(1, link.packs),
        "take_ms": take_s * 1e3 / max(1, takes),
    }


def _memory(receivers: int, equal: bool, limit: int) -> dict[str, float]:
    """What a link holds after its first pack, as a ratio to a copy of the waiting rows for every receiver."""
    batch = _rows(limit + 100)
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    link = _link(receivers, equal, limit)
    for start in range(0, limit + 100, 100):
        _offer(link, batch, start)
    held = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrow
    tracemalloc.stop()
    return {"held_kib": held / 1024, "of_copies": held / (receivers * len(link) * float(row_bytes(batch).mean()))}


def documents() -> dict[str, Any]:
    """A policy's document for each filter: what is measured. Tests compare it with the list of filters."""
    return {name: {"drop": {name: 0.5, "attribute": "x"}} for name in _COMPARISONS} | _DOCUMENTS


def _filters(count: int) -> dict[str, float]:
    """Milliseconds of each filter on that many rows, and as a ratio to one pass of a comparison."""
    rows = _rows(count)
    took: dict[str, float] = {}
    for name, document in documents().items():
        found = parse_policy({"levels": [document]}, _SCHEMA).levels[0].filters[0]
        moment = Moment.of(rows, 100.0)
        found.keep(rows, None, moment)
        began = time.process_time()
        for _ in range(3):
            found.keep(rows, None, moment)
        took[name] = (time.process_time() - began) * 1e3 / 3
    print(f"filters on {count:,} rows, milliseconds (ratio to gt)")
    for name, taken in took.items():
        print(f"  {name:<12} {taken:>8.2f} {taken / took['gt']:>8.1f}")
    return {f"filter_{name}_ms": round(taken, 3) for name, taken in took.items()}
