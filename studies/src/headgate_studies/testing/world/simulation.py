"""One scenario in virtual time: the production machines, a simulated server, an oracle, and checks at every step."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.client.acknowledging import Acknowledger
from headgate.client.reader import ReaderMachine, Reading
from headgate.matching import ClassLists
from headgate.protocol.kernel import Completed, Machine
from headgate.protocol.port import FabricError
from headgate.relay.machine import RelayMachine
from headgate.relay.output import QueueLimits
from headgate.relay.root import EARLIEST
from headgate.relay.state import OvertakenError
from headgate.wire.block import Block
from headgate.wire.ledger import Account, Matched, Tally
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef
from headgate.wire.part import Part
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.checks import Checks
from headgate_studies.testing.world.codec import PlainCodec
from headgate_studies.testing.world.coverage import states_of
from headgate_studies.testing.world.fabric import SERVER, SimulatedFabric
from headgate_studies.testing.world.network import SimulatedClock
from headgate_studies.testing.world.oracle import Committed, Ints, Oracle, StreamTruth, wanted
from headgate_studies.testing.world.process import Instance
from headgate_studies.testing.world.scenario import SCHEMA, Action, Scenario, make_plan, make_subscription, moved
from headgate_studies.testing.world.server import SimulatedServer
from headgate_studies.testing.world.subscriber import Subscriber, Violation

DRAIN_S: Final = 240.0
"""Once faults have stopped, everything has to be delivered within so many virtual seconds."""
_LEAST_ROWS_PER_S: Final = 30.0  # an inbox of 8 messages of 400 bytes takes no more, as it is purged once a second
_STEP_S: Final = 1.0
_MOST_EVENTS: Final = 50_000
Tracer = Callable[[Machine, str, Any], None]


@dataclass
class Result:
    """What one run did, and the promise that it broke, if any."""

    seed: int
    events: int = 0
    simulated_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    batches: int = 0
    delivered: int = 0
    given_up: int = 0
    violation: str | None = None


class Simulation:
    """Runs one scenario."""

    def __init__(self, scenario: Scenario, tracer: Tracer | None = None) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed ^ 0x5EED)
        self.logs = Logs("hg", inbox_messages=scenario.inbox_messages, max_bytes=scenario.max_bytes)
        self.fabric = SimulatedFabric(SimulatedServer(), self.logs, Random(scenario.seed))
        self.fabric.max_block = scenario.max_block
        self.fabric.failed = self._failed
        self.oracle = Oracle()
        self.result = Result(scenario.seed)
        self.snapshot = scenario.first
        self.relays: dict[str, Instance] = {}
        self.zombies: list[Instance] = []
        self.readers: dict[str, Instance] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self._checks = Checks(self.subscribers, scenario.max_rows)
        self.fabric.appended = self._checks.appended
        self._stalled: dict[str, float] = {}
        self._think_s: dict[str, float] = {}
        self._matched: dict[str, Matched] = {}
        self._evaluated: dict[str, list[Manifest]] = {}
        self._batches: Counter[str] = Counter()
        self._tracer = tracer
        self._instances = 0
        self._quiet = False

    # What happens

    def run(self) -> Result:
        """Let everything happen, then let it settle; the result has the first promise that was broken."""
        queue = self.fabric.queue
        try:
            self._begin()
            for action in self.scenario.actions:
                queue.at(action.time_s, self._act, action)
            self._until(self.scenario.length_s)
            self._heal()
            self._drain()
        except Violation as violation:
            self.result.violation = str(violation)
        self.result.violation = self.result.violation or self._checks.problem
        self.result.events = self.fabric.events
        self.result.simulated_s = queue.now
        for subscriber in self.subscribers.values():
            self.result.delivered += subscriber.delivered
            self.result.given_up += sum(subscriber.given_up.values())
        for instance in (*self.relays.values(), *self.zombies, *self.readers.values()):
            instance.kill()
        return self.result

    def _until(self, time_s: float) -> None:
        """Let time pass, and look at queues and logs now and then."""
        queue = self.fabric.queue
        while queue.now < time_s and self._checks.problem is None:
            before = self.fabric.events
            queue.run(min(queue.now + _STEP_S, time_s), _MOST_EVENTS)
            if self.fabric.events - before >= _MOST_EVENTS:
                raise Violation(f"{_MOST_EVENTS} events in a second and no end: {queue.now:.3f} s")
            self._checks.look(self.relays.values(), self.fabric.server.logs)
        if self._checks.problem is not None:
            raise Violation(self._checks.problem)

    def _begin(self) -> None:
        for log in (self.logs.state, self.logs.tables):
            self.fabric.server.ensure(log)
        for stream in self.snapshot.deployment.streams:
            self.fabric.server.ensure(self.logs.root(stream))
            self.oracle.streams[stream] = StreamTruth()
            self._matched[stream] = Matched(stream)
            self._evaluated[stream] = []
        for one in self.snapshot.deployment.sites:
            for link in self.fabric.network.between(one, SERVER):
                link.delay_s = self.random.uniform(0.0005, self.scenario.delay_s)
                link.jitter_s = self.random.uniform(0.0, self.scenario.delay_s)
        self._publish(self.snapshot)
        for site in self.snapshot.deployment.sites:
            self._start_relay(site)
        for name in self.snapshot.deployment.subscriptions:
            self._start_reader(name)

    def _act(self, action: Action) -> None:
        if not self._quiet:
            self.result.faults[action.kind] += 1
            if action.kind != "commit":
                near = [self.relays[action.place]] if action.place in self.relays else self.relays.values()
                self.result.met.update((action.kind, state) for relay in near for state in states_of(relay))
            # Chances of its own, so that leaving out one action leaves the others as they are.
            self.random = Random(f"{self.scenario.seed} {action.time_s} {action.kind}")
            getattr(self, f"_{action.kind}")(action)

    # Processes

    def _instance(self, process: str, machine: Machine, consumer: Callable[..., None] | None = None) -> Instance:
        self._instances += 1
        machine.tracer = self._tracer
        return Instance(self.fabric, process, self._instances, machine, consumer)

    def _start_relay(self, site: str) -> None:
        machine = RelayMachine(
            site,
            self.logs,
            limits=QueueLimits(max_rows=self.scenario.max_rows, heavy_rows=self.scenario.heavy_rows),
            codec=PlainCodec(),
        )
        instance = self.relays[site] = self._instance(site, machine)
        self.fabric.serve(machine.service, instance)
        instance.feed(None)

    def _start_reader(self, name: str, *, from_position: bool = False) -> None:
        """Start a subscription's reader, from what it acknowledged or from the position that its consumer kept."""
        snapshot, server = self.snapshot, self.fabric.server
        identity = snapshot.subscription_ids[name]
        subscription = snapshot.deployment.subscriptions[name]
        subject = self.logs.ack(identity)
        stored = server.last(self.logs.state, subject)
        known = (Tally.read(stored.data) if stored is not None else None) or Tally(identity)
        known.detached_ms, known.grace_s = 0, None
        try:
            sequence = self.fabric.publish(subject, known.to_json(), expect=stored.sequence if stored else 0)
        except FabricError:  # the disk is full: it comes back later
            self.fabric.queue.at(self.fabric.queue.now + 1.0, self._revive_reader, name)
            return
        past = snapshot.class_ids[name] if subscription.start == "earliest" else None
        subscriber = self.subscribers.setdefault(
            name, Subscriber(name, identity, subscription.stream, self._past(name, past))
        )
        tally = copy.deepcopy(known)
        if from_position and subscriber.position is not None:
            tally = Tally.from_json(subscriber.position)
            subscriber.done = tally.mark
        else:
            self._settle_past(subscriber)
            subscriber.go_back(tally, self.oracle)
        reading = Reading(name, snapshot, Account(tally), Acknowledger(name, sequence, known.boundary), known.boundary)
        machine = ReaderMachine(reading, self.logs, 1 << 20, PlainCodec())

        def consume(instance: Instance, number: int, block: Block) -> None:
            self._handed(name, reading, instance, number, block)

        instance = self.readers[name] = self._instance(f"reader-{name}", machine, consume)
        instance.feed(None)

    def _past(self, name: str, class_id: int | None) -> int | None:
        """The class by which a subscription gets the past: none where nothing was committed before it."""
        stream = self.snapshot.deployment.subscriptions[name].stream
        return class_id if class_id is not None and self.oracle.streams[stream].head else None

    def _settle_past(self, subscriber: Subscriber) -> None:
        """The class may have changed before the first commit."""
        if subscriber.past is not None:
            subscriber.past = self.oracle.first_class(subscriber.stream, subscriber.id) or subscriber.past

    def _handed(self, name: str, reading: Reading, instance: Instance, number: int, block: Block) -> None:
        """A consumer gets a block: it is checked at once, and dealt with after a while."""
        subscriber = self.subscribers[name]
        if not instance.alive or self.readers.get(name) is not instance:
            return
        self._settle_past(subscriber)
        try:
            subscriber.take(block, reading.account.tally, self.oracle)
        except Violation as violation:
            self._checks.problem = self._checks.problem or str(violation)
            return
        now = self.fabric.queue.now
        done_s = max(now + self._think_s.get(name, 0.001), self._stalled.get(name, 0.0))
        self.fabric.queue.at(done_s, self._finished, subscriber, instance, number, block.upto)

    def _finished(self, subscriber: Subscriber, instance: Instance, number: int, upto: int) -> None:
        """A consumer is done with a block."""
        if instance.alive:
            subscriber.done = upto
        instance.feed(Completed(number))

    def _failed(self, instance: Instance, error: Exception) -> None:
        if isinstance(error, OvertakenError):  # it starts again from the logs
            if self.relays.get(instance.process) is instance:
                self._later(1.0, self._revive, instance.process)
            return
        self._checks.problem = (
            self._checks.problem or f"{instance.machine.name} failed at {self.fabric.queue.now:.3f} s: {error!r}"
        )

    # The Spark side

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
        data = b"%d\n%s" % (0, matched.to_json())
        self.fabric.server.publish(
            self.logs.ledger(manifest.stream), data, size=len(data), now=self.fabric.wall_s + self.fabric.queue.now
        )

    # The catalog

    def _publish(self, snapshot: Snapshot) -> None:
        """Put a revision in force."""
        self.oracle.versions[snapshot.revision] = snapshot
        try:
            self.fabric.publish(self.logs.table(snapshot.revision), snapshot)
            self.fabric.publish(self.logs.head, write_number(snapshot.revision))
        except FabricError:
            return  # the disk is full: the change is refused, and what is in force stays so
        self.snapshot = snapshot

    def _revise(self, subscriptions: dict[str, Any], **changes: Any) -> None:
        deployment = replace(self.snapshot.deployment, subscriptions=subscriptions)
        self._publish(replace(self.snapshot, revision=max(self.oracle.versions) + 1, deployment=deployment, **changes))

    def _replan(self, _: Action) -> None:
        self._revise(
            dict(self.snapshot.deployment.subscriptions), plan=make_plan(self.random, self.snapshot.deployment)
        )

    def _planned(self, subscriptions: dict[str, Any], **changes: Any) -> None:
        """A change after which every subscribing site is in its tree."""
        deployment = replace(self.snapshot.deployment, subscriptions=subscriptions)
        self._revise(subscriptions, plan=make_plan(self.random, deployment), **changes)

    def _subscribe(self, action: Action) -> None:
        known = self.snapshot.deployment.subscriptions
        identity = 1 + max([0, *(each.id for each in self.subscribers.values())], default=0)
        name = f"u{identity - 1}"
        stream = self.random.choice(sorted(self.snapshot.deployment.streams))
        made = make_subscription(self.random, name, stream, action.place)
        ids = {**self.snapshot.subscription_ids, name: identity}
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
        before = self.snapshot.revision
        self._planned({**known, name: made}, subscription_ids=ids, class_ids=classes)
        if self.snapshot.revision != before:
            self._start_reader(name)

    def _unsubscribe(self, _: Action) -> None:
        known = dict(self.snapshot.deployment.subscriptions)
        if len(known) < 2:
            return
        name = self.random.choice(sorted(known))
        del known[name]
        before = self.snapshot.revision
        self._planned(
            known,
            subscription_ids={each: found for each, found in self.snapshot.subscription_ids.items() if each != name},
            class_ids={each: found for each, found in self.snapshot.class_ids.items() if each != name},
        )
        if self.snapshot.revision != before and name in self.readers:
            self.readers.pop(name).kill()

    def _move(self, action: Action) -> None:
        known = dict(self.snapshot.deployment.subscriptions)
        name = self.random.choice(sorted(known))
        if known[name].site == action.other or len(known[name].left) > 6:
            return
        stored = self.fabric.server.last(self.logs.state, self.logs.ack(self.snapshot.subscription_ids[name]))
        reading = ((Tally.read(stored.data) if stored else None) or Tally(0)).stay
        known[name] = moved(known[name], action.other, reading)
        self._planned(known)

    def _change(self, _: Action) -> None:
        """Another filter: the subscription is of another class from now on."""
        name = self.random.choice(sorted(self.snapshot.deployment.subscriptions))
        classes = {**self.snapshot.class_ids, name: self.random.randint(1, 8)}
        self._revise(dict(self.snapshot.deployment.subscriptions), class_ids=classes)

    def _bandwidth(self, action: Action) -> None:
        deployment = self.snapshot.deployment
        rate = self.random.choice((None, 2e3, 2e4))
        sites = {**deployment.sites, action.place: replace(deployment.sites[action.place], upload_bytes_per_s=rate)}
        snapshot = replace(self.snapshot, deployment=replace(deployment, sites=sites))
        self._publish(replace(snapshot, revision=max(self.oracle.versions) + 1))

    # Faults

    def _kill(self, action: Action) -> None:
        self.relays[action.place].kill()
        self._later(action.number / 3, self._revive, action.place)

    def _revive(self, site: str) -> None:
        if not self.relays[site].alive:
            self._start_relay(site)

    def _replace(self, action: Action) -> None:
        """Start another relay for a site while the old one still runs, and end the old one later."""
        old = self.relays[action.place]
        self.zombies.append(old)
        self._start_relay(action.place)
        self._later(action.number, old.kill)

    def _pause(self, action: Action) -> None:
        instance = self.relays[action.place]
        instance.pause()
        self._later(action.number, instance.resume)

    def _cut(self, action: Action) -> None:
        links = self.fabric.network.between(action.place, SERVER)
        for link in links:
            link.cut = True
        self._later(action.number, self._join, links)

    def _join(self, links: tuple[Any, Any]) -> None:
        for link in links:
            link.cut = False

    def _lossy(self, action: Action) -> None:
        for link in self.fabric.network.between(action.place, SERVER):
            link.loss = 0.2
            self._later(action.number, setattr, link, "loss", 0.0)

    def _hints(self, action: Action) -> None:
        self.fabric.hint_loss = 0.7
        self._later(action.number, setattr, self.fabric, "hint_loss", 0.0)

    def _skew(self, action: Action) -> None:
        """A host's clock goes wrong, within what hosts without time service do."""
        offset_s = self.random.uniform(-1.0, 1.0)
        self.fabric.network.set_clock(action.place, SimulatedClock(offset_s, self.random.uniform(-1e-4, 1e-4)))

    def _kill_reader(self, action: Action) -> None:
        name = self.random.choice(sorted(self.readers)) if self.readers else None
        if name is not None and self.readers[name].alive:
            self.readers[name].kill()
            self._later(action.number, self._revive_reader, name)

    def _detach(self, action: Action) -> None:
        """A reader says that it goes away, and how long its rows are to be kept; some come back later than that."""
        name = self.random.choice(sorted(self.readers)) if self.readers else None
        if name is None or not self.readers[name].alive:
            return
        self.readers[name].kill()
        subject = self.logs.ack(self.subscribers[name].id)
        stored = self.fabric.server.last(self.logs.state, subject)
        tally = (Tally.read(stored.data) if stored else None) or Tally(self.subscribers[name].id)
        tally.time_ms = tally.detached_ms = int((self.fabric.wall_s + self.fabric.queue.now) * 1000)
        tally.grace_s = self.random.choice((None, 0.5, 3.0))
        with suppress(FabricError):  # the disk is full: it is away without having said so
            self.fabric.publish(subject, tally.to_json(), expect=stored.sequence if stored else 0)
        self._later(action.number, self._revive_reader, name)

    def _revive_reader(self, name: str) -> None:
        known = self.readers.get(name)
        if name in self.snapshot.subscription_ids and (known is None or not known.alive):
            self._start_reader(name, from_position=self.random.random() < 0.5)

    def _stall_reader(self, action: Action) -> None:
        if self.readers:
            name = self.random.choice(sorted(self.readers))
            self._stalled[name] = self.fabric.queue.now + action.number
            self._think_s[name] = self.random.choice((0.001, 0.2))

    def _fill_inbox(self, action: Action) -> None:
        self._fill(self.logs.inbox(action.place), action.number)

    def _fill_site(self, action: Action) -> None:
        self._fill(self.logs.site(action.place), action.number)

    def _fill(self, log: Any, seconds: float) -> None:
        if self.fabric.server.info(log) is not None:
            self.fabric.server.fill(log)
            self._later(seconds, self.fabric.server.fill, log, False)

    def _disk_full(self, action: Action) -> None:
        self.fabric.server.disk_full = True
        self._later(action.number / 2, setattr, self.fabric.server, "disk_full", False)

    def _power(self, action: Action) -> None:
        """The server loses power: what it has acknowledged is synced, and it is away for a while."""
        self.fabric.server.power_failure(self.random)
        self.fabric.server.restart()
        for place in (*self.relays, *(reader.process for reader in self.readers.values())):
            links = self.fabric.network.between(place, SERVER)
            for link in links:
                link.cut = True
            self._later(action.number / 4, self._join, links)

    def _flip_inbox(self, action: Action) -> None:
        self._flip(self.logs.inbox(action.place), f"hg.inbox.{action.place}.*")

    def _flip_site(self, action: Action) -> None:
        self._flip(self.logs.site(action.place), f"hg.site.{action.place}.>")

    def _flip_part(self, action: Action) -> None:
        self._flip(self.logs.root(action.place), self.logs.part(action.place))

    def _flip_state(self, action: Action) -> None:
        kind = self.random.choice(("stats.relay", "mark", "hold"))
        self._flip(self.logs.state, f"hg.{kind}.{action.place}" if kind != "mark" else f"hg.mark.{action.place}.*")

    def _flip(self, log: Any, pattern: str) -> None:
        """Damage one stored message."""
        if self.fabric.server.info(log) is None:
            return
        found = self.fabric.server.read(log, pattern, 0, limit=64)
        if found:
            stored = self.random.choice(found)
            self._checks.spoilt.add(stored.subject)
            self.fabric.server.flip(log, stored.sequence)

    def _stray_part(self, action: Action) -> None:
        """A part that no manifest will name, as a driver that died has left it."""
        values = np.arange(5, dtype=np.int64)
        try:
            self._stage(action.place, self.snapshot.revision, values)
        except FabricError:
            return

    def _later(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self.fabric.queue.at(self.fabric.queue.now + seconds, action, *arguments)

    # The end, and the checks

    def _heal(self) -> None:
        """Stop all faults, bring everybody back, and commit once more."""
        self._quiet = True
        server = self.fabric.server
        server.disk_full, self.fabric.hint_loss = False, 0.0
        for log in server.logs:
            log.filled = False
        self.fabric.network.heal()
        self._stalled.clear()
        self._think_s.clear()
        for zombie in self.zombies:
            zombie.kill()
        for site, relay in self.relays.items():
            relay.resume()
            self._revive(site)
        deployment = self.snapshot.deployment
        sites = {name: replace(site, upload_bytes_per_s=None) for name, site in deployment.sites.items()}
        healed = replace(self.snapshot, deployment=replace(deployment, sites=sites))
        self._publish(replace(healed, revision=max(self.oracle.versions) + 1))
        for name in self.snapshot.deployment.subscriptions:
            self._revive_reader(name)
        for stream in deployment.streams:
            self._commit(Action(0.0, "commit", stream, number=3.0))

    def _drain(self) -> None:
        """Wait until everybody has everything; raise when that takes too long."""
        head = max(each.head for each in self.oracle.streams.values())
        bound_s = DRAIN_S + head / _LEAST_ROWS_PER_S
        end_s = self.fabric.queue.now + bound_s
        while self.fabric.queue.now < end_s:
            self._until(self.fabric.queue.now + _STEP_S)
            if not self._behind():
                return
        raise Violation(f"{bound_s:g} s after the last fault {', '.join(self._behind())}")

    def _behind(self) -> list[str]:
        found = []
        for name, subscription in self.snapshot.deployment.subscriptions.items():
            head = self.oracle.streams[subscription.stream].head
            subscriber = self.subscribers.get(name)
            if subscriber is None or (subscriber.mark or 0) < head:
                found.append(f"{name} has {None if subscriber is None else subscriber.mark} of {head}")
        return found
