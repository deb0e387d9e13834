"""What came of one variant: the rows that each reader was handed, as files, and the figures of the whole run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.model import Deployment
from headgate.replay.world import ReplayWorld
from headgate.wire.block import Block

SEQUENCE: Final = "_sequence"
RECEIVED: Final = "_received"
_GIVEN_UP: Final = pa.schema(
    [
        ("subscription", pa.string()),
        ("after", pa.int64()),
        ("upto", pa.int64()),
        ("reason", pa.string()),
        ("rows", pa.int64()),
        ("received", pa.timestamp("us", tz="UTC")),
    ]
)
_ROWS: Final = 50_000


class Receipts:
    """What was handed over: rows by subscription and second, and, where a directory is given, the rows as Parquet.

    There `<subscription>.parquet` has the columns that the subscription selects, `_sequence` and the time `_received`;
    `given_up.parquet` says what was declared instead of rows: which range it lies in, why, and how many.
    """

    def __init__(self, directory: Path | None, ids: Mapping[str, int]) -> None:
        self.seconds: dict[int, list[float]] = {}
        """By second: rows received, rows given up, and the sum of the delays of the former since their commit."""
        self._directory = directory
        self._ids = ids
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.Table]] = {}
        self._given_up: list[tuple[Any, ...]] = []
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def take(self, name: str, block: Block, now_s: float) -> None:
        """Note a block that a reader was handed."""
        declared = block.declared.get(self._ids[name], {})
        line = self.seconds.setdefault(int(now_s), [0.0, 0.0, 0.0])
        line[0] += len(block.seqs)
        line[1] += sum(declared.values())
        ends = np.searchsorted(block.seqs, [commit.upto for commit in block.commits], side="right")
        for rows, commit in zip(np.diff(ends, prepend=0), block.commits, strict=True):
            line[2] += float(rows) * max(now_s - commit.time_ms / 1000, 0.0)
        if self._directory is None:
            return
        now_us = round(now_s * 1e6)
        self._given_up += [(name, block.after, block.upto, reason, count, now_us) for reason, count in declared.items()]
        waiting = self._waiting.setdefault(name, [])
        waiting.append(_received(block, now_us))
        if sum(table.num_rows for table in waiting) > _ROWS:
            self._write(name)

    def _write(self, name: str) -> None:
        assert self._directory is not None
        table = pa.concat_tables(self._waiting.pop(name))
        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(self._directory / f"{name}.parquet", table.schema)
        self._writers[name].write_table(table)

    def close(self) -> None:
        """Write what is left."""
        for name in list(self._waiting):
            self._write(name)
        for writer in self._writers.values():
            writer.close()
        if self._directory is not None:
            columns = zip(*self._given_up, strict=True) if self._given_up else [()] * len(_GIVEN_UP)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, _GIVEN_UP, strict=True)]
            pq.write_table(pa.table(arrays, schema=_GIVEN_UP), self._directory / "given_up.parquet")


def _received(block: Block, now_us: int) -> pa.Table:
    table = pa.Table.from_batches([block.rows])
    times = pa.array(np.full(len(block.seqs), now_us, np.int64)).cast(pa.timestamp("us", tz="UTC"))
    return table.append_column(SEQUENCE, pa.array(block.seqs)).append_column(RECEIVED, times)


def folder_of(name: str) -> str:
    """The name of a variant as that of a directory.

    >>> folder_of("as deployed"), folder_of("policies B.yaml")
    ('as-deployed', 'policies-B.yaml')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "variant"


def report_of(world: ReplayWorld) -> dict[str, Any]:
    """What every subscription would have received, in how much time, what was given up, and what links carried."""
    deployment = world.snapshot.deployment
    lines = world.ledger()
    subscriptions = {name: _line(world, deployment, name, lines.get(name)) for name in deployment.subscriptions}
    found = subscriptions.values()
    rated = [each["quality"] for each in found if each["quality"] is not None]
    return {
        "name": world.variant.name,
        "subscriptions": subscriptions,
        "matched": sum(each["matched"] for each in found),
        "delivered": sum(each["delivered"] for each in found),
        "given_up": sum(sum(each["reduced"].values()) + each["expired"] for each in found),
        "in_flight": sum(each["in_flight"] for each in found),
        "difference": sum(abs(each["difference"]) for each in found),
        "quality": round(float(np.mean(rated)), 4) if rated else None,
        "links": {
            f"{site} to {link.partition(':')[2]}, {link.partition(':')[0]}": {
                "bytes": size,
                "rows": relay.state.totals.link_rows[link],
                "messages": relay.state.totals.link_messages[link],
            }
            for site, relay in world.relays.items()
            for link, size in relay.state.totals.link_bytes.items()
        },
        "ended_s": round(world.now_s - world.fabric.wall_s, 3),
    }


def _line(world: ReplayWorld, deployment: Deployment, name: str, entry: Any) -> dict[str, Any]:
    subscription, tally = deployment.subscriptions[name], world.tally(name)
    matched = entry.matched if entry else 0
    drop = 1 - tally.delivered / matched if matched else 0.0
    mean_ms = tally.commit_delay.mean()
    quality = None if mean_ms is None else subscription.quality.value(drop, mean_ms / 1000)
    at_least = subscription.quality.at_least

    def seconds(value: float | None) -> float | None:
        return None if value is None else round(value / 1000, 4)

    return {
        "stream": subscription.stream,
        "site": subscription.site,
        "matched": matched,
        "delivered": tally.delivered,
        "reduced": dict(tally.reduced),
        "expired": tally.expired,
        "in_flight": entry.in_flight if entry else 0,
        "difference": entry.difference if entry else 0,
        "drop": round(drop, 6),
        "delay_s": seconds(mean_ms),
        "delay_p50_s": seconds(tally.commit_delay.quantile(0.5)),
        "delay_p95_s": seconds(tally.commit_delay.quantile(0.95)),
        "delay_p99_s": seconds(tally.commit_delay.quantile(0.99)),
        "event_delay_s": seconds(tally.event_delay.mean()),
        "quality": None if quality is None else round(quality, 4),
        "at_least": at_least,
        "met": None if at_least is None or quality is None else quality >= at_least,
    }
