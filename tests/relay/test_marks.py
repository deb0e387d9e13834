"""The last messages of inboxes: once they are read they give way to small marks where the log of inboxes fills up."""

from headgate_studies.testing.world.scenario import Action
from headgate_studies.testing.world.simulation import Simulation
from headgate_studies.testing.world.small import small_scenario, subscription

READERS = 40


def run(max_bytes: int, until_s: float) -> Simulation:
    """Forty readers get one large commit each, and then nothing."""
    mine = [subscription(f"u{number}", "s1") for number in range(READERS)]
    actions = [Action(1.0, "commit", "t0", number=80.0)]
    simulation = Simulation(small_scenario(1, mine, actions, max_bytes=max_bytes))
    simulation.begin()
    simulation.until(until_s)
    assert {each.mark for each in simulation.subscribers.values()} == {80}
    return simulation


def bytes_of(simulation: Simulation) -> int:
    found = simulation.fabric.server.info(simulation.logs.inbox("s1"))
    assert found is not None
    assert found.messages == READERS
    return found.bytes


def test_messages_that_were_read_take_little_room_once_the_log_fills_up() -> None:
    roomy = bytes_of(run(1 << 20, 6.0))
    tight = run(2 * roomy, 6.0)
    assert bytes_of(tight) < roomy / 3
    tight.relays["s1"].kill()
    tight._revive("s1")
    tight._commit(Action(0.0, "commit", "t0", number=3.0))
    tight.until(20.0)
    assert {each.mark for each in tight.subscribers.values()} == {83}
    assert {each.delivered for each in tight.subscribers.values()} == {83}
