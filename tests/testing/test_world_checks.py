"""The checks of the simulated world can fail: what is counted, and what is looked at, is what really lies there."""

from dataclasses import replace

import numpy as np
import pytest

from headgate.model import Subscription
from headgate.wire.block import Block
from headgate_studies.testing.world.families import named_scenario
from headgate_studies.testing.world.faults import MUTANTS
from headgate_studies.testing.world.mutants import planted
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.simulation import Simulation
from headgate_studies.testing.world.small import small_scenario

BY_NAME = {each.name: each for each in MUTANTS}
READERS = (Subscription("u0", "t0", "s1"), Subscription("u1", "t0", "s2"))


def loaded(*actions: Action, **limits: int) -> Scenario:
    """Twenty commits of twelve rows, and what happens."""
    commits = [Action(0.5 + each / 4, "commit", "t0", number=12.0) for each in range(20)]
    return small_scenario(1, READERS, [*commits, *actions], **limits)


def without_rows(block: Block) -> Block:
    assert len(block.seqs)
    return block.take(np.zeros(0, dtype=np.int64))


def test_rows_in_flight_are_counted_where_they_lie() -> None:
    """In an inbox that is not read, in a queue before a log that is full, in the logs of a site that stands still."""
    stalls = (
        Action(1.0, "stall_reader", "s1", number=3.0),
        Action(1.5, "fill_site", "s2", number=4.0),
        Action(2.0, "pause", "s1", number=1.5),
    )
    result = Simulation(loaded(*stalls)).run()
    assert result.violation is None
    assert result.in_flight_checks > 20


@pytest.mark.parametrize("place", ["inbox", "queue", "site log"])
def test_rows_that_are_taken_out_are_missed(place: str) -> None:
    simulation = Simulation(loaded(Action(1.0, "fill_inbox", "s2", number=9.0), max_block=400))
    simulation.begin()
    for name in ("u0", "u1"):
        simulation._stalled[name] = 30.0
    simulation.until(2.0)
    server, logs = simulation.fabric.server, simulation.logs
    if place == "queue":
        (output,) = (each for key, each in simulation.relays["s2"].machine.state.core.outputs.items() if not key.child)
        output.queue[-1] = replace(output.queue[-1], block=without_rows(output.queue[-1].block))
    else:
        simulation.relays["s2"].kill()
        log = server.log(logs.inbox("s1") if place == "inbox" else logs.site("s2"))
        stored = log.read(logs.delivery("s1", 1) if place == "inbox" else logs.link("s1", "s2", "t0"), 0)[-1]
        log._messages[stored.sequence] = stored._replace(data=without_rows(stored.data))
    with pytest.raises(AssertionError, match="lie in inboxes, queues and logs"):
        simulation.until(6.0)


@pytest.mark.parametrize(
    ("name", "family", "seed"), [("the ledger has the last commit alone in flight", "full_site", 2)]
)
def test_what_no_other_check_sees(name: str, family: str, seed: int) -> None:
    scenario = named_scenario(family, seed)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME[name]):
        assert "rows in flight to" in str(Simulation(scenario).run().violation)


def test_sums_and_pins_that_cannot_be_read_are_made_again() -> None:
    """Sums of which the manifests are gone too say from where on they count."""
    lost = 0
    for seed in range(8):
        result = Simulation(named_scenario("damaged_values", seed)).run()
        assert result.violation is None
        lost += result.sums_lost
    assert lost > 0


def test_old_copies_and_exchanged_logs_are_refused_or_do_no_harm() -> None:
    results = [Simulation(named_scenario("put_back", seed)).run() for seed in range(6)]
    assert [each.violation for each in results] == [None] * 6
    told = sum(each.told for each in results)
    faults = ("old_inbox", "old_root", "old_state", "old_server", "exchange_logs")
    assert 0 < told <= sum(each.faults[kind] for each in results for kind in faults)
    with planted(BY_NAME["a log that ends before it was seen is started on"]):
        found = [str(Simulation(named_scenario("put_back", seed)).run().violation) for seed in range(3)]
    assert any("a start goes on with logs that end" in each for each in found)
