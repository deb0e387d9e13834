"""Ranges of a subscription, which executors read: by the client, without acknowledging anything."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.client import Client, ClientError, Delivery, SyncClient
from headgate.client.delivery import decode_position, read_position
from headgate.client.extent import held_upto, position_at
from headgate.client.names import known_names
from headgate.fabric import FabricError
from headgate.spark.ahead import DeliveryEnd, tallies
from headgate.spark.columns import batches
from headgate.spark.options import SparkOptionError, SparkOptions
from headgate.wire.snapshot import Snapshot

_PATIENCE_S: Final = 60.0
_AGAIN_S: Final = 0.5
_LEAST_ROWS: Final = 10_000
_lock = threading.Lock()
_clients: dict[tuple[int, str, str], SyncClient] = {}


@dataclass
class SubscriptionRange(InputPartition):
    """Rows of a subscription behind a position, or behind what was acknowledged, up to a sequence number."""

    name: str
    position: str | None
    upto: int


def client_here(options: SparkOptions) -> SyncClient:
    """This process's client of a deployment: opened by the first task, used by all later ones."""
    key = (os.getpid(), options.url, options.namespace)
    with _lock:
        if key not in _clients:
            _clients[key] = options.connect()
        return _clients[key]


def read_range(wanted: SubscriptionRange, options: SparkOptions, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in order."""
    reached = 0 if wanted.position is None else read_position(wanted.position).mark
    reading: dict[str, Any] = {"peek": True, "upto": wanted.upto, "after_loss": options.after_loss}
    for delivery in _opened(wanted, options, reading):
        reached = delivery.upto
        yield from batches(delivery, wanted.name, target)
    if reached < wanted.upto:
        raise ClientError(
            f"rows of {wanted.name!r} after {reached}, up to {wanted.upto}, have not come within {_PATIENCE_S:g} s",
            hint="are the sites' relays running?",
            kind="unavailable",
        )


def _opened(wanted: SubscriptionRange, options: SparkOptions, reading: dict[str, Any]) -> Iterator[Delivery]:
    """The deliveries of a range; a deployment that does not answer, as it is started again, is waited for."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            client = client_here(options)
            return client.subscribe(wanted.name, position=wanted.position, timeout_s=_PATIENCE_S, **reading)
        except FabricError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_AGAIN_S)


def cut(start: str, marks: Sequence[DeliveryEnd], parts: int) -> list[str]:
    """Positions from `start` to that of the last mark that divide its rows into at most so many ranges."""
    rows = sum(mark.rows for mark in marks)
    parts = max(1, min(parts, rows // _LEAST_ROWS))
    cuts, seen = [start], 0
    for mark in marks[:-1]:
        seen += mark.rows
        if seen >= rows * len(cuts) / parts and len(cuts) < parts:
            cuts.append(mark.position)
    return [*cuts, marks[-1].position]


def ranges_between(positions: Sequence[str], names: dict[int, str]) -> list[SubscriptionRange]:
    """The ranges between consecutive positions, of each root where there are several."""
    found = []
    for before, after in pairwise(map(tallies, positions)):
        for number, (_, tally) in after.items():
            token, known = before.get(number, (None, None))
            if number in names and (known is None or tally.mark > known.mark):
                found.append(SubscriptionRange(names[number], token, tally.mark))
    return found


class RangeReader(DataSourceReader):
    """A batch read: from what was acknowledged, a position or a sequence number, to the end of what has come."""

    def __init__(self, options: SparkOptions, target: pa.Schema) -> None:
        self.options = options
        self.target = target

    def partitions(self) -> list[SubscriptionRange]:
        """The ranges to read, at every root."""
        found: list[SubscriptionRange] = []
        with self.options.connect() as client:
            snapshot = client.call(lambda each: each.snapshot())
            names = known_names(self.options.reads, snapshot)
            if len(names) > 1 and not self.options.after == self.options.upto is None:
                raise SparkOptionError(
                    f"{self.options.reads!r} is of several roots, each with sequence numbers of its own",
                    hint=f"read {', '.join(names)} one by one, or give `position`",
                )
            for name in names:
                found += client.call(lambda each, name=name: self._ranges(each, snapshot, name))  # type: ignore[misc]
        return found

    async def _ranges(self, client: Client, snapshot: Snapshot, name: str) -> list[SubscriptionRange]:
        held, options = await held_upto(client.fabric, snapshot, name), self.options
        upto = held if options.upto is None else options.upto
        if upto > held:
            raise SparkOptionError(
                f"'upto' is {upto}, and {name!r} has come up to {held}", hint="wait, or leave it out"
            )
        number, after, position = snapshot.subscription_ids[name], options.after, None
        if options.position is not None:
            position = tallies(options.position).get(number, (options.position, None))[0]
            after = decode_position(position, number).mark
        elif after is not None:
            position = await position_at(client.fabric, snapshot, name, after)
        begin = after or 0
        if upto <= begin:
            return []
        parts = max(1, min(options.partitions, (upto - begin) // _LEAST_ROWS)) if after is not None else 1
        ends = [begin + (upto - begin) * part // parts for part in range(1, parts + 1)]
        found = [SubscriptionRange(name, position, ends[0])]
        for before, end in pairwise(ends):
            found.append(SubscriptionRange(name, await position_at(client.fabric, snapshot, name, before), end))
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        return read_range(partition, self.options, self.target)
