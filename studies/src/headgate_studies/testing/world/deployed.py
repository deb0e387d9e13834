"""A deployment in virtual time: relays, readers and services as processes on a simulated server, with an oracle."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from headgate.client.acknowledging import Acknowledger
from headgate.client.errors import ClientError
from headgate.client.reader import TAKEN, ReaderMachine, Reading
from headgate.gateway.dealer import DealerMachine
from headgate.model.start import EARLIEST
from headgate.protocol.kernel import Completed, Machine
from headgate.protocol.port import Ask, FabricError, Purge
from headgate.relay.machine import RelayMachine
from headgate.relay.output import QueueLimits
from headgate.relay.state import OvertakenError
from headgate.virtual.fabric import SERVER, SimulatedFabric
from headgate.virtual.process import Instance
from headgate.virtual.server import SimulatedServer
from headgate.wire.block import Block
from headgate.wire.ledger import Account, Tally
from headgate.wire.logs import Log, Logs
from headgate_studies.testing.world.checks import Checks, asked_in_vain
from headgate_studies.testing.world.codec import PlainCodec, answer_size, size_of
from headgate_studies.testing.world.driver import SimulatedSource
from headgate_studies.testing.world.gateway import FedInstance, SimulatedGateway
from headgate_studies.testing.world.groups import SimulatedGroup, told
from headgate_studies.testing.world.in_flight import Whereabouts
from headgate_studies.testing.world.oracle import Oracle
from headgate_studies.testing.world.scenario import Scenario
from headgate_studies.testing.world.subscriber import BrokenPromise, Subscriber
from headgate_studies.testing.world.thinned import ThinnedTruth, is_thinned

Tracer = Callable[[Machine, str, Any], None]
_WORK_S: Final = 0.3  # so long work takes at most that a machine hands off
_TAKE_S: Final = 0.02  # so long a block lies ready at most until the loop of its consumer takes it


def _nothing(_: object) -> None:
    """Nobody waits for the answer."""


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
    versions_deleted: int = 0
    in_flight_checks: int = 0
    sums_lost: int = 0
    told: int = 0
    violation: str | None = None


class World:
    """The processes of one scenario, what they stand on, and what is known to be true about them."""

    def __init__(self, scenario: Scenario, tracer: Tracer | None = None) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed ^ 0x5EED)
        self.logs = Logs(
            "hg",
            inbox_messages=scenario.inbox_messages,
            max_bytes=scenario.max_bytes,
            root_bytes=scenario.root_bytes,
        )
        self.fabric = SimulatedFabric(SimulatedServer(), self.logs, Random(scenario.seed), size_of, _WORK_S)
        self.fabric.max_block = scenario.max_block
        self.fabric.answer_size = answer_size
        self.fabric.failed = self._failed
        self.oracle = Oracle()
        self.result = Result(scenario.seed)
        self.snapshot = scenario.first
        self.relays: dict[str, Instance] = {}
        self.zombies: list[Instance] = []
        self.readers: dict[str, Instance] = {}
        self.gateways: dict[str, SimulatedGateway] = {}
        self.groups: dict[str, SimulatedGroup] = {}
        self.readings: dict[str, Reading] = {}
        self.subscribers: dict[str, Subscriber] = {}
        self._checks = Checks(self.subscribers, scenario.max_rows)
        self._whereabouts = Whereabouts(self.fabric.server, self.logs, self.oracle, self.relays)
        self.fabric.appended = self._appended
        self.fabric.purging = self._purging
        self.fabric.decided = self._decided
        self.fabric.asking = self._asking
        self.sources: dict[str, SimulatedSource] = {}
        self.services: dict[str, Instance] = {}
        self.booked: dict[str, int] = {}
        self._numbers = itertools.count()
        self._restarts: dict[str, Callable[[], None]] = {}
        self._idle: dict[str, list[tuple[Instance, int]]] = {}
        self._stalled: dict[str, float] = {}
        self._think_s: dict[str, float] = {}
        self._tracer = tracer
        self._instances = 0
        self._quiet = False
        self._buried: set[str] = set()  # relays that are not started again for now
        self.locked = False
        self._under_way_s = 0.0  # what is on narrow links when they are mended still takes so long
        self._standing = False  # whether everything is stopped for now
        self._sums_damaged: set[str] = set()  # streams whose stored sums were damaged
        self._doomed: dict[str, float] = {}  # drivers that die with their next pin, and for how long

    def _instance(self, process: str, machine: Machine, consumer: Callable[..., None] | None = None) -> Instance:
        self._instances += 1
        machine.tracer = self._tracer
        return Instance(self.fabric, process, self._instances, machine, consumer)

    def _appended(self, subject: str, data: Any, sequence: int) -> None:
        """Look at what was stored."""
        if self.groups and subject.startswith("hg.ack."):
            told(self.groups, data)
        self._checks.appended(subject, data, sequence)

    def _purging(self, log: Log, subject: str) -> None:
        """Look at what is about to be deleted."""

    def _decided(self, instance: Instance, purge: Purge) -> None:
        """A relay lets go of messages of its site log: none that it has routed and has not passed on."""
        if ".inbox." in purge.subject:
            self._still_unread(instance, purge)
        if not isinstance(instance.machine, RelayMachine) or ".in." not in purge.subject:
            return
        stream, core = purge.subject.split(".")[-2], instance.machine.state.core
        settled, reached = core.settled(stream), core.coverage(stream) or 0
        if settled is None:
            return
        for stored in self.fabric.server.read(purge.log, purge.subject, 0, limit=1 << 20):
            block, goes = stored.data, stored.sequence < purge.below
            # Of one that was routed in part, the rest is asked for again.
            if goes and isinstance(block, Block) and min(block.upto, reached) > max(settled, block.after):
                self._checks.fail(
                    f"{instance.process} purges ({block.after}, {block.upto}] of {stream}, passed on is {settled}"
                )

    def _asking(self, instance: Instance, ask: Ask) -> None:
        """Somebody asks for rows: nobody for what it has itself."""
        problem = asked_in_vain(instance, ask, self.fabric.server, self.logs)
        if problem is not None:
            self._checks.fail(problem)

    def _still_unread(self, instance: Instance, purge: Purge) -> None:
        """A relay lets go of messages of an inbox: none that somebody who reads it has not acknowledged."""
        kept = self.snapshot
        going = self.fabric.server.read(purge.log, purge.subject, 0, limit=1 << 20)
        for stored in (each for each in going if each.sequence < purge.below and isinstance(each.data, Block)):
            then = self.oracle.versions[stored.data.version]
            for name, each in then.deployment.subscriptions.items():
                identity, stay = then.subscription_ids[name], each.present
                subject, ack = self.logs.delivery(stay.site, *stay.inbox_of(identity)), self.logs.ack(identity)
                if subject != purge.subject or kept.subscription_ids.get(name) != identity:
                    continue
                if stay not in kept.deployment.subscriptions[name].stays or ack in self._checks.went_back:
                    continue
                found = self.fabric.server.last(self.logs.state, ack)
                tally = (Tally.read(found.data) if found else None) or Tally(identity)
                if tally.stay < stay.number or (tally.stay == stay.number and tally.inbox < stored.sequence):
                    mine = (stored.data.after, stored.data.upto)
                    self._checks.fail(f"{instance.process} purges {mine} of {subject}, which {name} has not read")

    def _start_service(
        self, name: str, machine: Machine, again: Callable[[], None], consumer: Callable[..., None] | None = None
    ) -> None:
        """Start a process of the service; `again` starts another one in its place."""
        instance = self.services[name] = self._instance(name, machine, consumer)
        self._restarts[name] = again
        instance.feed(None)

    def _revive_service(self, name: str) -> None:
        if not self.services[name].alive:
            self._restarts[name]()

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

    def _start_reader(self, name: str, *, from_position: bool = False, after_loss: bool = False) -> None:
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
        known.reader = f"{name} {next(self._numbers)}"
        try:
            sequence = self.fabric.publish(subject, known.encode(), expect=stored.sequence if stored else 0)
        except FabricError:  # the disk is full: it comes back later
            self.fabric.queue.at(self.fabric.queue.now + 1.0, self._revive_reader, name)
            return
        past = snapshot.class_ids[name] if subscription.start == EARLIEST else None
        subscriber = self.subscribers.setdefault(name, Subscriber(name, identity, subscription.stream, past))
        if is_thinned(subscription) and subscriber.thinned is None:
            ended = {each.place for each in self.scenario.actions if each.kind in ("kill", "replace")}
            subscriber.thinned = ThinnedTruth(subscription, exact=subscription.site not in ended)
        tally = copy.deepcopy(known)
        if from_position and subscriber.position is not None:
            tally = Tally.decode(subscriber.position)
            tally.reader = known.reader
            subscriber.done = tally.mark
            self._checks.damaged.pop(subject, None)  # its consumer knows where it is
        else:
            self._settle_past(subscriber)
            subscriber.go_back(tally, self.oracle)
            subscriber.told = tally.lost > 0 or after_loss
            subscriber.accepts = after_loss
        acks = Acknowledger(name, sequence, known)
        if subscription.group is not None:
            self._deal_on(name, Reading(name, snapshot, Account(copy.deepcopy(known)), acks))
            return
        self._read_on(name, Reading(name, snapshot, Account(tally), acks, after_loss=after_loss))

    def _read_on(self, name: str, reading: Reading) -> None:
        """Begin a loop over a subscription."""
        machine = ReaderMachine(reading, self.logs, 1 << 20, PlainCodec())
        self.readings[name] = reading

        def consume(instance: Instance, number: int, block: Block) -> None:
            # The consumer's loop runs beside the reader: it takes the block a little later, if it still runs then.
            self._later(self.fabric.random.random() * _TAKE_S, self._take, name, reading, instance, number, block)

        instance = self.readers[name] = self._reader_instance(name, reading, machine, consume)
        instance.feed(None)

    def _deal_on(self, name: str, reading: Reading) -> None:
        """Begin to deal a group."""
        rule = reading.snapshot.deployment.subscriptions[name].group
        assert rule is not None
        machine = DealerMachine(reading, rule, self.logs, 1 << 20, PlainCodec())
        group = self.groups.get(name)
        if group is None:
            random = Random(f"group {self.scenario.seed} {name}")
            group = self.groups[name] = SimulatedGroup(
                self.subscribers[name], rule.lease_s, self.oracle, random, self._later
            )
            group.now, group.wrong = (lambda: self.fabric.queue.now), self._checks.fail
            self._later(0.1, group.begin)
        group.dealer = self.readers[name] = self._instance(f"reader-{name}", machine)
        group.dealer.feed(None)

    def _reader_instance(
        self, name: str, reading: Reading, machine: ReaderMachine, consume: Callable[..., None]
    ) -> Instance:
        """The process of a reader: one of its own, or that of its site's gateway."""
        gateway = self._gateway(reading.site)
        if gateway is None:
            return self._instance(f"reader-{name}", machine, consume)
        self._instances += 1
        machine.tracer = self._tracer
        for link in self.fabric.network.between(f"reader-{name}", SERVER):
            link.delay_s = self.scenario.delay_s
        return FedInstance(gateway, f"reader-{name}", self._instances, machine, consume)

    def _gateway(self, site: str) -> SimulatedGateway | None:
        """The gateway of a site, which is started where it does not run; None where the scenario has none."""
        if not self.scenario.gateway_messages:
            return None
        known = self.gateways.get(site)
        if known is None or not known.instance.alive:
            known = self.gateways[site] = SimulatedGateway(self.fabric, self.logs, site, self.scenario)
            known.wrong = self._checks.fail
            known.instance = self._instance(f"gateway-{site}", known.machine, known.arrived)
            known.instance.feed(None)
        return known

    def _settle_past(self, subscriber: Subscriber) -> None:
        """The class may have changed before the first commit."""
        if subscriber.past is not None:
            subscriber.past = self.oracle.first_class(subscriber.stream, subscriber.id) or subscriber.past

    def _take(self, name: str, reading: Reading, instance: Instance, number: int, block: Block) -> None:
        """A consumer takes a block: it is checked at once, and dealt with after a while."""
        subscriber = self.subscribers[name]
        if not instance.alive or instance.left:
            return
        if self.readers.get(name) is not instance:  # another reader has taken over: what this one gets counts no more
            self.fabric.queue.at(self.fabric.queue.now + 0.01, instance.feed, Completed(number))
            return
        self._settle_past(subscriber)
        try:
            subscriber.take(block, reading.account.tally, self.oracle)
        except BrokenPromise as violation:
            self._checks.problem = self._checks.problem or str(violation)
            return
        instance.ask(TAKEN, None, _nothing)
        subscriber.position = reading.position
        now = self.fabric.queue.now
        done_s = max(now + self._think_s.get(name, 0.001), self._stalled.get(name, 0.0))
        self.fabric.queue.at(done_s, self._finished, subscriber, instance, number, block.upto)

    def _finished(self, subscriber: Subscriber, instance: Instance, number: int, upto: int) -> None:
        """A consumer is done with a block."""
        if instance.alive and not instance.left:
            subscriber.done = upto
            instance.feed(Completed(number))

    def _failed(self, instance: Instance, error: Exception) -> None:
        if isinstance(error, OvertakenError):  # it starts again from the logs
            if self.relays.get(instance.process) is instance:
                self._later(1.0, self._revive, instance.process)
            return
        if isinstance(error, ClientError) and instance in self.zombies:  # it has heard that another has taken over
            return
        if isinstance(error, ClientError) and error.kind == "gone" and self._read_what_is_left(instance):
            return
        self._checks.problem = (
            self._checks.problem or f"{instance.machine.name} failed at {self.fabric.queue.now:.3f} s: {error!r}"
        )

    def _read_what_is_left(self, instance: Instance) -> bool:
        """A reader whose acknowledgement was put back hears that rows behind it are gone, and accepts that."""
        name = next((each for each, reader in self.readers.items() if reader is instance), None)
        if name is None or self.logs.ack(self.subscribers[name].id) not in self._checks.went_back:
            return False
        self._later(1.0, lambda: self._start_reader(name, after_loss=True))
        return True

    def _later(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self.fabric.queue.at(self.fabric.queue.now + seconds, action, *arguments)

    def _revive(self, site: str) -> None:
        if not self.relays[site].alive and site not in self._buried:
            self._start_relay(site)

    def _revive_reader(self, name: str) -> None:
        known = self.readers.get(name)
        if name in self.snapshot.subscription_ids and (known is None or not known.alive):
            self._start_reader(name, from_position=self.random.random() < 0.5)
