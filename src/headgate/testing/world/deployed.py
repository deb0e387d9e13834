"""A deployment in virtual time: relays and readers as processes on a simulated server, watched by an oracle."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headgate.client.acknowledging import Acknowledger
from headgate.client.errors import ClientError
from headgate.client.reader import ReaderMachine, Reading
from headgate.protocol.kernel import Completed, Machine
from headgate.protocol.port import FabricError
from headgate.relay.machine import RelayMachine
from headgate.relay.output import QueueLimits
from headgate.relay.state import OvertakenError
from headgate.testing.world.checks import Checks
from headgate.testing.world.codec import PlainCodec
from headgate.testing.world.fabric import SimulatedFabric
from headgate.testing.world.oracle import Oracle
from headgate.testing.world.process import Instance
from headgate.testing.world.scenario import Scenario
from headgate.testing.world.server import SimulatedServer
from headgate.testing.world.subscriber import Subscriber, Violation
from headgate.wire.block import Block
from headgate.wire.ledger import Account, Matched, Tally
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest

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


class World:
    """The processes of one scenario, what they stand on, and what is known to be true about them."""

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
        self.locked = False

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
        # As a client does: where the place was that cannot be read goes into every later acknowledgement.
        known = Tally(identity, lost=stored.sequence if stored is not None else 0)
        known = (Tally.read(stored.data) if stored is not None else None) or known
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
            tally = copy.deepcopy(subscriber.position)
            subscriber.done = tally.mark
            self._checks.damaged.discard(subject)  # its consumer knows where it is
        else:
            self._settle_past(subscriber)
            subscriber.go_back(tally, self.oracle)
            subscriber.told = tally.lost > 0
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
        if not instance.alive:
            return
        if self.readers.get(name) is not instance:  # another reader has taken over: what this one gets counts no more
            self.fabric.queue.at(self.fabric.queue.now + 0.01, instance.feed, Completed(number))
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
        if isinstance(error, ClientError) and instance in self.zombies:  # it has heard that another has taken over
            return
        self._checks.problem = (
            self._checks.problem or f"{instance.machine.name} failed at {self.fabric.queue.now:.3f} s: {error!r}"
        )

    def _later(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self.fabric.queue.at(self.fabric.queue.now + seconds, action, *arguments)

    def _revive(self, site: str) -> None:
        if not self.relays[site].alive:
            self._start_relay(site)

    def _revive_reader(self, name: str) -> None:
        known = self.readers.get(name)
        if name in self.snapshot.subscription_ids and (known is None or not known.alive):
            self._start_reader(name, from_position=self.random.random() < 0.5)
