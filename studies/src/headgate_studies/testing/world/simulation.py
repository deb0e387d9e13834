"""One scenario in virtual time: the production machines, a simulated server, an oracle, and checks at every step."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from headgate.virtual.fabric import SERVER
from headgate_studies.testing.world.contexts import ContextChanges
from headgate_studies.testing.world.coverage import states_of
from headgate_studies.testing.world.deployed import Result
from headgate_studies.testing.world.driver import SimulatedSource
from headgate_studies.testing.world.narrowed import Bandwidths
from headgate_studies.testing.world.oracle import StreamTruth
from headgate_studies.testing.world.published import Publishing
from headgate_studies.testing.world.put_back import PutBack
from headgate_studies.testing.world.scenario import Action
from headgate_studies.testing.world.subscriber import BrokenPromise
from headgate_studies.testing.world.tables import OldTables
from headgate_studies.testing.world.value_troubles import DamagedValues

DRAIN_S: Final = 240.0
"""Once faults have stopped, everything has to be delivered within so many virtual seconds."""
_LEAST_ROWS_PER_S: Final = 30.0  # an inbox of 8 messages of 400 bytes takes no more, as it is purged once a second
_LEAST_ROWS: Final = 6.0  # in a message of 400 bytes
_STEP_S: Final = 1.0
_NEAR: Final = 0.25
_MOST_EVENTS: Final = 50_000


class Simulation(ContextChanges, Publishing, DamagedValues, PutBack, OldTables, Bandwidths):
    """Runs one scenario."""

    def run(self) -> Result:
        """Let everything happen, then let it settle; the result has the first promise that was broken."""
        queue = self.fabric.queue
        try:
            self.begin()
            self.until(self.scenario.length_s)
            self._heal()
            self._drain()
        except BrokenPromise as violation:
            self.result.violation = str(violation)
        self.result.violation = self.result.violation or self._checks.problem
        self.result.events = self.fabric.events
        self.result.simulated_s = queue.now
        for subscriber in self.subscribers.values():
            self.result.delivered += subscriber.delivered
            self.result.given_up += sum(subscriber.given_up.values())
        gateways = [gateway.instance for gateway in self.gateways.values()]
        for instance in (
            *(*self.relays.values(), *self.services.values(), *self.zombies, *self.readers.values()),
            *gateways,
        ):
            instance.kill()
        return self.result

    def until(self, time_s: float) -> None:
        """Let time pass, and look at queues and logs now and then."""
        queue = self.fabric.queue
        while queue.now < time_s and self._checks.problem is None:
            before = self.fabric.events
            queue.run(min(queue.now + _STEP_S, time_s), _MOST_EVENTS)
            if self.fabric.events - before >= _MOST_EVENTS:
                raise BrokenPromise(f"{_MOST_EVENTS} events in a second and no end: {queue.now:.3f} s")
            self._checks.look(self.relays.values(), self.fabric.server.logs)
        if self._checks.problem is not None:
            raise BrokenPromise(self._checks.problem)

    def begin(self) -> None:
        """Make the logs, put the first revision in force, start every process, and plan what is to happen."""
        for log in (self.logs.state, self.logs.tables):
            self.fabric.server.ensure(log)
        for stream in self.snapshot.deployment.streams:
            self.fabric.server.ensure(self.logs.root(stream))
            self.oracle.streams[stream] = StreamTruth()
            self.sources[stream] = SimulatedSource()
        for one in self.snapshot.deployment.sites:
            for link in self.fabric.network.between(one, SERVER):
                link.delay_s = self.random.uniform(0.0005, self.scenario.delay_s)
                link.jitter_s = self.random.uniform(0.0, self.scenario.delay_s)
        self._delay_services()
        self.publish(self.snapshot)
        for stream in self.snapshot.deployment.streams:
            self._start_driver(stream)
            self._start_books(stream)
        self._start_purger()
        for site in self.snapshot.deployment.sites:
            self._start_relay(site)
        for name in self.snapshot.deployment.subscriptions:
            self._start_reader(name)
        self._start_publishing()
        for action in self.scenario.actions:
            self.fabric.queue.at(action.time_s, self._act, action)

    def _delay_services(self) -> None:
        """Drivers and keepers of books stand near the server, but not inside of it."""
        random, streams = Random(f"delays {self.scenario.seed}"), self.snapshot.deployment.streams
        for name in (f"{kind}-{stream}" for stream in streams for kind in ("driver", "books")):
            for link in self.fabric.network.between(name, SERVER):
                link.delay_s = link.jitter_s = random.uniform(0.0, _NEAR * self.scenario.delay_s)

    def _act(self, action: Action) -> None:
        if not self._quiet:
            self.result.faults[action.kind] += 1
            if action.kind != "commit":
                near = [self.relays[action.place]] if action.place in self.relays else self.relays.values()
                self.result.met.update((action.kind, state) for relay in near for state in states_of(relay))
            # Chances of its own, so that leaving out one action leaves the others as they are.
            self.random = Random(f"{self.scenario.seed} {action.time_s} {action.kind}")
            getattr(self, f"_{action.kind}")(action)

    def _heal(self) -> None:
        """Stop all faults, bring everybody back, and commit once more."""
        self._quiet = True
        server = self.fabric.server
        server.disk_full, self.fabric.hint_loss, self.locked = False, 0.0, False
        self.fabric.max_block = self.scenario.max_block
        for log in server.logs:
            log.filled = False
        self.fabric.network.heal()
        self._under_way_s = self.fabric.network.widen(self.fabric.queue.now)
        self._stalled.clear()
        self._think_s.clear()
        for zombie in self.zombies:
            zombie.kill()
        self._buried.clear()
        for site, relay in self.relays.items():
            relay.resume()
            self._revive(site)
        for gateway in self.gateways.values():
            gateway.instance.resume()
        for group in self.groups.values():
            group.heal()
        for name, service in list(self.services.items()):
            service.resume()
            self._revive_service(name)
        deployment = self.snapshot.deployment
        sites = {name: replace(site, upload_bytes_per_s=None) for name, site in deployment.sites.items()}
        healed = replace(self.snapshot, deployment=replace(deployment, sites=sites))
        self.publish(replace(healed, revision=max(self.oracle.versions) + 1))
        for name in self.snapshot.deployment.subscriptions:
            self._revive_reader(name)
        for stream in () if self.scenario.senders else deployment.streams:
            self._commit(Action(0.0, "commit", stream, number=3.0))

    def _drain(self) -> None:
        """Wait until everybody has everything; raise when that takes too long.

        What was on a narrow link when it was mended has left it, and still comes as slowly as it left.
        """
        head = max(len(each.values) for each in self.sources.values())
        # Each message waits for the answer to the one before it, and a small one holds a handful of rows.
        rate = min(_LEAST_ROWS_PER_S, _LEAST_ROWS / max(4 * self.scenario.delay_s, 1e-6))
        bound_s = DRAIN_S + head / rate + self._under_way_s
        end_s = self.fabric.queue.now + bound_s
        while self.fabric.queue.now < end_s:
            self.until(self.fabric.queue.now + _STEP_S)
            if not self._behind():
                return
        raise BrokenPromise(f"{bound_s:g} s after the last fault {', '.join(self._behind())}")

    def _behind(self) -> list[str]:
        found = self._unpublished()
        for stream, source in self.sources.items():
            truth = self.oracle.streams[stream]
            if truth.read < len(source.values) or self.booked.get(stream, 0) < truth.head:
                found.append(
                    f"{stream} has {truth.read} of {len(source.values)} rows, {self.booked.get(stream)} booked"
                )
        for name, subscription in self.snapshot.deployment.subscriptions.items():
            head = self.oracle.streams[subscription.stream].head
            subscriber = self.subscribers.get(name)
            if subscriber is None or (subscriber.mark or 0) < head:
                found.append(f"{name} has {None if subscriber is None else subscriber.mark} of {head}")
        return found
