"""One deployment in virtual time, without faults: relays, links with their delays, a reader for each subscription.

Rows are committed to it as a job would, and it says what every reader was handed and when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from headgate.client.acknowledging import Acknowledger
from headgate.client.reader import TAKEN, ReaderMachine, Reading
from headgate.errors import HeadgateError
from headgate.pipeline.commit import build_manifest
from headgate.pipeline.recorded_data import VERSION, MicroBatch, placed
from headgate.protocol import port
from headgate.protocol.kernel import Completed, Machine
from headgate.protocol.records import Pin
from headgate.relay.budget import Budgets
from headgate.relay.machine import RelayMachine
from headgate.replay.variants import Variant
from headgate.virtual.fabric import SERVER, SimulatedFabric
from headgate.virtual.process import Instance
from headgate.virtual.server import MAX_PAYLOAD, SimulatedServer
from headgate.wire.block import Block
from headgate.wire.ledger import Account, Tally
from headgate.wire.logs import Logs
from headgate.wire.manifest import encode_manifest
from headgate.wire.sealed import write_number
from headgate.wire.sums import Entry, Matched

_STEP_S: Final = 1.0
_IDLE_S: Final = 4.0
"""Once everybody has everything, so long is simulated on: then time is skipped up to the next rows."""
_START_S: Final = 1.0
_DRAIN_S: Final = 7 * 86_400.0
"""Rows that are still queued so long after the last commit are said to be in flight."""

Handed = Callable[[str, Block, float], None]
"""Told of each block that a subscription's reader was handed, and when, in seconds since 1970."""


def _nothing(_: object) -> None:
    """Nobody waits for the answer."""


class _Links(SimulatedFabric):
    """A fabric on which a block for another site takes the delay of the link there, and its answer the way back."""

    def place_of(self, command: Any) -> str:
        if type(command) is port.Append:
            words = command.subject.split(".")
            if words[1] == "site" and words[3] == "in" and words[2] != words[-1]:
                return str(words[2])
        return SERVER


def _bytes_of(message: Any) -> int:
    return len(message) if isinstance(message, bytes) else 0


@dataclass
class _Stream:
    """What was committed of one stream: sums for the ledger, and where in its log each commit begins."""

    sums: Matched
    members: dict[int, int]
    batch: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)  # the end of a commit and the place of its first part


class ReplayWorld:
    """One variant of a deployment, started a little before the first rows come at `first_s` seconds since 1970."""

    def __init__(self, variant: Variant, first_s: float, handed: Handed) -> None:
        self.variant = variant
        self.snapshot = variant.snapshot
        self.logs = Logs()
        self.fabric = _Links(SimulatedServer(), self.logs, Random(0), _bytes_of)
        self.fabric.wall_s = first_s - _START_S
        self.fabric.failed = self._failed
        self._handed = handed
        self._instances = 0
        self._tallies: dict[str, Account] = {}
        self._streams: dict[str, _Stream] = {}
        self.relays: dict[str, RelayMachine] = {}
        self._settled_s = 0.0
        self._begin()

    @property
    def now_s(self) -> float:
        """The time, in seconds since 1970."""
        return self.fabric.wall_s + self.fabric.queue.now

    def _begin(self) -> None:
        server, deployment, snapshot = self.fabric.server, self.snapshot.deployment, self.snapshot
        for log in (self.logs.state, self.logs.tables):
            server.ensure(log)
        for stream in deployment.streams:
            server.ensure(self.logs.root(stream))
            members = {
                snapshot.subscription_ids[name]: snapshot.class_ids[name]
                for name, each in deployment.subscriptions.items()
                if each.stream == stream
            }
            self._streams[stream] = _Stream(Matched(stream), members)
        self.fabric.publish(self.logs.table(VERSION), snapshot)
        self.fabric.publish(self.logs.head, write_number(VERSION))
        assert snapshot.plan is not None
        sites = dict.fromkeys(site for tree in snapshot.plan.trees.values() for site in tree.members)
        for one in sites:
            for other in sites:
                delay_s = deployment.links.between(one, other).delay_s if one != other else 0.0
                there = self.fabric.network.link(one, other)
                there.delay_s = delay_s + deployment.sites[other].processing_delay_s
        budgets = Budgets(deployment)
        for site in sites:
            relay = RelayMachine(site, self.logs, max_payload=MAX_PAYLOAD, budgets=budgets)
            self.relays[site] = relay
            self.fabric.serve(relay.service, self._start(site, relay))
        for name in deployment.subscriptions:
            self._read(name)

    def _start(self, process: str, machine: Machine, consumer: Callable[..., None] | None = None) -> Instance:
        self._instances += 1
        instance = Instance(self.fabric, process, self._instances, machine, consumer)
        self.fabric.queue.at(0.0, instance.feed, None)
        return instance

    def _read(self, name: str) -> None:
        """Start the reader of a subscription, whose consumer takes whatever it is handed at once."""
        known = Tally(self.snapshot.subscription_ids[name])
        known.reader = name
        sequence = self.fabric.publish(self.logs.ack(known.subscription), known.encode(), expect=0)
        account = Account(Tally.decode(known.encode()))
        reading = Reading(name, self.snapshot, account, Acknowledger(name, sequence, known))
        self._tallies[name] = account

        def take(instance: Instance, number: int, block: Block) -> None:
            self._handed(name, block, self.now_s)
            instance.ask(TAKEN, None, _nothing)
            instance.feed(Completed(number))

        def consume(instance: Instance, number: int, block: Block) -> None:
            self.fabric.queue.at(self.fabric.queue.now, take, instance, number, block)

        self._start(f"reader-{name}", ReaderMachine(reading, self.logs, MAX_PAYLOAD), consume)

    def _failed(self, instance: Instance, error: Exception) -> None:
        raise HeadgateError(f"{instance.machine.name} failed at {self.now_s:.3f} s: {error}") from error

    def commit(self, stream: str, end_s: float, tick: MicroBatch, *, lags: bool) -> None:
        """Commit what a micro-batch stages, once time has come to its end; `lags` says that its event times count."""
        self._until(end_s - self.fabric.wall_s)
        mine = self._streams[stream]
        places = [self.fabric.publish(self.logs.part(stream), part) for part in tick.parts]
        staged, now_ms = placed(tick, places), round(self.now_s * 1000)
        pin = Pin(VERSION, batch=mine.batch)
        manifest = build_manifest(stream, "replay", mine.batch, pin, staged, mine.sums.head, now_ms, lags=lags)
        place = self.fabric.publish(self.logs.commit(stream), encode_manifest(manifest))
        mine.batch += 1
        mine.sums.add(manifest, mine.members)
        mine.starts.append((manifest.upto, places[0] if places else place))
        self._settled_s = 0.0
        self._forget(stream)

    def _forget(self, stream: str) -> None:
        """Free the root log of commits that every reader has passed, and the sums of them."""
        mine = self._streams[stream]
        passed = min((self._boundary(name) for name in self._names(stream)), default=mine.sums.head)
        gone = sum(upto <= passed for upto, _ in mine.starts)
        if gone > 1:
            below = mine.starts[gone - 1][1]
            for subject in (self.logs.part(stream), self.logs.commit(stream)):
                self.fabric.server.purge(self.logs.root(stream), subject, below)
            mine.sums.fold(mine.starts[gone - 2][0])
            del mine.starts[: gone - 1]

    def _names(self, stream: str) -> list[str]:
        return [name for name, each in self.snapshot.deployment.subscriptions.items() if each.stream == stream]

    def _boundary(self, name: str) -> int:
        return self._tallies[name].tally.boundary

    def _behind(self) -> bool:
        """Whether a reader has not come to the end of its stream."""
        return any(
            self._boundary(name) < mine.sums.head
            for stream, mine in self._streams.items()
            for name in self._names(stream)
        )

    def _until(self, until_s: float) -> None:
        """Let time pass; where everybody has everything, at once."""
        queue = self.fabric.queue
        while queue.now < until_s:
            queue.run(min(queue.now + _STEP_S, until_s))
            self._settled_s = 0.0 if self._behind() else self._settled_s + _STEP_S
            if self._settled_s > _IDLE_S and until_s - queue.now > 2 * _IDLE_S:
                queue.skip(until_s - queue.now - _IDLE_S)

    def finish(self) -> None:
        """Let everything be delivered that was committed."""
        end_s = self.fabric.queue.now + _DRAIN_S
        while self._behind() and self.fabric.queue.now < end_s:
            self._until(self.fabric.queue.now + _STEP_S)

    def tally(self, name: str) -> Tally:
        """What a subscription's reader has counted."""
        return self._tallies[name].tally

    def ledger(self) -> dict[str, Entry]:
        """The line of each subscription that was owed a row."""
        names = {identity: name for name, identity in self.snapshot.subscription_ids.items()}
        tallies = [account.tally for account in self._tallies.values()]
        lines = [line for mine in self._streams.values() for line in mine.sums.entries(tallies)]
        return {names[line.subscription]: line for line in lines}

    def sums(self, stream: str) -> Matched:
        """What was committed of a stream."""
        return self._streams[stream].sums
