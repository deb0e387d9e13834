"""The driver's side of what derived columns remember: which messages a micro-batch begins with, and which can go."""

from __future__ import annotations

from typing import Final, Self

from headgate.fabric import SyncFabric
from headgate.pipeline.deriving import MemoryHeads
from headgate.pipeline.staged import MemoryRef, Staged
from headgate.protocol.reports import RememberedRows
from headgate.wire.manifest import Manifest, decode_manifest

RENEW_BATCHES: Final = 1024
"""A partition to which nothing was added for so many micro-batches writes its memory anew, so that others' can go."""


class MemoryKeeper:
    """One per driver and stream. The last manifest is asked before each micro-batch, so it holds nothing of its own.

    The number of partitions is that of the first manifest that had any: a key must not change its partition.
    """

    def __init__(self, fabric: SyncFabric, stream: str, partitions: int) -> None:
        self._fabric = fabric
        self._stream = stream
        self.partitions = partitions
        self._told: dict[int, tuple[int, MemoryRef]] = {}
        self._unknown_rows = 0
        self._free = 0

    @classmethod
    def of(cls, fabric: SyncFabric, stream: str, cores: int) -> Self:
        """The keeper of a stream that runs on so many cores."""
        keeper = cls(fabric, stream, max(cores, 1))
        keeper.partitions = len(keeper._places()) or keeper.partitions
        return keeper

    def _places(self) -> tuple[int, ...]:
        """What the last manifest says is remembered."""
        logs = self._fabric.logs
        stored = self._fabric.last(logs.root(self._stream), logs.commit(self._stream))
        return decode_manifest(stored.data).memory if stored else ()

    def begin(self, batch: int) -> MemoryHeads:
        """What is remembered when a micro-batch begins."""
        places = self._places() or (0,) * self.partitions
        old = {
            partition
            for partition, place in enumerate(places)
            if place and (partition not in self._told or self._told[partition][0] + RENEW_BATCHES < batch)
        }
        return MemoryHeads(places, frozenset(old))

    def learn(self, staged: Staged, manifest: Manifest) -> None:
        """What tasks have told of a micro-batch that was committed; what nobody needs any more goes.

        Messages before the whole memories that were the oldest in use one step earlier go, so that a log whose end is
        cut off still has what its last manifest leads to.
        """
        for each in staged.memory():
            known = self._told.get(each.partition)
            whole_batch = known[0] if known is not None and known[1].whole == each.whole else manifest.batch
            self._told[each.partition] = (whole_batch, each)
        self._unknown_rows += staged.total("unknown_rows")
        held = [partition for partition, place in enumerate(manifest.memory) if place]
        oldest = [self._told[partition][1].whole if partition in self._told else 0 for partition in held]
        if oldest and min(oldest) > self._free:
            if self._free:
                logs = self._fabric.logs
                self._fabric.purge(logs.root(self._stream), logs.memory(self._stream), self._free)
            self._free = min(oldest)

    def report(self) -> RememberedRows:
        """What is remembered, as far as tasks have told."""
        told = [each for _, each in self._told.values()]
        return RememberedRows(
            keys=sum(each.keys for each in told),
            rows=sum(each.rows for each in told),
            forgotten_keys=sum(each.forgotten for each in told),
            unknown_rows=self._unknown_rows,
        )
