"""Rows that are published at sites and go up to the root: senders that move, the sites' machines, a family, its faults.

What goes up is carried by the product (`headgate.relay.upward`). A sender has one message under way and sends it again
under the same id until it hears that it is stored, at another site where it has moved, as `headgate.client.sender`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from headgate.model import Site, Source
from headgate.protocol.port import FabricError
from headgate.relay.upward import UpwardMachine
from headgate.virtual.fabric import SERVER
from headgate.wire.parcel import Parcel
from headgate_studies.testing.world.codec import PlainCodec
from headgate_studies.testing.world.commits import Commits
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import small_scenario, subscription

_STREAM: Final = "t0"
_ROOT: Final = "upward-s0"
_NEAR: Final = 0.5
_AGAIN_S: Final = 0.1
_UNHEARD: Final = 0.15  # part of the messages of which the sender does not hear that they were stored
_MOST_ROWS: Final = 6
_LARGE: Final = 4_000  # bytes of a message of which a few fill a parcel


@dataclass
class SimulatedSender:
    """Publishes one message after the other; `site` is where. `stored` are those of which it has heard."""

    name: str
    site: str
    padding: bytes = b""
    number: int = 1
    stored: int = 0
    rows: list[int] = field(default_factory=list)
    """The rows of the message that is under way."""


class Publishing(Commits):
    """Publishes at sites; each method with one `Action` is a kind of change or fault of the scenario."""

    def _start_publishing(self) -> None:
        """Make inputs and outboxes, and start the machines of all sites and the senders."""
        self.senders: dict[str, SimulatedSender] = {}
        self.arrived: Counter[str] = Counter()
        self._places: dict[str, int] = {}
        if not self.scenario.senders:
            return
        random = Random(f"publishing {self.scenario.seed}")
        self.fabric.server.ensure(self.logs.input(_STREAM))
        for site in self.snapshot.deployment.sites:
            self.fabric.server.ensure(self.logs.outbox(site))
            for link in self.fabric.network.between(f"upward-{site}", SERVER):
                link.delay_s = link.jitter_s = random.uniform(0.0, _NEAR * self.scenario.delay_s)
            self._start_upward(site)
        for number in range(self.scenario.senders):
            site = random.choice(sorted(self.snapshot.deployment.sites))
            made = SimulatedSender(f"sender{number}-", site, random.choice((b"", b" " * _LARGE)))
            self.senders[made.name] = made
            self._later(random.random(), self._send, made, Random(f"{made.name} {self.scenario.seed}"))

    def _start_upward(self, site: str) -> None:
        machine = UpwardMachine(site, self.logs, codec=PlainCodec())
        self._start_service(f"upward-{site}", machine, lambda: self._start_upward(site))
        self.fabric.serve(machine.service, self.services[f"upward-{site}"])

    def _send(self, sender: SimulatedSender, random: Random) -> None:
        """Try to store the message that is under way, and go on to the next one when that was heard."""
        if self._quiet and not sender.rows:
            return
        sender.rows = sender.rows or [random.randrange(60) for _ in range(random.randint(1, _MOST_ROWS))]
        identity = f"{sender.name}{sender.number}"
        data = f"{identity} {' '.join(map(str, sender.rows))}".encode() + sender.padding
        try:
            subject = self.logs.published_at(sender.site, _STREAM)
            self.fabric.publish(subject, data, message_id=identity)
            if self._quiet or random.random() >= _UNHEARD:
                sender.stored, sender.rows = sender.number, []
                sender.number += 1
        except FabricError:  # the outbox takes nothing: it waits with the sender
            pass
        self._later(_AGAIN_S + random.random() * 2 * self.scenario.pace_s, self._send, sender, random)

    def _move_sender(self, action: Action) -> None:
        """A sender goes on at another site; what is under way is sent again there."""
        if self.senders:
            self.senders[self.random.choice(sorted(self.senders))].site = action.place

    def _fill_outbox(self, action: Action) -> None:
        log = self.logs.outbox(action.place)
        self.fabric.server.fill(log)
        self._later(action.number, self.fabric.server.fill, log, False)

    def _fill_input(self, action: Action) -> None:
        """The root takes nothing for a while."""
        log = self.logs.input(_STREAM)
        self.fabric.server.fill(log)
        self._later(action.number, self.fabric.server.fill, log, False)

    def _lossy_upward(self, action: Action) -> None:
        for link in self.fabric.network.between(f"upward-{action.place}", SERVER):
            link.loss = 0.3
            self._later(action.number, setattr, link, "loss", 0.0)

    def _forget_ids(self, _: Action) -> None:
        """The server begins again, and has forgotten the ids of what is stored no longer."""
        self.fabric.server.restart()

    def _appended(self, subject: str, data: Any, sequence: int) -> None:
        """What comes to the root comes once, whole, and in the order in which its site stored it."""
        if self.scenario.senders and subject == self.logs.carried(_STREAM):
            self._came(Parcel.decode(data))
        super()._appended(subject, data, sequence)

    def _came(self, parcel: Parcel) -> None:
        source = self.sources[_STREAM]
        for item in parcel.items:
            identity, *values = item.data.decode().split()
            self.arrived[identity] += 1
            if self.arrived[identity] > 1 or identity != item.identity:
                self._checks.fail(
                    f"{identity}, published at {parcel.origin}, comes to the root again as {item.identity}"
                )
            if item.sequence <= self._places.get(parcel.origin, 0):
                self._checks.fail(
                    f"{identity} is message {item.sequence} of {parcel.origin}, and comes behind "
                    f"{self._places[parcel.origin]}"
                )
            self._places[parcel.origin] = item.sequence
            source.values += map(int, values)
        self._give(_STREAM)

    def _unpublished(self) -> list[str]:
        """Senders of whose messages some are not at the root yet."""
        return [
            f"message {number} of {sender.name[:-1]} is not at the root"
            for sender in self.senders.values()
            for number in range(1, sender.stored + 1)
            if not self.arrived[f"{sender.name}{number}"]
        ][:1] + [f"{sender.name[:-1]} is not done" for sender in self.senders.values() if sender.rows]


def published_at_sites(seed: int, random: Random) -> Scenario:
    """Senders publish at sites and move, while the way up and the root have troubles of all kinds."""
    kinds = (
        *("kill_service", "kill_service", "replace_service", "pause_service", "cut_service", "lossy_upward"),
        *("move_sender", "move_sender", "move_sender", "fill_outbox", "fill_input", "forget_ids", "replan"),
    )
    actions = []
    for _ in range(random.choice((4, 10, 20))):
        kind, site = random.choice(kinds), random.choice(("s0", "s1", "s2"))
        place = f"upward-{site}" if kind.endswith("_service") else site
        actions.append(Action(random.uniform(0.8, 12.0), kind, place, number=random.uniform(0.3, 4.0)))
    actions.append(
        Action(random.uniform(2.0, 10.0), random.choice(("kill_service", "replace_service")), _ROOT, number=2.0)
    )
    made = small_scenario(
        seed,
        [subscription("u0", "s2"), subscription("u1", "s1")],
        actions,
        delay_s=random.choice((0.02, 0.2)),
        senders=random.choice((1, 3)),
        pace_s=random.choice((0.05, 0.3)),
    )
    streams = {name: replace(each, source=Source("nats")) for name, each in made.first.deployment.streams.items()}
    upload = random.choice((None, 2e4))
    sites = {name: Site(name, upload_bytes_per_s=upload) for name in made.first.deployment.sites}
    deployment = replace(made.first.deployment, streams=streams, sites=sites)
    return replace(made, first=replace(made.first, deployment=deployment))


PUBLISHED_FAMILIES: Final = (published_at_sites,)
PUBLISHED_MUTANTS: Final = (
    Mutant(
        "a root does not know messages by their ids",
        "relay.door",
        "        if not item.identity or (item.identity not in ids and item.identity not in here):\n",
        "        if True:\n",
    ),
    Mutant(
        "a parcel is stored without a fence",
        "relay.door",
        "stored.encode(), expect=known.sequence)",
        "stored.encode())",
    ),
    Mutant(
        "a parcel that comes early is stored",
        "relay.door",
        "                if parcel.after <= place < parcel.upto:\n",
        "                if place < parcel.upto:\n",
    ),
    Mutant(
        "an outbox lets go of more than the root has",
        "relay.outbox",
        "port.logs.outbox_of(self._site, stream), answer.upto + 1)",
        "port.logs.outbox_of(self._site, stream), answer.upto + 3)",
    ),
)
