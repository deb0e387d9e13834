"""The protocol in virtual time: some seeds, the same run twice, and what seeds have found before."""

import json
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from headgate.model import Deployment, Plan, Site, Source, Stream, Subscription, Tree
from headgate.protocol.records import RangeRequest
from headgate.protocol.trace import Trace
from headgate.relay.core import Key
from headgate.wire.block import Block
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.families import (
    first_messages_refused,
    make_scenario,
    named_scenario,
)
from headgate_studies.testing.world.faults import MUTANTS
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.mutants import planted
from headgate_studies.testing.world.scenario import SCHEMA, Action, Scenario
from headgate_studies.testing.world.shrink import kind_of, shrink
from headgate_studies.testing.world.simulation import Simulation

BY_NAME = {each.name: each for each in MUTANTS}
SITES = ("s0", "s1", "s2")


def small(seed: int, subscriptions: dict[str, Subscription], *actions: Action, **changes: object) -> Scenario:
    """One stream from s0 down a chain of three sites, and what happens."""
    deployment = Deployment(
        {"t0": Stream("t0", SCHEMA, Source("generator"), "s0")},
        {name: Site(name) for name in SITES},
        subscriptions=subscriptions,
    )
    plan = Plan({"t0": Tree("t0", "s0", {"s1": "s0", "s2": "s1"})})
    ids = {name: number for number, name in enumerate(subscriptions, 1)}
    settings = {
        "length_s": 20.0, "max_rows": 1000, "inbox_messages": 64, "max_bytes": 1 << 20, "max_block": 1 << 20,
        "heavy_rows": 5000, "delay_s": 0.02,
    } | changes  # fmt: skip
    return Scenario(seed, Snapshot(1, deployment, plan, ids, dict.fromkeys(ids, 5)), actions, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_no_promise_is_broken() -> None:
    """In a process of its own, as sets of names are in another order here; a failure says how to replay it."""
    command = [sys.executable, "-m", "headgate_studies.testing.simulate", "--seeds", "1000:1010", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["seeds"], summary["failures"]) == (10, 0)
    assert summary["events"] > 10_000
    assert len(summary["faults"]) > 10


@pytest.mark.slow
def test_the_same_seed_does_the_same() -> None:
    runs = []
    for _ in range(2):
        trace = Trace()
        runs.append((Simulation(make_scenario(3), trace).run().events, trace.digest))
    assert runs[0] == runs[1]


def test_a_failure_shrinks_to_what_it_takes() -> None:
    commits = [Action(float(second), "commit", "t0", number=20.0) for second in range(1, 9)]
    scenario = small(1, {"u0": Subscription("u0", "t0", "s2")}, *commits)
    with planted(BY_NAME["rows numbered one too low at the root"]):
        violation = Simulation(scenario).run().violation
        assert violation is not None
        left = shrink(scenario, violation)
        found = Simulation(scenario.without(left)).run().violation
    assert len(scenario.actions) - len(left) <= 1
    assert found is not None
    assert kind_of(found) == kind_of(violation)


def test_a_subscription_that_moves_before_its_first_commit_gets_its_past() -> None:
    """Its first inbox was never written to, so the next one has to hold the past."""
    scenarios = [
        small(
            seed,
            {"u0": Subscription("u0", "t0", "s1")},
            Action(2.0, "commit", "t0", number=12.0),
            Action(5.0, "subscribe", "s1"),
            Action(6.0, "move", "s0", "s2"),
        )
        for seed in range(30)
    ]
    with planted(BY_NAME["no past after a move before the first commit"]):
        failed = next(each for each in scenarios if Simulation(each).run().violation is not None)
    assert Simulation(failed).run().violation is None


def test_a_link_whose_receivers_all_have_limits_is_packed_apart() -> None:
    """The limits of receivers were whole numbers then, which cannot be compared with no limit."""
    limited = Subscription("u0", "t0", "s2", policy={"max_rows": 1000})
    commits = [Action(1.0 + each / 50, "commit", "t0", number=50.0) for each in range(20)]
    scenario = small(
        1, {"u0": limited}, *commits, Action(0.5, "fill_site", "s1", number=8.0), max_rows=100, heavy_rows=10
    )
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["limits of a link's receivers as whole numbers"]):
        assert "OverflowError" in str(Simulation(scenario).run().violation)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "family", "seed"),
    [
        ("a split decision is taken for whole", "two_relays", 0),
        ("a recorded decision is taken back behind another relay's message", "two_relays", 67),
    ],
)
def test_a_relay_that_is_overtaken_starts_again_and_repeats_nothing(name: str, family: str, seed: int) -> None:
    """What it was about to declare had been sent by the other relay of its site, in part: it was declared twice."""
    scenarios = [named_scenario(family, each) for each in (seed, *range(200, 240))]
    with planted(BY_NAME[name]):
        failed = next(each for each in scenarios if Simulation(each).run().violation is not None)
    assert Simulation(failed).run().violation is None


@pytest.mark.slow
def test_rows_that_are_gone_at_the_root_and_further_down_are_declared_once() -> None:
    """Messages end inside of commits, so only pieces of a commit are asked for again when its parts are damaged."""
    damage = [
        Action(2.0 + each / 10, kind, place, number=1.0)
        for each in range(12)
        for kind, place in (("flip_part", "t0"), ("flip_inbox", "s2"), ("flip_site", "s1"), ("flip_site", "s2"))
    ]
    commits = [Action(1.0 + each / 5, "commit", "t0", number=60.0) for each in range(12)]
    stall = Action(1.5, "stall_reader", "s2", number=2.5)
    given_up = 0
    for seed in range(6):
        actions = sorted([*commits, *damage, stall], key=lambda each: each.time_s)
        result = Simulation(small(seed, {"u0": Subscription("u0", "t0", "s2")}, *actions, max_block=400)).run()
        assert result.violation is None
        given_up += result.given_up
    assert given_up > 50


def test_a_site_whose_parent_now_is_the_asker_answers_from_the_root() -> None:
    """After a plan was turned round, each of two sites asked the other for what only the root still had."""
    scenario = small(1, {"u0": Subscription("u0", "t0", "s2")}, Action(1.0, "commit", "t0", number=20.0))
    simulation = Simulation(scenario)
    simulation.begin()
    simulation.until(5.0)
    turned = Plan({"t0": Tree("t0", "s0", {"s2": "s0", "s1": "s2"})})
    simulation.publish(replace(simulation.snapshot, revision=2, plan=turned))
    server, logs = simulation.fabric.server, simulation.logs
    server.purge(logs.site("s1"), logs.link("s0", "s1", "t0"), 1 << 62)
    request = RangeRequest(stream="t0", after=0, upto=20, child="s2")
    answers: list[list[Block]] = []
    simulation.relays["s1"].ask(logs.repair("s1"), request.encode(), answers.append)
    simulation.until(10.0)
    assert [(block.after, block.upto, len(block.seqs)) for block in answers[0]] == [(0, 20, 20)]


def test_a_driver_that_wakes_up_late_commits_nothing_twice() -> None:
    """It had staged a batch when it was stopped, and another driver has committed that batch meanwhile."""
    commits = [Action(0.3 * each, "commit", "t0", number=5.0) for each in range(1, 60)]
    scenarios = [
        small(
            seed,
            {"u0": Subscription("u0", "t0", "s2")},
            *commits,
            Action(5.0 + seed / 200, "pause_service", "driver-t0", number=6.0),
            Action(6.0, "replace_service", "driver-t0", number=9.0),
            delay_s=0.3,
        )
        for seed in range(60)
    ]
    with planted(BY_NAME["a batch that was committed is committed again"]):
        found = next((each for each in scenarios if Simulation(each).run().violation is not None), None)
    assert found is not None
    assert Simulation(found).run().violation is None


def test_versions_go_that_nobody_names_and_no_others() -> None:
    changes = [Action(2.0 + each, "change", "s0") for each in range(10)]
    commits = [Action(0.5 * each, "commit", "t0", number=5.0) for each in range(1, 40)]
    scenario = small(1, {"u0": Subscription("u0", "t0", "s2")}, *commits, *changes, squeeze=True)
    result = Simulation(scenario).run()
    assert result.violation is None
    assert result.versions_deleted > 5
    stalled = replace(scenario, actions=(*scenario.actions, Action(1.2, "stall_reader", "s0", number=15.0)))
    assert Simulation(stalled).run().violation is None
    with planted(BY_NAME["versions that root logs name are deleted"]):
        assert "of t0 names it" in str(Simulation(replace(scenario, squeeze=False)).run().violation)


def test_a_relay_whose_newest_version_is_deleted_before_it_has_it_takes_the_next() -> None:
    """It was cut off between two questions: which version is the newest, and what it says."""
    assert Simulation(named_scenario("old_versions", 61)).run().violation is None


def test_history_is_gone_on_with_after_a_restart() -> None:
    """A relay that stopped while it passed on the past of a new subscription left out the rest of it."""
    scenarios = [first_messages_refused(seed, Random(seed)) for seed in (35, *range(60))]
    with planted(BY_NAME["history is not gone on with after a restart"]):
        failed = next(each for each in scenarios if Simulation(each).run().violation is not None)
    assert Simulation(failed).run().violation is None


def test_the_last_message_of_a_link_is_damaged_and_then_the_plan_changes() -> None:
    """Nothing that the old parent gets later shows that it misses something: the site below it has to ask."""

    def reached() -> int | None:
        simulation = Simulation(small(1, {"u0": Subscription("u0", "t0", "s2")}))
        simulation.begin()
        simulation._commit(Action(0.0, "commit", "t0", number=20.0))
        simulation.until(3.0)
        simulation.relays["s1"].kill()
        simulation._commit(Action(0.0, "commit", "t0", number=20.0))
        simulation.until(3.8)  # so soon nobody is taken for dead
        simulation._flip_last(Action(0.0, "flip_last", "s1"))
        without = Plan({"t0": Tree("t0", "s0", {"s2": "s0"})})
        simulation.publish(replace(simulation.snapshot, revision=2, plan=without))
        simulation._revive("s1")
        simulation._commit(Action(0.0, "commit", "t0", number=20.0))
        simulation.until(60.0)
        return simulation.subscribers["u0"].mark

    assert reached() == 60
    for name in ("the parent of an earlier plan is not asked", "a parent does not look for what its child is owed"):
        with planted(BY_NAME[name]):
            assert reached() == 20


def test_an_inbox_full_of_damaged_messages_takes_others_again() -> None:
    """Its reader acknowledges their places, so that there is room for the one that shows what is missing."""
    commits = [Action(1.0 + each / 5, "commit", "t0", number=5.0) for each in range(20)]
    damage = [Action(6.0 + each / 50, "flip_inbox", "s2", number=1.0) for each in range(80)]
    away = Action(1.1, "kill_reader", "s2", number=8.0)
    scenario = small(1, {"u0": Subscription("u0", "t0", "s2")}, away, *commits, *damage, inbox_messages=4)
    assert Simulation(scenario).run().violation is None
    with planted(Mutant("as before", "client.reader", "                self._pass(stored.sequence)\n", "")):
        assert "after the last fault u0 has" in str(Simulation(scenario).run().violation)


def test_a_damaged_message_that_was_counted_is_not_declared_again() -> None:
    """The relay forgets what it had sent: its site log is an old copy, and its last message cannot be read any more."""
    scenarios = [named_scenario("old_copies", seed) for seed in (8, *range(10))]
    with planted(BY_NAME["a damaged message that was counted is sent again"]):
        failed = next(each for each in scenarios if Simulation(each).run().violation is not None)
    assert Simulation(failed).run().violation is None


def test_rows_that_come_while_an_inbox_expires_are_sent() -> None:
    """The sending slept while the expiry was on its way, and nothing woke it after that."""
    scenario = named_scenario("expiring_after_a_move", 4)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["nothing wakes the sending after an expiry"]):
        assert "after the last fault u0 has" in str(Simulation(scenario).run().violation)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("a block that the loop was not handed is acknowledged", 2),
        ("a loop goes on behind a block that the one before it was not handed", 0),
    ],
)
def test_a_consumer_that_leaves_its_loop_at_any_time_misses_nothing(name: str, seed: int) -> None:
    """A block was counted, and lay ready for a loop that ended before it took it."""
    scenarios = [named_scenario("loops", each) for each in (seed, *range(10))]
    with planted(BY_NAME[name]):
        failed = next(each for each in scenarios if Simulation(each).run().violation is not None)
    assert Simulation(failed).run().violation is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["restore_site", "old_ack", "flip_ack", "oversize", "lock_catalog", "flip_rows"])
def test_state_that_moves_backwards_or_is_damaged_is_never_silent(kind: str) -> None:
    """Readers get what they are owed, or are told: by a declaration, or by what they acknowledge from then on."""
    mine = {"u0": Subscription("u0", "t0", "s1"), "u1": Subscription("u1", "t0", "s2")}
    told = 0
    for seed in range(3):
        commits = [Action(0.5 + each / 4, "commit", "t0", number=12.0) for each in range(40)]
        place = "t0" if kind == "flip_rows" else "s1"
        faults = [Action(2.0 + 2.5 * each, kind, place, number=3.0) for each in range(3)]
        stalls = [Action(1.9 + 2.5 * each, "stall_reader", "s1", number=1.0) for each in range(3)]
        actions = sorted([*commits, *faults, *stalls], key=lambda each: each.time_s)
        simulation = Simulation(small(seed, mine, *actions, max_block=400))
        result = simulation.run()
        assert result.violation is None
        told += result.given_up + sum(each.told for each in simulation.subscribers.values())
    assert bool(told) == (kind in ("flip_ack", "oversize", "flip_rows"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_planted_faults_can_be_planted(mutant: object) -> None:
    """The text of each is where it says, so that the table does not go stale."""
    with planted(mutant):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("seed", [0, 21, 29])
def test_who_is_below_a_dead_parent_gets_everything_without_another_plan(seed: int) -> None:
    """29: it is served by the standby, not served for a while, and served again."""
    result = Simulation(named_scenario("dead_parent", seed)).run()
    assert result.violation is None
    assert result.delivered > 100


def _into_a_small_root_log(**changes: object) -> Scenario:
    """Twenty commits, of which ten fill the root log; one subscriber stops reading after a second."""
    readers = {"u0": Subscription("u0", "t0", "s1"), "u1": Subscription("u1", "t0", "s2")}
    loads = [Action(0.5 + each / 2, "commit", "t0", number=60.0) for each in range(20)]
    return small(3, readers, *loads, Action(1.0, "stall_reader", "s2", number=12.0), root_bytes=16_000, **changes)


def test_a_root_log_that_a_few_commits_fill_takes_more_of_them() -> None:
    """Settled commits were kept for sites that may ask for them, by their number: few large ones filled the log."""
    assert Simulation(_into_a_small_root_log()).run().violation is None
    with planted(BY_NAME["the last commits stay in a root log that they fill"]):
        found = Simulation(_into_a_small_root_log()).run().violation
    assert found is not None
    assert "of 1203 rows" in found


def test_manifests_of_rows_that_are_under_way_stay_in_a_full_root_log() -> None:
    """Without them nobody knew that rows were owed: a site that had to ask for them passed over them."""
    scenario = named_scenario("small_logs_everywhere", 899)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["manifests go as soon as the ledger has them"]):
        found = Simulation(scenario).run().violation
    assert found is not None


def test_a_site_asks_nobody_for_what_its_own_log_holds() -> None:
    """Whom it asks may not have it any more."""
    scenario = named_scenario("small_logs_everywhere", 8)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["messages that are still in the log are forgotten with those that are purged"]):
        found = Simulation(scenario).run().violation
    assert found is not None
    assert "which lies in its own log" in found


def test_a_dead_parent_that_is_not_noticed_is_shown() -> None:
    """The check of the scenario can fail."""
    with planted(BY_NAME["a dead parent is not noticed"]):
        result = Simulation(named_scenario("dead_parent", 0)).run()
    assert "while a parent is dead" in str(result.violation)


@pytest.mark.parametrize("seed", range(6))
def test_rows_with_two_paths_come_once_and_without_waiting_for_the_one_that_is_cut(seed: int) -> None:
    result = Simulation(named_scenario("two_paths", seed)).run()
    assert result.violation is None
    assert result.delivered > 50


def test_a_second_path_that_is_not_asked_for_is_shown() -> None:
    """The check of the scenario can fail."""
    with planted(BY_NAME["a second path is not asked for"]):
        found = [str(Simulation(named_scenario("two_paths", seed)).run().violation) for seed in range(6)]
    assert any("while a parent is dead" in each for each in found)


def test_a_version_that_takes_over_contexts_while_a_batch_is_pinned_is_pinned_with_them() -> None:
    """The pin named the version, and a place before the contexts that it holds: no worker could be there, for ever."""
    scenario = named_scenario("changing_contexts", 7)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["contexts are read before the version that has taken them over"]):
        assert "is gone, the oldest is" in str(Simulation(scenario).run().violation)


def test_a_batch_that_is_replayed_is_matched_with_the_contexts_that_it_was_pinned_with() -> None:
    """Its driver died between pinning and committing, and the contexts had changed when the next one began."""
    scenario = named_scenario("changing_contexts", 3)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["a batch that is replayed is pinned anew"]):
        assert "is pinned again as" in str(Simulation(scenario).run().violation)


@pytest.mark.parametrize(
    "name", ["nobody tells a sender what its link delivers", "what was measured of a link is no limit"]
)
def test_a_link_that_becomes_narrow_is_sent_no_more_than_it_carries(name: str) -> None:
    scenario = named_scenario("changing_bandwidth", 0)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME[name]):
        assert "its sender does not mind" in str(Simulation(scenario).run().violation)


def test_blocks_without_rows_are_no_trouble_for_who_is_thinned_by_key() -> None:
    scenario = named_scenario("thinned_always", 7)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["blocks without rows are thinned by key"]):
        assert "failed at" in str(Simulation(scenario).run().violation)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("a root does not know messages by their ids", 0), ("an outbox lets go of more than the root has", 0)],
)
def test_what_is_published_at_sites_reaches_the_root_once(name: str, seed: int) -> None:
    scenario = named_scenario("published_at_sites", seed)
    result = Simulation(scenario).run()
    assert result.violation is None
    assert result.delivered > 50
    with planted(BY_NAME[name]):
        assert "the root" in str(Simulation(scenario).run().violation)


def test_a_relay_forgets_who_read_shared_inboxes_that_are_gone() -> None:
    """It remembered their readers for ever: every regrouping left some behind."""
    simulation = Simulation(named_scenario("shared_inbox", 2))
    simulation.begin()
    simulation.until(14.0)
    for _ in range(12):
        for change in (simulation._regroup, simulation._rejoin, simulation._share):
            change(Action(0.0, "change", "s1"))
        simulation.until(simulation.fabric.queue.now + 2.0)
        simulation._commit(Action(0.0, "commit", "t0", number=5.0))
    there = {
        Key("t0", subscription=owner, stay=number)
        for name, each in simulation.snapshot.deployment.subscriptions.items()
        for stay in each.stays
        for owner, number in (stay.inbox_of(simulation.snapshot.subscription_ids[name]),)
    }
    states = [relay.machine.state for relay in simulation.relays.values()]
    assert [each.members.keys() - there - each.core.outputs.keys() for each in states] == [set()] * 3
    assert any(each.members for each in states)


def test_who_joins_a_shared_inbox_again_keeps_what_was_sent_to_it_before_a_restart() -> None:
    """The relay meets the version with which it joined for the second time, when the rows are in the inbox already."""
    scenario = make_scenario(598)
    kept = {166, 173, 174, 177, 179, 181}
    scenario = scenario.without(frozenset(range(len(scenario.actions))) - kept)
    assert Simulation(scenario).run().violation is None
    name = "who joins a shared inbox is taken to come after all that it holds, also after a restart"
    with planted(BY_NAME[name]):
        found = Simulation(scenario).run().violation
    assert "which u3 has not read" in str(found)


def test_the_newest_subscription_of_a_shared_inbox_holds_nobody_up_when_it_has_ended() -> None:
    """Its relay was replaced meanwhile, so its number was higher than all that the new one knew."""
    scenario = make_scenario(2046)
    kept = {22, 26, 54, 87, 93, 96, 99, 102, 103, 107}
    scenario = scenario.without(frozenset(range(len(scenario.actions))) - kept)
    assert Simulation(scenario).run().violation is None
    with planted(BY_NAME["who has ended goes on to hold a shared inbox"]):
        found = Simulation(scenario).run().violation
    assert "u2 has 18 of 21" in str(found)
