"""The Spark side and the books of a simulated deployment: real committers and keepers, and what an oracle says of both.

Every manifest is checked when it is stored: each row of the source is committed once and in order, whatever was killed
or replayed. Every stored sum of the ledger is compared with what the oracle counts up to there.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from headgate.protocol.kernel import Completed
from headgate.protocol.port import FabricError
from headgate.service.keeper import KeeperMachine
from headgate.virtual.process import Instance
from headgate.wire.ledger import Tally
from headgate.wire.manifest import Manifest
from headgate.wire.sums import Entry, Matched
from headgate_studies.testing.world.codec import PlainCodec
from headgate_studies.testing.world.deployed import World
from headgate_studies.testing.world.driver import DriverMachine, Planned, cut
from headgate_studies.testing.world.in_flight import Lost, Unsettled, counted_since
from headgate_studies.testing.world.matched_contexts import Window
from headgate_studies.testing.world.oracle import TrueCommit
from headgate_studies.testing.world.scenario import Action


class Commits(World):
    """Commits rows as a stream's driver does, and keeps the books as the service does."""

    def _start_driver(self, stream: str) -> None:
        """Start the driver of a stream, with nothing but the source and its checkpoint."""
        random = Random(f"{self.scenario.seed} {stream} {self._instances}")
        machine = DriverMachine(stream, self.sources[stream], self.logs, random, PlainCodec())

        def ask(instance: Instance, number: int, _: Any) -> None:
            self._idle.setdefault(stream, []).append((instance, number))
            self._give(stream)

        self._start_service(f"driver-{stream}", machine, lambda: self._start_driver(stream), ask)

    def _start_books(self, stream: str) -> None:
        """Start the keeper of a stream's books."""
        machine = KeeperMachine(stream, self.logs, codec=PlainCodec())
        self._start_service(f"books-{stream}", machine, lambda: self._start_books(stream))

    def _commit(self, action: Action) -> None:
        """Rows arrive at the source; its driver commits them with its next micro-batch."""
        source, count = self.sources[action.place], int(action.number)
        source.values += [self.random.randrange(60) for _ in range(count)]
        source.empty += not count
        self._give(action.place)

    def _give(self, stream: str) -> None:
        """Give the drivers that wait for it the batch that is to run, if there is one."""
        batch: Planned | None = self.sources[stream].next() if self._idle.get(stream) else None
        if batch is not None:
            waiting, self._idle[stream] = self._idle[stream], []
            for instance, number in waiting:
                self._later(0.001, instance.feed, Completed(number, batch))

    def _appended(self, subject: str, data: Any, sequence: int) -> None:
        """Look at everything that is stored."""
        super()._appended(subject, data, sequence)
        if isinstance(data, Manifest):
            self._committed(data)
        elif subject.startswith("hg.ledger."):
            stream = subject.rsplit(".", 1)[1]
            self._check_books(Matched.decode(data, stream))

    def _committed(self, manifest: Manifest) -> None:
        """A batch was committed: its rows are the next ones of the source, and its counts are right."""
        truth, (given,) = self.oracle.streams[manifest.stream], manifest.ranges
        first, last = int(given.before or 0), int(given.after)
        values = np.array(self.sources[manifest.stream].values[first:last], dtype=np.int64)
        if (first, manifest.after, manifest.upto) != (truth.read, truth.head, truth.head + last - first):
            self._checks.fail(
                f"batch {manifest.batch} of {manifest.stream} commits rows {first} to {last} of the source as "
                f"({manifest.after}, {manifest.upto}], where {truth.read} were committed up to {truth.head}"
            )
            return
        windows = self._windows_of(manifest)
        commit = TrueCommit(manifest.after, manifest.upto, manifest.version, values, windows, manifest.time_ms)
        counts = dict(zip(manifest.class_ids.tolist(), manifest.class_counts.tolist(), strict=True))
        classes = self.oracle.classes(manifest.version, manifest.stream)
        if any(counts.get(each, 0) != commit.count(each) for each in classes) or counts.keys() - classes:
            self._checks.fail(f"batch {manifest.batch} of {manifest.stream} counts {counts} under {manifest.version}")
        truth.read = last
        if len(values):
            truth.add(commit)
        self._whereabouts.committed(manifest)
        self.result.batches += 1

    def _windows_of(self, manifest: Manifest) -> dict[int, Window]:
        """The windows of classes whose filter depends on a context (`headgate_studies.testing.world.contexts`)."""
        del manifest
        return {}

    def _check_books(self, matched: Matched) -> None:
        """The stored sums are those of the oracle at the same place."""
        expected = self.oracle.sums(matched.stream, matched.head)
        found = {
            subscription: (starts, matched.matched(subscription)) for subscription, starts in matched.starts.items()
        }
        if found != expected or matched.evaluated != matched.head or matched.lost:
            self._checks.fail(
                f"the books of {matched.stream} at {matched.head} have {matched.evaluated} rows (lost {matched.lost}) "
                f"and {found}, the oracle {expected}"
            )
        if matched.head < self.booked.get(matched.stream, 0):
            before = self.booked[matched.stream]
            self._checks.fail(f"the books of {matched.stream} go back from {before} to {matched.head}")
        self.booked[matched.stream] = matched.head
        self._check_ledger(matched)

    def _check_ledger(self, matched: Matched) -> None:
        """At every acknowledged boundary that the sums have come to, matched = delivered + reduced + expired."""
        tallies = {}
        for subscription in matched.starts:
            subject = self.logs.ack(subscription)
            stored = self.fabric.server.last(self.logs.state, subject)
            tally = Tally.read(stored.data) if stored is not None else None
            if tally is None or tally.starts is None or tally.lost or tally.boundary > matched.head:
                continue
            if subject in self._checks.went_back:  # the sums may be of later rows than its acknowledgement
                continue
            tallies[subscription] = tally
        for entry in matched.entries(tallies.values()):
            # Who gets the past is counted commit by commit, also before what was folded of the others.
            served = self.oracle.starts(matched.stream, entry.subscription)
            early = entry.boundary < matched.mark and entry.starts == served
            if entry.subscription in tallies and (entry.difference or early):
                self._checks.fail(
                    f"the books of {matched.stream}, folded up to {matched.mark}, differ by {entry.difference} for "
                    f"subscription {entry.subscription} at {entry.boundary}"
                )
            elif entry.subscription in matched.starts:
                self._check_in_flight(matched, entry, tallies)

    def _check_in_flight(self, matched: Matched, entry: Entry, tallies: dict[int, Tally]) -> None:
        """What the ledger has in flight lies in inboxes, queues and logs, each row once, or is declared there."""
        snapshot = self.snapshot
        name = next((name for name, each in snapshot.subscription_ids.items() if each == entry.subscription), None)
        tally = tallies.get(entry.subscription) or self._not_begun(entry.subscription)
        if name is None or name not in self.subscribers or tally is None:
            return
        subscriber, wanted = self.subscribers[name], snapshot.deployment.subscriptions[name]
        try:
            found = self._whereabouts.count(subscriber, wanted, tally, entry.starts)
        except Unsettled:
            return
        except Lost as lost:
            if not (self._checks.spoilt and self.scenario.forgets):
                self._checks.fail(f"{lost} are in flight to {name} and lie nowhere any more")
            return
        self.result.in_flight_checks += 1
        counted, later = counted_since(tally.since), self._whereabouts.owed(subscriber, matched.head)
        if found != entry.in_flight - counted + later:
            self._checks.fail(
                f"the ledger has {entry.in_flight} rows in flight to {name} behind {entry.boundary}, its reader has "
                f"counted {counted} of them and {later} came since, but {found} lie in inboxes, queues and logs"
            )

    def _not_begun(self, subscription: int) -> Tally | None:
        """The acknowledgement of a reader that has come and not got anything yet; None where it is another one."""
        subject = self.logs.ack(subscription)
        stored = self.fabric.server.last(self.logs.state, subject)
        tally = None if stored is None or subject in self._checks.went_back else Tally.read(stored.data)
        return tally if tally is not None and tally.starts is None and not tally.lost else None

    def _stray_part(self, action: Action) -> None:
        """A part that no manifest will name, as a driver that died has left it."""
        classes = sorted(self.oracle.classes(self.snapshot.revision, action.place))
        for part, _ in cut(np.arange(5, dtype=np.int64), classes, self.random):
            try:
                self.fabric.publish(self.logs.part(action.place), part)
            except FabricError:
                return
