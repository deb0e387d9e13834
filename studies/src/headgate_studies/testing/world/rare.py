"""Families for states that take several faults in the right order (see `headgate_studies.testing.world.families`)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import LIMITED, commits, small_scenario, subscription

_DRIVER: Final = "driver-t0"
_BOOKS: Final = "books-t0"
_PURGER: Final = "tables"
_OFTEN: Final = 0.5


def damaged_at_a_switch(seed: int, random: Random) -> Scenario:
    """The last messages of links are damaged before they are read, also the first ones, and then the plan changes."""
    actions = commits(random, random.choice((0.15, 0.5)), 12)
    if random.random() < 0.5:
        actions += [Action(0.1, "pause", "s1", number=1.2), Action(0.9, "flip_last", "s1")]
    for _ in range(3):
        when, place = random.uniform(1.0, 10.0), random.choice(("s1", "s1", "s2"))
        stop_s = random.uniform(0.4, 1.5)
        actions += [
            Action(when, *random.choice((("pause", place, "", stop_s), ("kill", place, "", 3 * stop_s)))),
            Action(when + 0.85 * stop_s, "flip_last", place),
            Action(when + stop_s * random.uniform(0.6, 0.95), random.choice(("replan", "replan", "move")), "s0", "s2"),
        ]
    mine = [subscription("u0", "s2"), subscription("u1", random.choice(("s1", "s2")))]
    return small_scenario(seed, mine, actions)


def dead_parent(seed: int, random: Random) -> Scenario:
    """A parent dies and stays dead for long while the service is away: nobody makes another plan."""
    begin = random.uniform(2.0, 5.0)
    few, small, most = random.choice(((40, 900, 60), (100_000, 1 << 20, 60), (100_000, 700, 6)))
    actions = [
        *commits(random, random.choice((0.1, 0.4)), random.choice((most // 5 + 1, most)), 24.0),
        Action(begin - 0.5, "lock_catalog", number=20.0),
        Action(begin - 0.4, "kill_service", random.choice((_BOOKS, _PURGER)), number=50.0),
        Action(begin, "bury", "s1", "s2", random.uniform(12.0, 16.0)),
    ]
    # Rows are given up on their way to the site that dies, and to the one that it served: by whom is told once.
    actions += [
        Action(begin - random.uniform(0.2, 1.5), "fill_site", place, number=random.uniform(0.5, 2.5))
        for place in random.sample(("s1", "s2"), random.choice((0, 1, 1, 2)))
    ]
    if random.random() < _OFTEN:
        kind = random.choice(("kill", "pause", "lossy", "cut"))
        actions.append(Action(begin + random.uniform(0.0, 3.0), kind, random.choice(("s0", "s2")), number=1.5))
    if random.random() < _OFTEN:
        actions.append(Action(begin - 1.0, "bandwidth", random.choice(("s0", "s1"))))
    policies = random.choice(((None,), (LIMITED, None)))
    mine = [
        subscription(f"u{number}", random.choice(("s1", "s2")), policy=random.choice(policies)) for number in (0, 1)
    ]
    return small_scenario(
        seed, [*mine, subscription("u2", "s2")], actions, length_s=26.0, max_rows=few, max_block=small
    )


def joining_late(seed: int, random: Random) -> Scenario:
    """A site joins a stream in its midst, its first message is late or damaged, and at once it gets another parent."""
    actions = commits(random, random.choice((0.1, 0.25)), 12)
    for _ in range(3):
        when = random.uniform(1.5, 9.0)
        actions += [
            Action(when, "subscribe", "s2"),
            *(
                Action(when - 0.1, random.choice(("pause", "cut")), place, number=random.uniform(0.8, 3.0))
                for place in random.sample(("s1", "s2"), random.randint(1, 2))
            ),
            Action(when + random.uniform(0.3, 0.6), "flip_last", random.choice(("s1", "s2"))),
            Action(when + random.uniform(0.3, 0.8), random.choice(("replan", "replan", "unsubscribe")), "s0"),
        ]
    return small_scenario(seed, [subscription("u0", random.choice(("s0", "s1")))], actions)


def damaged_and_too_much(seed: int, random: Random) -> Scenario:
    """Rows are gone at the root before its relay has read them, and more of their commits is given up on the way."""
    actions = commits(random, random.choice((0.25, 0.6)), 60, 10.0)
    for _ in range(3):
        when = random.uniform(0.8, 9.0)
        stop_s = random.uniform(0.5, 1.5)
        actions += [
            Action(when, "pause", "s0", number=stop_s),
            *(Action(when + stop_s * random.uniform(0.3, 0.95), "flip_part", "t0", number=1.0) for _ in range(8)),
            Action(when, random.choice(("fill_site", "fill_inbox")), "s1", number=stop_s + random.uniform(1.0, 3.0)),
        ]
    mine = [subscription(f"u{number}", random.choice(("s1", "s2"))) for number in range(2)]
    block = random.choice((400, 1 << 20))
    return small_scenario(seed, mine, actions, max_rows=random.choice((10, 30)), max_block=block)


def damaged_inside_a_commit(seed: int, random: Random) -> Scenario:
    """Readers stop, and inboxes expire, inside of commits whose other rows are damaged everywhere."""
    expires_s = random.choice((None, 0.5))
    actions = commits(random, 1.2, 60, 10.0)
    if random.random() < 0.3:
        actions += [Action(0.1, "kill_reader", "s2", number=1.2)]
        actions += [Action(1.0 + each / 50, "flip_inbox", "s2") for each in range(6)]
    actions += [Action(0.4, "bandwidth", random.choice(("s0", "s1")))] if random.random() < 0.7 else []
    for each in range(12):
        when = 0.8 + 0.8 * each + random.uniform(0.0, 0.5)
        actions += [
            Action(when, "stall_reader", "s2", number=random.choice((0.3, 1.5))),
            Action(when + random.uniform(0.1, 0.6), "flip_rows", "t0", number=1.0),
        ]
        if random.random() < 0.6:
            actions.append(Action(when + random.uniform(0.0, 0.4), "pause", "s2", number=random.uniform(0.2, 1.0)))
        if random.random() < 0.6:
            actions.append(Action(when + random.uniform(0.1, 0.7), "kill_reader", "s2", number=0.3))
    mine = [subscription("u0", "s2", expires_s=expires_s)]
    return small_scenario(
        seed, mine, actions, max_block=random.choice((300, 400)), inbox_messages=random.choice((8, 64))
    )


def small_root_log(seed: int, random: Random) -> Scenario:
    """A root whose log is cut short restarts while an inbox there, which takes no more, has a part of a commit."""
    actions = [
        *commits(random, random.uniform(0.08, 0.15), 12, 9.0),
        *(Action(start, "fill_inbox", "s0", number=4.5) for start in (4.0, 12.0)),
        *(Action(start + random.uniform(2.5, 4.0), "kill", "s0", number=0.3) for start in (4.0, 12.0)),
    ]
    limits: dict[str, Any] = {"max_bytes": 20_000, "max_block": 300, "inbox_messages": 16, "length_s": 21.0}
    return small_scenario(seed, [subscription("u0", "s0")], actions, **limits)


def changed_and_moved(seed: int, random: Random) -> Scenario:
    """Subscriptions that begin with the earliest row get another filter and move while their sites are behind."""
    actions = commits(random, random.choice((0.2, 0.6)), 12)
    for _ in range(3):
        when = random.uniform(1.0, 9.0)
        actions += [
            Action(when, random.choice(("cut", "pause")), "s1", number=random.uniform(1.5, 3.0)),
            Action(when + random.uniform(0.1, 0.6), "change", "s0"),
            Action(when + random.uniform(0.4, 1.2), "move", "s0", random.choice(("s0", "s0", "s2"))),
            Action(when + random.uniform(3.0, 4.0), "move", "s0", "s1"),
        ]
    return small_scenario(seed, [subscription("u0", "s1", start="earliest")], actions)


def expiring_after_a_move(seed: int, random: Random) -> Scenario:
    """Readers stop with messages of a site in hand that they have just moved to, and those expire there."""
    actions = commits(random, 0.15, 12)
    for each in range(4):
        when = 1.0 + 2.5 * each
        stall_s = random.uniform(1.2, 2.4)
        actions += [
            Action(when, "move", "s0", random.choice(("s0", "s1", "s2"))),
            Action(when + random.uniform(0.2, 0.9), "stall_reader", "s0", number=stall_s),
        ]
    return small_scenario(seed, [subscription("u0", "s1", expires_s=0.5)], actions, delay_s=random.choice((0.02, 0.1)))


def two_drivers(seed: int, random: Random) -> Scenario:
    """A stream's driver sleeps with a batch in hand, another one takes over, or the catalog goes on meanwhile."""
    actions = commits(random, 0.3, 6)
    for begin in (1.0, 8.0):
        when = begin + random.uniform(0.0, 1.5)
        actions.append(Action(when, "pause_service", _DRIVER, number=random.uniform(4.5, 6.0)))
        if random.random() < 0.3:
            actions.append(Action(when + random.uniform(0.2, 1.5), "replace_service", _DRIVER, number=9.0))
        actions += [Action(when + after_s, "change", "s0") for after_s in (-0.4, 0.2, 0.5, 0.8)]
    squeeze = random.random() < 0.5
    return small_scenario(seed, [subscription("u0", "s1")], actions, delay_s=random.choice((0.3, 1.0)), squeeze=squeeze)


def old_versions(seed: int, random: Random) -> Scenario:
    """Versions of the catalog go as soon as nobody names them, with readers, sites and services that are behind."""
    actions = commits(random, random.choice((0.15, 2.5)), 6)
    actions += [Action(random.uniform(0.5, 9.0), "change", "s0") for _ in range(8)]
    actions += [Action(random.uniform(1.0, 2.0), "stall_reader", "s0", number=10.0) for _ in range(2)]
    for _ in range(random.choice((0, 3))):
        when = random.uniform(1.0, 6.0)
        actions.append(Action(when, "stall_reader", "s0", number=random.uniform(2.0, 8.0)))
        actions.append(Action(when, random.choice(("cut", "pause")), random.choice(("s1", "s2")), number=7.0))
        for service in (_BOOKS, _PURGER):
            actions += [
                Action(when + random.uniform(0.0, 3.0), "pause_service", service, number=random.uniform(1.0, 4.0)),
                Action(when + random.uniform(0.0, 3.0), "replace_service", service, number=random.uniform(2.0, 8.0)),
            ]
    mine = [subscription("u0", "s1"), subscription("u1", "s2")]
    return small_scenario(seed, mine, actions, squeeze=random.random() < 0.7)


def two_packing_relays(seed: int, random: Random) -> Scenario:
    """Two relays of one site decide beside sending what goes of their full queues, and send it by turns."""
    place, below = random.choice((("s0", "s1"), ("s1", "s2")))
    actions = commits(random, 0.12, 60, 11.0)
    actions += [Action(1.0 + 1.5 * each, "fill_site", below, number=random.uniform(0.6, 1.2)) for each in range(7)]
    actions += [Action(random.uniform(1.0, 8.0), "replace", place, number=5.0) for _ in range(3)]
    actions += [Action(random.uniform(1.0, 10.0), "pause", place, number=random.uniform(0.2, 0.8)) for _ in range(3)]
    mine = [subscription("u0", "s2", policy=random.choice((None, LIMITED)))]
    return small_scenario(seed, mine, actions, max_rows=random.choice((30, 60)), heavy_rows=5, max_block=900)


def slow_old_parent(seed: int, random: Random) -> Scenario:
    """After a plan change the old parent is slow with what it has got, and with what it is still to get."""
    actions = commits(random, 0.1, random.choice((3, 12)), 11.0)
    actions += [Action(0.4, "bandwidth", "s0"), Action(0.45, "bandwidth", "s1")]
    for _ in range(3):
        when = random.uniform(1.5, 9.0)
        actions.append(Action(when, "replan", "s0"))
        actions.append(Action(when - random.uniform(0.2, 1.5), random.choice(("cut", "fill_site")), "s1", number=2.0))
    mine = [subscription("u0", "s2"), subscription("u1", random.choice(("s1", "s2")))]
    return small_scenario(
        seed, mine, actions, max_rows=random.choice((2, 5, 10)), max_block=random.choice((300, 1 << 20))
    )


def loops(seed: int, random: Random) -> Scenario:
    """Consumers leave their loops at any time: they come back to the same inbox, or go away and come back later."""
    actions = commits(random, random.choice((0.05, 0.2)), 12)
    kinds = ("loop_again", "loop_again", "detach", "kill_reader", "lossy_reader", "move")
    actions += [Action(random.uniform(0.6, 11.0), random.choice(kinds), "s0", "s1", 1.0) for _ in range(20)]
    mine = [
        subscription(f"u{number}", random.choice(("s0", "s1")), expires_s=random.choice((None, 1.0)))
        for number in range(2)
    ]
    return small_scenario(seed, mine, actions, max_block=random.choice((400, 1 << 20)))


def old_copies(seed: int, random: Random) -> Scenario:
    """A site log is put back to an old copy, and the last message of an inbox is damaged while its relay is stopped."""
    place = random.choice(("s1", "s2"))
    actions = commits(random, random.choice((0.15, 0.4)), random.choice((12, 60)), 11.0)
    for begin in (1.0, 4.0, 7.0):
        when, ago_s = begin + random.uniform(0.0, 1.5), random.uniform(0.2, 1.5)
        actions.append(Action(when, "restore_site", place, number=2 * ago_s))
        actions += [Action(when + ago_s + random.uniform(0.05, 0.45), "flip_inbox", place) for _ in range(2)]
    mine = [subscription("u0", place), subscription("u1", "s2")]
    return small_scenario(seed, mine, actions, max_rows=random.choice((4, 30)), max_block=random.choice((400, 1 << 20)))


def first_message_damaged(seed: int, random: Random) -> Scenario:
    """The first message of an inbox is damaged before it is read, and the ledger does not know the subscription yet."""
    place = random.choice(("s1", "s2"))
    away_s = random.uniform(0.9, 1.5)
    actions = commits(random, 0.3, 12, 8.0)
    actions.append(Action(0.05, random.choice(("pause_service", "kill_service")), _BOOKS, number=away_s + 2.0))
    actions.append(Action(0.1, "kill_reader", place, number=away_s))
    actions += [Action(away_s - each / 50, "flip_inbox", place) for each in range(4)]
    return small_scenario(seed, [subscription("u0", place)], actions)


def readers_away(seed: int, random: Random) -> Scenario:
    """Nobody reads, and so nobody asks for what a relay has missed, until the root has forgotten it."""
    place = random.choice(("s1", "s2"))
    if random.random() < 0.7:
        found = random.choice((damaged_at_a_switch, joining_late, joining_late))(seed, random)
    else:
        actions = commits(random, random.choice((0.1, 0.3)), 12)
        for begin in (1.0, 3.0, 5.0):
            when, stop_s = begin + random.uniform(0.0, 1.0), random.uniform(0.4, 1.2)
            actions.append(Action(when, "kill", place, number=stop_s))
            actions += [Action(when + stop_s * random.uniform(0.1, 0.9), "flip_last", place) for _ in range(2)]
        found = small_scenario(seed, [subscription("u0", place), subscription("u1", "s2")], actions)
    begins = [each.time_s for each in found.actions if each.kind == "subscribe"] or [0.6, 2.0, 4.0]
    away = [Action(begin + each / 10, "kill_reader", "s0", number=7.0) for begin in begins for each in range(6)]
    actions = sorted((*found.actions, *away), key=lambda each: each.time_s)
    return replace(found, actions=tuple(actions), max_bytes=20_000, max_block=2_000)


def long_past(seed: int, random: Random) -> Scenario:
    """Subscriptions get much of the past at once, where queues hold little and the inboxes take nothing meanwhile."""
    actions = commits(random, 0.1, 240, 5.0)
    for begin in (5.0, 7.0, 9.0):
        place = random.choice(("s0", "s1", "s2"))
        actions += [Action(begin + each / 10, "subscribe", place) for each in range(2)]
        actions.append(Action(begin - 0.2, "fill_inbox", place, number=1.5))
    actions += [Action(when, "commit", "t0", number=3.0) for when in (5.6, 7.6, 9.6, 11.0)]
    return small_scenario(seed, [subscription("u0", "s2")], actions, max_rows=10, heavy_rows=5)


def large_blocks_behind_a_gap(seed: int, random: Random) -> Scenario:
    """Many large blocks come while the one before them is missing, where a queue holds few of their rows."""
    actions = commits(random, 0.08, 150, 7.0)
    for begin in (1.0, 3.5):
        when = begin + random.uniform(0.0, 1.0)
        actions.append(Action(when, "kill", "s1", number=1.0))
        actions += [Action(when + random.uniform(0.2, 0.9), "flip_last", "s1") for _ in range(2)]
    mine = [subscription(f"u{number}", random.choice(("s1", "s2"))) for number in range(3)]
    return small_scenario(seed, mine, actions, max_rows=150, heavy_rows=10)


def served_from_memory(seed: int, random: Random) -> Scenario:
    """Readers in gateways with little memory freeze, fall back to their inboxes and catch up; gateways die and lag."""
    kinds = ("kill_gateway", "pause_gateway", "lossy_gateway", "stall_reader", "stall_reader", "kill_reader", "detach")
    rare = ("move", "subscribe", "loop_again", "replace_reader", "hints", "kill", "fill_inbox", "lossy_reader")
    actions = [
        *commits(random, random.choice((0.05, 0.15, 0.3)), 6, 10.0),
        *(
            Action(random.uniform(0.8, 9.0), random.choice(kinds), "s1", "s2", random.uniform(0.3, 4.0))
            for _ in range(7)
        ),
        *(
            Action(random.uniform(1.0, 9.0), random.choice(rare), "s1", random.choice(("s1", "s2")), 1.5)
            for _ in range(3)
        ),
    ]
    mine = [
        subscription(
            f"u{number}", "s1", expires_s=random.choice((None, None, 1.5)), policy=random.choice((None, LIMITED))
        )
        for number in range(random.choice((2, 4)))
    ]
    messages = random.choice((2, 6, 200))
    inbox, slow = random.choice((16, 64)), random.choice((0.02, 0.3))
    return small_scenario(seed, mine, actions, gateway_messages=messages, inbox_messages=inbox, delay_s=slow)
