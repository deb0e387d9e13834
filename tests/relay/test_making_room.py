"""A site log that fills up behind a gap: what waits there is purged, asked for again, and nothing is lost."""

import pytest

from headgate.model import Deployment, Plan, Site, Source, Stream, Subscription, Tree
from headgate.relay.machine import RelayMachine
from headgate.virtual.logs import VirtualLogInfo
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.scenario import SCHEMA, Action, Scenario
from headgate_studies.testing.world.simulation import Simulation

COMMITS = 10


def behind_a_gap(max_bytes: int) -> Simulation:
    """Site s1 has ten messages of its parent in its log, of which the second cannot be read, and nobody to ask."""
    deployment = Deployment(
        {"t0": Stream("t0", SCHEMA, Source("generator"), "s0")},
        {"s0": Site("s0"), "s1": Site("s1")},
        subscriptions={"u0": Subscription("u0", "t0", "s1")},
    )
    first = Snapshot(1, deployment, Plan({"t0": Tree("t0", "s0", {"s1": "s0"})}), {"u0": 1}, {"u0": 5})
    commits = tuple(Action(1.0 + each, "commit", "t0", number=20.0) for each in range(COMMITS))
    limits = {"max_rows": 1000, "inbox_messages": 64, "max_bytes": max_bytes, "max_block": 1 << 20}
    simulation = Simulation(Scenario(1, first, commits, 20.0, **limits, heavy_rows=5000, delay_s=0.01))
    simulation.begin()
    simulation.until(0.8)
    simulation.relays["s1"].pause()
    simulation.until(12.0)
    server, logs = simulation.fabric.server, simulation.logs
    server.flip(logs.site("s1"), 2)  # the first one is on its way to the relay
    simulation.relays["s0"].pause()
    simulation.relays["s1"].resume()
    simulation.until(12.5)
    return simulation


def site_log(simulation: Simulation) -> VirtualLogInfo:
    found = simulation.fabric.server.info(simulation.logs.site("s1"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bytes_waiting() -> int:
    found = site_log(behind_a_gap(1 << 20))
    assert found.messages == COMMITS
    return found.bytes


@pytest.mark.parametrize(("more", "purged"), [(-2, True), (0, True), (1, True), (2, False)])
def test_room_is_made_from_half_full_on(bytes_waiting: int, more: int, purged: bool) -> None:
    """The last message of a parent stays: it shows up to where the parent has sent."""
    simulation = behind_a_gap(2 * bytes_waiting + more)
    simulation.until(15.0)
    found = site_log(simulation)
    assert (found.messages < COMMITS, found.bytes < bytes_waiting, found.last) == (purged, purged, COMMITS)


def test_what_was_purged_is_asked_for_again(bytes_waiting: int) -> None:
    simulation = behind_a_gap(2 * bytes_waiting)
    simulation.until(15.0)
    machine = simulation.relays["s1"].machine
    assert isinstance(machine, RelayMachine)
    assert machine.state.core.gap("t0") is not None
    assert simulation.subscribers["u0"].mark == 20
    simulation.relays["s0"].resume()
    simulation.until(60.0)
    assert machine.state.core.gap("t0") is None
    reader = simulation.subscribers["u0"]
    assert (reader.mark, reader.delivered, reader.given_up) == (20 * COMMITS, 20 * COMMITS, {})
