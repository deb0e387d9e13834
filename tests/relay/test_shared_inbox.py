"""Subscriptions that share an inbox: stored once, read in full by each, purged by the slowest, parted in time."""

from dataclasses import replace

from headgate.relay.machine import RelayMachine
from headgate_studies.testing.world.families import named_scenario
from headgate_studies.testing.world.scenario import Action
from headgate_studies.testing.world.simulation import Simulation
from headgate_studies.testing.world.small import small_scenario, subscription

MEMBERS = 20


def begin(inbox_messages: int = 64) -> Simulation:
    """Twenty subscriptions at one site that want the same, in the inbox of the first."""
    first, *others = [subscription(f"u{number}", "s1") for number in range(MEMBERS)]
    mine = [first, *(replace(each, shared=(1, 0)) for each in others)]
    actions = [Action(1.0 + each / 2, "commit", "t0", number=20.0) for each in range(20)]
    simulation = Simulation(small_scenario(1, mine, actions, inbox_messages=inbox_messages))
    simulation.begin()
    return simulation


def machine(simulation: Simulation) -> RelayMachine:
    found = simulation.relays["s1"].machine
    assert isinstance(found, RelayMachine)
    return found


def test_rows_are_stored_once_and_everybody_gets_them() -> None:
    simulation = begin()
    simulation.until(14.0)
    assert {(each.mark, each.delivered) for each in simulation.subscribers.values()} == {(400, 400)}
    found = simulation.fabric.server.info(simulation.logs.inbox("s1"))
    assert found is not None
    assert found.last <= 25  # messages, which were a twentieth of what an inbox for each would have taken
    assert found.messages == 1
    assert len(machine(simulation).state.core.outputs) == 1


def test_what_one_has_not_read_stays_and_the_others_are_said_to_be_ahead() -> None:
    simulation = begin(inbox_messages=16)
    simulation.until(2.0)
    simulation.readers["u7"].kill()
    read = simulation.subscribers["u7"].done
    simulation.until(8.0)
    oldest = simulation.fabric.server.read(simulation.logs.inbox("s1"), simulation.logs.delivery("s1", 1), 0, limit=2)
    assert oldest[1].data.after <= read
    (ahead,) = machine(simulation)._upkeep._inboxes.ahead.values()
    assert sorted(ahead) == [number for number in range(1, MEMBERS + 1) if number != 8]


def test_a_scenario_of_each_family_keeps_its_promises() -> None:
    for family in ("shared_inbox", "shared_and_full"):
        assert Simulation(named_scenario(family, 4)).run().violation is None
