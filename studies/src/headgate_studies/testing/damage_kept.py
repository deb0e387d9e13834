"""What Spark and publishers leave in logs, for the table of damages: memories of derived columns, rows in an outbox.

Both are read again after a damage as a job and a relay would read them.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headgate.deriving import Derivation, derivation_of
from headgate.errors import HeadgateError
from headgate.fabric import SyncFabric
from headgate.model import Schema, Source, Stream
from headgate.pipeline.derived_memory import DerivedMemory
from headgate.pipeline.deriving import ORDER, MemoryHeads, derived_rows
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.validate import DEAD
from headgate.wire.logs import Log, Logs

CARS: Final = {"car": "string", "at": "timestamp", "v": "double"}
_STREAM: Final = "cars"
_ROWS: Final = 30
_PIECES: Final = 2
"""A memory that is written whole is two messages: its keys, and its rows."""
_PUBLISHED: Final = ("away", "posts")
_TEXTS: Final = ("first", "second")


def _derivation() -> Derivation:
    options = {"derive": {"before": "previous(v)"}}
    stream = Stream(_STREAM, Schema.of(CARS), Source("json"), "home", key=("car",), event_time="at", options=options)
    found = derivation_of(stream)
    assert found is not None
    return found.of_partition(1)


def _batch() -> pa.RecordBatch:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [{"car": f"c{n}", "at": start + dt.timedelta(seconds=n), "v": float(n)} for n in range(_ROWS)]
    batch = pa.RecordBatch.from_pylist(rows, schema=Schema.of(CARS).arrow)
    for name in (DEAD, RAW):
        batch = batch.append_column(name, pa.nulls(_ROWS, pa.string()))
    return batch.append_column(ORDER, pa.array(range(_ROWS), pa.int64()))


def keep_more(logs: Logs, url: str) -> None:
    """Stage a memory, and publish rows at a site, which wait there."""
    with SyncFabric(url, logs) as fabric:
        derived_rows(DerivedMemory(fabric, _STREAM), _derivation(), MemoryHeads((0,), frozenset()), 0, iter([_batch()]))
        for text in _TEXTS:
            fabric.publish(logs.published_at(*_PUBLISHED), json.dumps({"text": text}).encode())


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of it: what is missing or another one without an error, and what whoever needs it is told."""

    wrong: str = ""
    told: str = ""


def read_kept(logs: Logs, url: str, times: int) -> Kept:
    """Read what was kept so many times."""
    with SyncFabric(url, logs) as fabric:
        found = len(_read(fabric, logs.outbox(_PUBLISHED[0]), logs.published_at(*_PUBLISHED)))
        wrong = [] if found == len(_TEXTS) * times else [f"{found} rows wait in the outbox of {len(_TEXTS) * times}"]
        told = ""
        for place in range(_PIECES, _PIECES * times + 1, _PIECES):  # nothing else is in this root log
            try:
                kept = DerivedMemory(fabric, _STREAM).load(_derivation(), 0, place)
            except HeadgateError as error:
                told = str(error)
            else:
                wrong += [] if kept.history.rows == _ROWS else [f"a memory has {kept.history.rows} rows of {_ROWS}"]
        return Kept("; ".join(wrong), told)


def _read(fabric: SyncFabric, log: Log, subject: str) -> list[int]:
    return [stored.sequence for stored in fabric.run(fabric.fabric.read(log, subject, 0, limit=1000))]
