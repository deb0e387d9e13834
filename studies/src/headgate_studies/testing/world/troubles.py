"""Faults of a simulated deployment: processes, links, clocks, disks and stored messages that fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headgate.client.reader import DONE, STORE
from headgate.protocol.port import FabricError
from headgate.virtual.fabric import SERVER
from headgate.virtual.network import SimulatedClock
from headgate.virtual.process import Instance
from headgate.virtual.server import ServerBackup
from headgate.wire.block import Block
from headgate.wire.ledger import Tally
from headgate_studies.testing.world.deployed import World
from headgate_studies.testing.world.gateway import FedInstance
from headgate_studies.testing.world.scenario import Action

_STORED_S: Final = 5.0  # so long a consumer that goes away waits for its last acknowledgement

_AT_ONCE_S: Final = 1.2  # what comes by a second path is read within so long
_SERVED_S: Final = 6.0  # a parent that is dead is noticed, replaced and made up for within so long


class Troubles(World):
    """Breaks things for a while; each method with one `Action` is a kind of fault of the scenario."""

    def _kill(self, action: Action) -> None:
        self.relays[action.place].kill()
        self._later(action.number / 3, self._revive, action.place)

    def _bury(self, action: Action) -> None:
        """A relay dies and stays dead for long: who is at the other place gets everything all the same."""
        self._buried.add(action.place)
        self.relays[action.place].kill()
        self._later(action.number, self._dig_up, action.place)
        self._later(action.number - _SERVED_S, self._look_at, action.other)

    def _dig_up(self, place: str) -> None:
        self._buried.discard(place)
        self._revive(place)

    def _sever(self, action: Action) -> None:
        """A relay is cut off for less than it takes to be noticed: who has two paths does not wait for it."""
        self._cut(action)
        self._later(action.number - _AT_ONCE_S, self._look_at, action.other, _AT_ONCE_S, 2)

    def _look_at(self, place: str, within_s: float = _SERVED_S, paths: int = 1) -> None:
        """What was committed by now has to be read a little later."""
        for name, each in self.snapshot.deployment.subscriptions.items():
            commits = self.oracle.streams[each.stream].commits
            if each.site == place and commits and not self._quiet and each.paths >= paths:
                self._later(within_s - 0.1, self._served, name, commits[-1].upto)

    def _served(self, name: str, upto: int) -> None:
        if self.subscribers[name].done < upto and not self._quiet:
            self._checks.fail(f"{name} has come to {self.subscribers[name].done} of {upto} while a parent is dead")

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

    def _service(self, action: Action) -> str:
        """The process of the service that an action names, any where it names none."""
        return action.place or self.random.choice(sorted(self.services))

    def _kill_service(self, action: Action) -> None:
        """A driver, a keeper of books or the purger dies between two events, and is started again."""
        name = self._service(action)
        self.services[name].kill()
        self._later(action.number / 3, self._revive_service, name)

    def _replace_service(self, action: Action) -> None:
        """Another one is started while the old one still runs."""
        name = self._service(action)
        old = self.services[name]
        self.zombies.append(old)
        self._restarts[name]()
        self._later(action.number, old.kill)

    def _pause_service(self, action: Action) -> None:
        instance = self.services[self._service(action)]
        instance.pause()
        self._later(action.number, instance.resume)

    def _cut_service(self, action: Action) -> None:
        """One cannot reach the server, or hears nothing of it, for a while."""
        links = self.fabric.network.between(self._service(action), SERVER)
        for link in links[self.random.randint(0, 1) :]:
            link.cut = True
        self._later(action.number, self._join, links)

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

    def _kill_gateway(self, action: Action) -> None:
        """A gateway dies with all of its readers; they come back, each with its position or without."""
        gateway = self.gateways.get(action.place)
        if gateway is not None and gateway.instance.alive:
            gateway.instance.kill()
            for name, reader in self.readers.items():
                if isinstance(reader, FedInstance) and reader.carrier.gateway is gateway and reader.alive:
                    reader.kill()
                    self._later(action.number, self._revive_reader, name)

    def _pause_gateway(self, action: Action) -> None:
        """What comes into the inboxes does not reach memory for a while."""
        gateway = self.gateways.get(action.place)
        if gateway is not None and gateway.instance.alive:
            gateway.instance.pause()
            self._later(action.number, gateway.instance.resume)

    def _lossy_gateway(self, action: Action) -> None:
        """The connection of a gateway loses what it carries for a while."""
        for link in self.fabric.network.between(f"gateway-{action.place}", SERVER):
            link.loss = 0.3
            self._later(action.number, setattr, link, "loss", 0.0)

    def _replace_reader(self, action: Action) -> None:
        """Start another reader of a subscription while the old one goes on; it hears of it when it acknowledges."""
        name = self.random.choice(sorted(self.readers)) if self.readers else None
        if name is not None and name in self.snapshot.subscription_ids and self.readers[name].alive:
            old = self.readers[name]
            self.zombies.append(old)
            self._start_reader(name, from_position=self.random.random() < 0.3)
            self._later(action.number, old.kill)

    def _kill_member(self, action: Action) -> None:
        """A member of a group dies with what it holds, and comes back as another run of itself."""
        for group in self.groups.values():
            member = group.any_member(self.random)
            member.alive = False
            self._later(action.number, group.come_back, member)

    def _leave_member(self, action: Action) -> None:
        """A member says that it goes, and comes back later."""
        for group in self.groups.values():
            member = group.any_member(self.random)
            if member.alive:
                group.leave(member)
                self._later(action.number, group.come_back, member)

    def _stall_member(self, action: Action) -> None:
        for group in self.groups.values():
            group.any_member(self.random).until_s = self.fabric.queue.now + action.number

    def _lossy_member(self, action: Action) -> None:
        for group in self.groups.values():
            member = group.any_member(self.random)
            member.lossy = 0.5
            self._later(action.number, setattr, member, "lossy", 0.0)

    def _hoard_rows(self, _: Action) -> None:
        """A member is never done with some of its rows, though it goes on asking."""
        for group in self.groups.values():
            group.any_member(self.random).hoards = True

    def _kill_dealer(self, action: Action) -> None:
        for name in self.groups:
            if self.readers[name].alive:
                self.readers[name].kill()
                self._later(action.number / 3, self._revive_reader, name)

    def _two_dealers(self, action: Action) -> None:
        """Another dealer begins while the old one still runs, and still has answers on their way."""
        for name in self.groups:
            old = self.readers[name]
            if old.alive and name in self.snapshot.subscription_ids:
                self.zombies.append(old)
                self._start_reader(name)
                self._later(action.number, old.kill)

    def _lossy_dealer(self, action: Action) -> None:
        """Requests of a dealer to the server, and answers, get lost."""
        for name in self.groups:
            for link in self.fabric.network.between(self.readers[name].process, SERVER):
                link.loss = 0.3
                self._later(action.number, setattr, link, "loss", 0.0)

    def _lossy_reader(self, action: Action) -> None:
        """Requests and answers of a reader get lost."""
        if self.readers:
            reader = self.readers[self.random.choice(sorted(self.readers))]
            for link in self.fabric.network.between(reader.process, SERVER):
                link.loss, link.delay_s = 0.3, self.random.uniform(0.0, 0.4)
                self._later(action.number, setattr, link, "loss", 0.0)

    def _detach(self, action: Action) -> None:
        """A reader says that it goes away, and how long its rows are to be kept; some come back later than that."""
        instance = self._end_loop()
        if instance is not None:
            instance.ask(DONE, None, lambda _: None)
            self._store(instance, self._gone, self.random.choice((None, 0.5, 3.0)), action.number)

    def _loop_again(self, _: Action) -> None:
        """A consumer leaves its loop at any time, and begins another one over the same inbox."""
        instance = self._end_loop()
        if instance is not None:
            self._store(instance, self._begin_loop)

    def _end_loop(self) -> Instance | None:
        """A consumer takes nothing more, and is done with what it has taken; None where nobody reads."""
        name = self.random.choice(sorted(self.readers)) if self.readers else None
        instance = self.readers[name] if name is not None else None
        if name is None or instance is None or not instance.alive or instance.left or instance in self.zombies:
            return None
        subscriber = self.subscribers[name]
        instance.left = True
        subscriber.done = max(subscriber.mark or 0, subscriber.done)
        return instance

    def _store(self, instance: Instance, then: Callable[..., None], *arguments: Any) -> None:
        """Acknowledge what a consumer is done with, and go on; a client that dies waits for no answer."""
        name = next(each for each, reader in self.readers.items() if reader is instance)

        def leave(_: Any) -> None:
            if instance.alive and self.readers.get(name) is instance:
                instance.kill()
                then(name, *arguments)

        instance.ask(STORE, None, leave)
        self._later(_STORED_S, leave, None)

    def _begin_loop(self, name: str) -> None:
        self._read_on(name, self.readings[name])

    def _gone(self, name: str, grace_s: float | None, seconds: float) -> None:
        """Say that the reader of a subscription is away."""
        subject = self.logs.ack(self.subscribers[name].id)
        stored = self.fabric.server.last(self.logs.state, subject)
        lost = Tally(self.subscribers[name].id, lost=stored.sequence if stored else 0)
        tally = (Tally.read(stored.data) if stored else None) or lost
        tally.time_ms = tally.detached_ms = int((self.fabric.wall_s + self.fabric.queue.now) * 1000)
        tally.grace_s = grace_s
        with suppress(FabricError):  # the disk is full: it is away without having said so
            self.fabric.publish(subject, tally.encode(), expect=stored.sequence if stored else 0)
        self._later(seconds, self._revive_reader, name)

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
        for place in (*self.relays, *self.services, *(reader.process for reader in self.readers.values())):
            links = self.fabric.network.between(place, SERVER)
            for link in links:
                link.cut = True
            self._later(action.number / 4, self._join, links)

    def _flip_inbox(self, action: Action) -> None:
        self._flip(self.logs.inbox(action.place), f"hg.inbox.{action.place}.*")

    def _flip_site(self, action: Action) -> None:
        self._flip(self.logs.site(action.place), f"hg.site.{action.place}.>")

    def _flip_last(self, action: Action) -> None:
        """Damage the last message of every link into a site."""
        log = self.logs.site(action.place)
        for subject in sorted(self.fabric.server.subjects(log, self.logs.links_into(action.place))):
            last = self.fabric.server.last(log, subject)
            if last is not None:
                self._checks.spoilt.add(subject)
                self.fabric.server.flip(log, last.sequence)

    def _flip_part(self, action: Action) -> None:
        self._flip(self.logs.root(action.place), self.logs.part(action.place))

    def _flip_state(self, action: Action) -> None:
        kind = self.random.choice(("stats.relay", "mark", "hold"))
        self._flip(self.logs.state, f"hg.{kind}.{action.place}" if kind != "mark" else f"hg.mark.{action.place}.*")

    def _flip_ack(self, action: Action) -> None:
        """Damage what a reader has acknowledged; one that comes back then has to say that it has lost its place."""
        name = self.random.choice(sorted(self.readers)) if self.readers else None
        if name is not None and self.readers[name].alive:
            self.readers[name].kill()
            subject = self.logs.ack(self.subscribers[name].id)
            stored = self.fabric.server.last(self.logs.state, subject)
            known = Tally.read(stored.data) if stored else None
            self._flip(self.logs.state, subject)
            self._checks.goes_back(subject, known.reader if known else "")
            self._later(action.number / 3, self._revive_reader, name)

    def _old_ack(self, action: Action) -> None:
        """Put an acknowledgement back to what it was; a reader that is there is told and starts again from it."""
        name = self.random.choice(sorted(self.subscribers)) if self.subscribers else None
        if name is not None and name in self.snapshot.subscription_ids:
            subject = self.logs.ack(self.subscribers[name].id)
            stored = self.fabric.server.last(self.logs.state, subject)
            if stored is not None:
                self._later(action.number, self._put_back, name, subject, stored.data)

    def _put_back(self, name: str, subject: str, data: Any) -> None:
        tally = Tally.read(data)
        if self._quiet or tally is None or tally.mark > self.subscribers[name].done:
            return  # it is not older than what its reader, which was put back before, has come to
        for earlier in self.zombies:
            if earlier.process == f"reader-{name}":
                earlier.kill()  # the acknowledgement may be its own, and it would take over again
        reader = self.readers.get(name)
        if reader is not None and reader.alive:
            self.zombies.append(reader)
            self._later(1.0, reader.kill)
            self._later(1.5, self._revive_reader, name)
        self._checks.goes_back(subject)
        self._checks.damaged.pop(subject, None)
        with suppress(FabricError):  # the disk is full
            self.fabric.publish(subject, data)

    def _restore_site(self, action: Action) -> None:
        """Put a site log back to an older copy, with its relay stopped meanwhile."""
        log = self.logs.site(action.place)
        if self.fabric.server.info(log) is not None:
            self._later(action.number / 2, self._restore, action.place, self.fabric.server.backup(log))

    def _restore(self, site: str, copy: ServerBackup) -> None:
        if not self._quiet:
            self.relays[site].kill()
            for relay in self.zombies:
                if relay.process == site:
                    relay.kill()
            log = self.logs.site(site)
            self._checks.spoilt.update(self.fabric.server.subjects(log, ">"))
            self.fabric.server.restore(copy, log)
            self._later(0.5, self._revive, site)

    def _oversize(self, action: Action) -> None:
        """The server takes small messages only: rows that do not fit are declared."""
        self.fabric.max_block = 140
        self._later(action.number / 3, setattr, self.fabric, "max_block", self.scenario.max_block)

    def _lock_catalog(self, action: Action) -> None:
        """Another program holds the catalog: no change is made."""
        self.locked = True
        self._later(action.number, setattr, self, "locked", False)

    def _flip_rows(self, action: Action) -> None:
        """Damage a part of a late commit, and all messages further down that have rows of some range of it."""
        stream, server = action.place, self.fabric.server
        late = self.oracle.streams[stream].commits[-12:]
        if not late:
            return
        commit = self.random.choice(late)
        low, high = sorted(self.random.randint(commit.after, commit.upto) for _ in range(2))
        manifests = server.read(self.logs.root(stream), self.logs.commit(stream), 0, limit=1 << 20)
        for stored in manifests:
            if getattr(stored.data, "after", None) == commit.after and stored.data.evaluated:
                staged = [part.log_sequence for part in stored.data.parts if part.log_sequence]
                if staged:
                    server.flip(self.logs.root(stream), self.random.choice(staged))
        for log in server.logs:
            if log.log.name.startswith(("HG_SITE", "HG_INBOX")):
                for stored in log.read(">", 0, 1 << 20, 1 << 40):
                    block = stored.data
                    mine = isinstance(block, Block) and block.stream == stream and ".held." not in stored.subject
                    if mine and block.upto > low and block.after < high:
                        self._checks.spoilt.add(stored.subject)
                        log.flip(stored.sequence)

    def _flip(self, log: Any, pattern: str) -> None:
        """Damage one stored message."""
        if self.fabric.server.info(log) is None:
            return
        found = self.fabric.server.read(log, pattern, 0, limit=64)
        if found:
            stored = self.random.choice(found)
            self._checks.spoilt.add(stored.subject)
            self.fabric.server.flip(log, stored.sequence)
