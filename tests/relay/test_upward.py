"""What is published at sites reaches the root once, whatever happens on the way, and senders move between sites."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from headgate.model import Column, Deployment, Links, Plan, Schema, Site, Source, Stream, Tree
from headgate.protocol.port import FabricError
from headgate.protocol.reports import OutboxReport, UpwardReport
from headgate.relay.budget import Budgets
from headgate.relay.seen_ids import SeenIds
from headgate.relay.upward import UpwardMachine
from headgate.relay.way_up import rate_up, steps_up, way_up
from headgate.virtual.fabric import SERVER, SimulatedFabric
from headgate.virtual.process import Instance
from headgate.virtual.server import SimulatedServer
from headgate.wire.frame import WireError
from headgate.wire.logs import Logs
from headgate.wire.parcel import LARGE, ROWS, Parcel, ParcelItem, SiteIntake
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot

LOGS = Logs()
S = "readings"
STREAM = Stream(S, Schema((Column("n", "bigint"),)), Source("nats"), "root")
TREES = ({"mid": "root", "side": "root", "leaf": "mid"}, {"mid": "root", "side": "root", "leaf": "side"})
SITES = ("root", "mid", "side", "leaf", "far")


def snapshot(revision: int, upload: float | None = None) -> Snapshot:
    """Two plans in turn; `far` is in neither tree."""
    sites = {name: Site(name, upload_bytes_per_s=upload) for name in SITES}
    tree = Tree(S, "root", TREES[revision % 2])
    return Snapshot(revision, Deployment({S: STREAM}, sites, links=Links()), Plan({S: tree}))


class World:
    """Sites on one server in virtual time; what came through the door is in `arrived`."""

    def __init__(self, seed: int, upload: float | None = None) -> None:
        self.random = Random(seed)
        self.fabric = SimulatedFabric(
            SimulatedServer(), LOGS, self.random, lambda data: len(data) if isinstance(data, bytes) else 64
        )
        self.upload = upload
        self.budgets = Budgets(snapshot(1, upload).deployment)
        self.arrived: list[tuple[str, ParcelItem]] = []
        self.failures: list[Exception] = []
        self.fabric.appended = self._appended
        self.fabric.failed = lambda _, error: self.failures.append(error)
        server = self.fabric.server
        for log in (LOGS.state, LOGS.tables, LOGS.input(S), *map(LOGS.outbox, SITES)):
            server.ensure(log)
        self.revision = 0
        self.plan()
        self.running: dict[str, Instance] = {}
        for site in SITES:
            self.start(site)

    def plan(self) -> None:
        """Announce the other plan."""
        self.revision += 1
        self.fabric.publish(LOGS.table(self.revision), snapshot(self.revision, self.upload))
        self.fabric.publish(LOGS.head, write_number(self.revision))

    def start(self, site: str) -> Instance:
        machine = UpwardMachine(site, LOGS, budgets=lambda: self.budgets)
        self.running[site] = instance = Instance(self.fabric, site, 1, machine, None)
        self.fabric.serve(machine.service, instance)
        instance.feed(None)
        return instance

    def run(self, seconds: float) -> None:
        self.fabric.queue.run(self.fabric.queue.now + seconds)

    def _appended(self, subject: str, data: Any, sequence: int) -> None:
        if subject == LOGS.carried(S):
            parcel = Parcel.decode(data)
            self.arrived += [(parcel.origin, item) for item in parcel.items]

    def publish(self, site: str, data: bytes, identity: str | None = None) -> None:
        now = self.fabric.wall_s + self.fabric.queue.now
        subject = LOGS.published_at(site, S)
        self.fabric.server.publish(subject, data, size=len(data), message_id=identity, now=now)

    def taken(self) -> dict[str, SiteIntake]:
        last = self.fabric.server.last(LOGS.input(S), LOGS.carried(S))
        return {} if last is None else dict(Parcel.decode(last.data).taken)

    def waiting(self) -> int:
        return sum(sum(self.fabric.server.subjects(LOGS.outbox(site), ">").values()) for site in SITES)


class RoamingSender:
    """Sends one message at a time under its id, until it hears that it is stored; it may be at another site by then."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.number, self.stored, self.site = world, name, 1, [], "leaf"

    def step(self) -> None:
        random = self.world.random
        if random.random() < 0.3:
            self.site = random.choice(SITES)
        identity = f"{self.name}-{self.number}"
        self.world.publish(self.site, identity.encode(), identity)
        if random.random() < 0.7:  # else it is stored, but the sender has not heard of it
            self.stored.append(identity)
            self.number += 1


def reported(world: World, site: str) -> OutboxReport:
    return UpwardReport.decode(world.fabric.server.last(LOGS.state, LOGS.stats("upward", site)).data).outbox[S]


def disturb(world: World) -> None:
    """Something that happens to processes, links, the server or the plan."""
    random, fabric = world.random, world.fabric
    site = random.choice(SITES)
    match random.randrange(9):
        case 0:
            world.running[site].kill()
            world.start(site)
        case 1:
            fabric.network.partition({site}, {SERVER}, cut=True)
        case 2:
            fabric.network.heal()
        case 3:
            for link in fabric.network.between(site, SERVER):
                link.loss = 0.3
        case 4:
            world.plan()
        case 5:  # the old process goes on beside the new one
            world.start("root")
        case 6:
            fabric.server.fill(LOGS.input(S), random.random() < 0.5)
        case 7:  # ids are forgotten: by the server, and by time
            fabric.server.restart()
            fabric.queue.skip(3 * 3600.0)
        case 8:  # the job has read everything, and keeps the last parcel
            last = fabric.server.last(LOGS.input(S), LOGS.carried(S))
            if last is not None:
                fabric.server.purge(LOGS.input(S), LOGS.carried(S), last.sequence)


@pytest.mark.parametrize("seed", range(6))
def test_every_message_comes_once_and_in_the_order_of_its_site(seed: int) -> None:
    world = World(seed)
    senders = [RoamingSender(world, f"sender{number}") for number in range(3)]
    plain: Counter[bytes] = Counter()
    for step in range(60):
        for sender in senders:
            sender.step()
        data, site = f"plain {step}".encode(), world.random.choice(SITES)
        world.publish(site, data)
        plain[data] += 1
        disturb(world)
        world.run(world.random.random() * 4.0)
    world.fabric.network.heal()
    world.fabric.server.fill(LOGS.input(S), filled=False)
    world.run(1500.0)

    assert not world.failures
    assert world.waiting() == 0
    came = Counter(item.identity for _, item in world.arrived if item.identity)
    sent = {f"{each.name}-{number}" for each in senders for number in range(1, each.number)}
    doubtful = {f"{each.name}-{each.number}" for each in senders}
    assert sent <= came.keys() <= sent | doubtful
    assert set(came.values()) == {1}
    assert Counter(item.data for _, item in world.arrived if not item.identity) == plain
    for site in SITES:
        places = [item.sequence for origin, item in world.arrived if origin == site]
        assert places == sorted(set(places))
    repeated = sum(each.repeated for each in world.taken().values())
    assert sum(each.messages for each in world.taken().values()) == len(world.arrived) + repeated
    if seed == 0:
        assert repeated > 0


def test_what_waits_is_counted_once_and_a_site_that_is_away_keeps_it() -> None:
    world = World(1)
    world.plan()  # `leaf` is below `mid` now
    world.publish("leaf", b"w", "a-0")
    world.run(5.0)
    world.fabric.network.partition({"mid"}, {SERVER})
    for number in range(5):
        world.publish("leaf", b"x", f"a-{number}")
    world.run(30.0)
    report = reported(world, "leaf")
    assert (report.waiting, report.published, world.taken()["leaf"].messages) == (4, 5, 1)
    assert "hg.up.mid does not answer" in report.problem
    assert report.oldest_ms
    world.plan()  # by `side` from now on
    world.run(60.0)
    report = reported(world, "leaf")
    assert (report.waiting, report.published, report.problem) == (0, 5, "")
    assert world.taken()["leaf"].messages == 5


def test_no_more_goes_up_than_the_link_carries() -> None:
    world = World(2, upload=50_000.0)
    for number in range(40):
        world.publish("far", Random(number).randbytes(10_000))
    world.run(1.0)
    begun_s = world.fabric.queue.now
    while world.waiting():
        world.run(0.25)
        assert world.fabric.queue.now < 60.0
    assert 6.0 < world.fabric.queue.now - begun_s + 1.0 < 16.0  # 400 kB at 50 kB/s


def test_a_full_outbox_refuses_and_a_message_that_fits_no_parcel_is_named() -> None:
    world = World(3)
    world.fabric.network.partition({"leaf"}, {SERVER})
    world.fabric.server.fill(LOGS.outbox("leaf"))
    with pytest.raises(FabricError):
        world.publish("leaf", b"x")
    world.publish("side", bytes(8 << 20))
    world.run(30.0)
    assert [(origin, item.kind, item.data) for origin, item in world.arrived] == [("side", LARGE, b"8388608")]


def test_the_way_up_is_the_tree_and_without_one_the_fewest_sites_that_can_be_dialled() -> None:
    first = snapshot(2)
    assert way_up(first, "leaf", S) == ("leaf", "mid", "root")
    assert way_up(first, "far", S) == ("far", "root")
    assert way_up(first, "nowhere", S) == way_up(first, "leaf", "nothing") == ()
    assert steps_up(first) == {"mid": {"root"}, "side": {"root"}, "leaf": {"mid"}, "far": {"root"}}
    pairs = {
        frozenset(pair): None for pair in (("far", "side"), ("far", "hidden"), ("hidden", "root"), ("side", "root"))
    }
    sites = {**first.deployment.sites, "hidden": Site("hidden", nats="private")}
    listed = Deployment({S: STREAM}, sites, links=Links(pairs=pairs, only_listed=True))  # type: ignore[arg-type]
    assert way_up(Snapshot(1, listed), "far", S) == ("far", "side", "root")
    assert rate_up(snapshot(1, 1000.0).deployment, ("leaf", "mid")) == 1000.0


def test_a_parcel_is_read_as_it_was_written() -> None:
    items = [ParcelItem(7, ROWS, "a-1", b"x" * 1000), ParcelItem(9, "unsent", "", b"y")]
    parcel = Parcel(S, "leaf", 3, 9, items, {"leaf": SiteIntake(9, 2, 0)})
    assert Parcel.decode(parcel.encode()) == parcel
    for garbage in (b"", b"garbage", parcel.encode()[:-1]):
        with pytest.raises(WireError):
            Parcel.decode(garbage)


def test_ids_are_remembered_by_their_beginnings_and_the_oldest_go() -> None:
    ids = SeenIds(slots=2, stems=2)
    assert ids.add(["a-1", "a-3", "b"]) == [0]
    assert ids.add(["c-1"]) == [1]
    assert "a-1" in ids
    assert "a-2" not in ids
    assert "b" in ids
    assert ids.add(["a-2"]) == [1]  # it moves to the newest record
    assert ids.record(1) == {"nc-": [(1, 1)], "na-": [(1, 3)]}
    assert ids.add(["d-1"]) == [2]
    assert "b" not in ids
    assert "a-3" in ids
