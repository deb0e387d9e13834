"""The Spark side of a simulated deployment: micro-batches that are staged in parts, committed and summed up."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.protocol.port import FabricError
from headgate.relay.root import EARLIEST
from headgate.testing.world.deployed import World
from headgate.testing.world.oracle import Committed, Ints, wanted
from headgate.testing.world.scenario import SCHEMA, Action
from headgate.wire.manifest import Manifest, PartRef
from headgate.wire.part import Part


class Commits(World):
    """Commits rows as a stream's driver does."""

    def _commit(self, action: Action) -> None:
        """Stage and commit a micro-batch as the driver would: parts first, in any number, then one manifest."""
        stream, count = action.place, int(action.number)
        version = self.snapshot.revision
        values = np.array([self.random.randrange(60) for _ in range(count)], dtype=np.int64)
        try:
            refs, totals = self._stage(stream, version, values)
            last = self.fabric.server.last(self.logs.root(stream), self.logs.commit(stream))
            manifest = Manifest(
                stream=stream,
                lineage="one",
                batch=self._batches[stream],
                version=version,
                after=self.oracle.streams[stream].head,
                parts=refs,
                class_ids=np.array(sorted(totals), dtype=np.uint64),
                class_counts=np.array([totals[each] for each in sorted(totals)], dtype=np.uint64),
                time_ms=int((self.fabric.wall_s + self.fabric.queue.now) * 1000),
            )
            if count:
                self.oracle.streams[stream].add(Committed(manifest.after, manifest.upto, version, values))
            try:
                self.fabric.publish(self.logs.commit(stream), manifest, expect=last.sequence if last else 0)
            except FabricError:
                if count:
                    self.oracle.streams[stream].withdraw()
                raise
        except FabricError:
            return  # nothing was committed: the rows come again with the next batch
        self._batches[stream] += 1
        self.result.batches += 1
        self._sum_up(manifest)

    def _stage(self, stream: str, version: int, values: Ints) -> tuple[tuple[PartRef, ...], Counter[int]]:
        """The parts of a batch, cut at random, as a replay with other partitions would."""
        classes = sorted(self.oracle.classes(version, stream))
        totals: Counter[int] = Counter()
        refs = []
        count = len(values)
        cuts = sorted({0, count, *(self.random.randint(0, count) for _ in range(self.random.randint(0, 2)))})
        for start, end in itertools.pairwise(cuts):
            mine = values[start:end]
            hits = {each: wanted(each, mine) for each in classes}
            lists = [[each for each in classes if hits[each][row]] for row in range(len(mine))]
            kept = [row for row in range(len(mine)) if lists[row]]
            totals.update(each for found in lists for each in found)
            if not kept:
                refs.append(PartRef(0, len(mine), 0))
                continue
            offsets = np.cumsum([0, *(len(lists[row]) for row in kept)]).astype(np.int64)
            ids = np.array([each for row in kept for each in lists[row]], dtype=np.uint32)
            rows = pa.RecordBatch.from_arrays([pa.array(mine[kept]), pa.array(mine[kept] % 7)], schema=SCHEMA.arrow)
            part = Part(len(mine), np.array(kept, dtype=np.uint64), rows, ClassLists(offsets, ids))
            refs.append(PartRef(self.fabric.publish(self.logs.part(stream), part), len(mine), len(kept)))
        return tuple(refs), totals

    def _sum_up(self, manifest: Manifest) -> None:
        """Keep the root's side of the ledger."""
        matched, snapshot = self._matched[manifest.stream], self.oracle.versions[manifest.version]
        members = {
            snapshot.subscription_ids[name]: snapshot.class_ids[name]
            for name, each in snapshot.deployment.subscriptions.items()
            if each.stream == manifest.stream
        }
        for name, each in snapshot.deployment.subscriptions.items():
            identity = snapshot.subscription_ids[name]
            if each.start == EARLIEST and identity in members and identity not in matched.starts:
                matched.add_history(identity, members[identity], self._evaluated[manifest.stream])
        if manifest.evaluated:
            self._evaluated[manifest.stream].append(manifest)
        matched.add(manifest, members)
        matched.fold(matched.head)
        data = matched.encode()
        self.fabric.server.publish(
            self.logs.ledger(manifest.stream), data, size=len(data), now=self.fabric.wall_s + self.fabric.queue.now
        )

    def _stray_part(self, action: Action) -> None:
        """A part that no manifest will name, as a driver that died has left it."""
        values = np.arange(5, dtype=np.int64)
        try:
            self._stage(action.place, self.snapshot.revision, values)
        except FabricError:
            return
