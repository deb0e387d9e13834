"""The simulated world: what damage does to logs, and links, clocks and events in virtual time."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest

from headgate.fabric import FabricError, LogFullError, NoLogError
from headgate.virtual.logs import VirtualLogInfo
from headgate.virtual.messages import Unreadable
from headgate.virtual.network import EventQueue, SimulatedClock, SimulatedLink, SimulatedNetwork
from headgate.virtual.server import SimulatedServer
from headgate.wire.logs import Log

A = Log("A", ("a.>",), 1 << 20)
B = Log("B", ("b.>",), 1 << 20, max_per_subject=1, latest_only=True)


def server(*, sync_always: bool = True) -> SimulatedServer:
    made = SimulatedServer(sync_always=sync_always)
    made.ensure(A)
    made.ensure(B)
    return made


def put(to: SimulatedServer, *subjects: str) -> None:
    for subject in subjects:
        to.publish(subject, subject, size=10)


def held(by: SimulatedServer, log: Log) -> list[int]:
    return [message.sequence for message in by.read(log, ">", 0)]


def test_data_is_any_object_and_is_not_copied() -> None:
    world, data = server(), object()
    world.publish("a.x", data, size=1000, now=3.5)
    found = world.last(A, "a.x")
    assert found is not None
    assert found.data is data
    assert found.time_s == 3.5
    assert world.info(A) == VirtualLogInfo(1, 1000 + 3 + 30, 1, 1)


def test_what_is_synced_survives_a_power_failure() -> None:
    world = server()
    put(world, "a.x", "b.x", "b.x")
    assert world.power_failure(Random(1)) == {"A": 0, "B": 0}
    assert (held(world, A), held(world, B)) == ([1], [2])


def test_a_power_failure_loses_a_tail_of_what_was_not_synced() -> None:
    kept = set()
    for seed in range(50):
        world = server(sync_always=False)
        put(world, "a.x", "a.y")
        world.sync()
        put(world, "a.x", "a.y", "a.x")
        world.purge(A, "a.x", 3)
        lost = world.power_failure(Random(seed))["A"]
        found = held(world, A)
        assert found == ([2, 3, 4, 5] if lost == 0 else list(range(1, 7 - lost)))
        assert world.info(A) == VirtualLogInfo(len(found), len(found) * 43, found[0], found[-1])
        assert world.publish("a.x", "new", size=1) == found[-1] + 1
        assert world.power_failure(Random(seed))["A"] <= 1
        kept.add(lost)
    assert kept == {0, 1, 2, 3, 4}


def test_a_lost_replacement_brings_back_what_it_replaced_unless_removals_survive() -> None:
    for survive, found in ((False, [1]), (True, [])):
        world = server(sync_always=False)
        put(world, "b.x")
        world.sync()
        put(world, "b.x")
        world.log(B).lose(2, removals_survive=survive)
        assert held(world, B) == found
        assert world.publish("b.x", "new", size=1, expect=len(found)) == 2


def test_a_backup_is_not_changed_by_what_comes_after_it() -> None:
    world = server()
    put(world, "a.x", "a.y", "b.x")
    backup = world.backup()
    put(world, "a.x", "b.x")
    world.purge(A, "a.>", 3)
    world.restore(backup, A)
    assert (held(world, A), held(world, B)) == ([1, 2], [2])
    assert world.publish("a.x", "again", size=1, expect=1) == 3
    world.ensure(Log("C", ("c",), 1000))
    world.restore(backup)
    assert (held(world, A), held(world, B)) == ([1, 2], [1])
    with pytest.raises(NoLogError):
        world.publish("c", "", size=1)


def test_a_wiped_log_starts_over_and_a_wiped_server_has_no_logs() -> None:
    world = server()
    put(world, "a.x", "b.x")
    world.wipe(A)
    assert world.info(A) == VirtualLogInfo(0, 0, 0, 0)
    assert world.publish("a.x", "", size=1, expect=0) == 1
    world.wipe()
    assert world.info(A) is None
    with pytest.raises(NoLogError):
        world.publish("a.x", "", size=1)


def test_disks_are_exchanged() -> None:
    one, other = server(), server()
    put(one, "a.x", "a.x")
    put(other, "a.y", "b.x")
    one.exchange(other)
    assert (held(one, A), held(other, A)) == ([1], [1, 2])
    assert one.publish("a.y", "", size=1, expect=1) == 2
    one.log(A).exchange(other.log(A))
    assert held(one, A) == [1, 2]
    assert [message.subject for message in one.read(A, "a.>", 0)] == ["a.x", "a.x"]


def test_a_damaged_message_is_read_as_unreadable() -> None:
    world = server()
    put(world, "a.x", "a.x")
    backup = world.backup()
    assert world.flip(A, 1)
    assert not world.flip(A, 1)
    assert not world.flip(A, 7)
    assert [message.data for message in world.read(A, "a.x", 0)] == [Unreadable("a.x"), "a.x"]
    world.restore(backup)
    assert world.get(A, 1) == backup.logs[0].messages[0]


def test_full_logs_and_full_disks_refuse_until_there_is_room() -> None:
    world = server()
    world.fill(B)
    with pytest.raises(LogFullError):
        world.publish("b.x", "", size=1)
    put(world, "a.x")
    world.fill(B, False)
    put(world, "b.x")
    world.disk_full = True
    for subject in ("a.x", "b.x"):
        with pytest.raises(FabricError, match="no space left"):
            world.publish(subject, "", size=1)
    world.disk_full = False
    put(world, "a.x")
    assert held(world, A) == [1, 2]


def test_many_deletions_leave_reads_as_they_were() -> None:
    world = server()
    for number in range(1000):
        world.publish(f"a.{number % 7}", number, size=1, replace=number % 3 == 0)
        world.publish(f"b.{number % 5}", number, size=1)
    expected: dict[int, list[int]] = {}
    for number in range(1000):
        expected[number % 7] = [number] if number % 3 == 0 else [*expected.get(number % 7, []), number]
    assert [message.data for message in world.read(A, "a.*", 0, limit=1000)] == sorted(chain(*expected.values()))
    assert [message.data for message in world.read(B, "b.>", 0)] == list(range(995, 1000))


def test_events_happen_in_the_order_of_time_and_of_arrival() -> None:
    queue, seen = EventQueue(), list[str]()
    queue.at(2.0, seen.append, "later")
    queue.at(1.0, seen.append, "first")
    queue.at(1.0, seen.append, "second")
    never = queue.at(1.5, seen.append, "never")
    queue.at(1.0, lambda: queue.at(0.5, seen.append, "not in the past"))
    never.cancel()
    assert queue.run(1.9) == 4
    assert (seen, queue.now) == (["first", "second", "not in the past"], 1.9)
    assert queue.next_s == 2.0
    assert queue.run(10.0, most=1) == 1
    assert queue.now == 2.0
    assert not queue.step()


def test_a_link_delays_by_its_bandwidth_and_keeps_the_order() -> None:
    network = SimulatedNetwork(Random(1))
    network.link("a", "b").rate_bytes_per_s = 100.0
    network.link("a", "b").delay_s = 0.5
    assert network.send("a", "b", 100, 0.0) == 1.5
    assert network.send("a", "b", 100, 0.0) == 2.5
    assert network.send("a", "b", 100, 10.0) == 11.5
    assert network.send("b", "a", 100, 3.0) == 3.0
    mixed = SimulatedNetwork(Random(1), default=SimulatedLink(jitter_s=1.0, in_order=False))
    arrivals = [mixed.send("a", "b", 1, number * 0.01) or 0.0 for number in range(100)]
    assert arrivals != sorted(arrivals)
    mixed.link("a", "b").in_order = True
    arrivals = [mixed.send("a", "b", 1, number * 0.01) or 0.0 for number in range(100)]
    assert arrivals == sorted(arrivals)


def test_what_waits_for_a_link_leaves_at_its_new_bandwidth() -> None:
    network = SimulatedNetwork(Random(1), default=SimulatedLink(rate_bytes_per_s=100.0))
    link = network.link("a", "b")
    assert [network.send("a", "b", 100, 0.0) for _ in range(2)] == [1.0, 2.0]
    network.set_rate(link, 50.0, 1.0)  # 100 bytes have not left
    assert network.send("a", "b", 100, 1.0) == 5.0
    assert network.widen(3.0) == 2.0
    assert network.send("a", "b", 100, 3.0) == 5.0  # behind what is under way
    assert network.send("a", "b", 100, 6.0) == 6.0


def test_links_lose_their_share_and_are_cut_and_mended() -> None:
    network = SimulatedNetwork(Random(1), default=SimulatedLink(loss=0.25))
    lost = sum(network.send("a", "b", 1, 0.0) is None for _ in range(4000))
    assert 900 < lost < 1100
    network.partition({"a"}, {"a", "b", "c"})
    assert all(network.send(*pair, 1, 0.0) is None for pair in (("a", "b"), ("b", "a"), ("c", "a")) for _ in range(50))
    assert any(network.send("b", "c", 1, 0.0) is not None for _ in range(50))
    network.heal()
    assert all(network.send("a", "b", 1, 0.0) == 0.0 for _ in range(50))


def test_the_same_seed_gives_the_same_world() -> None:
    def run(seed: int) -> list[float | None]:
        network = SimulatedNetwork(Random(seed), default=SimulatedLink(delay_s=0.1, jitter_s=0.1, loss=0.3))
        return [network.send("a", "b", 10, number * 0.1) for number in range(50)]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_clocks_differ() -> None:
    network = SimulatedNetwork(Random(1))
    network.set_clock("a", SimulatedClock(offset_s=-5.0, drift=0.5))
    assert network.clock("a").time_s(20.0) == 25.0
    assert network.clock("a").true_s(25.0) == 20.0
    assert network.clock("b").time_s(20.0) == 20.0
