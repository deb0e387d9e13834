"""Scenarios from seeds: most are of any kind, every third one is of a family that leads to a state which is seldom met.

A family is a small deployment, a short load and a few faults close together. Seeds of one family differ in their sizes,
times and chances. Whoever plants a fault that no seed finds adds a family that reaches the state where it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from headgate_studies.testing.world import company, rare, stalls
from headgate_studies.testing.world.damaged_values import VALUE_FAMILIES
from headgate_studies.testing.world.dealt import GROUP_FAMILIES
from headgate_studies.testing.world.doubled import DOUBLED_FAMILIES
from headgate_studies.testing.world.narrowed import BANDWIDTH_FAMILIES
from headgate_studies.testing.world.published import PUBLISHED_FAMILIES
from headgate_studies.testing.world.put_back_faults import PUT_BACK_FAMILIES
from headgate_studies.testing.world.scenario import AS_PLANNED, Action, Scenario, make_any
from headgate_studies.testing.world.small import LIMITED, commits, small_scenario, subscription
from headgate_studies.testing.world.thinned import THINNED_FAMILIES
from headgate_studies.testing.world.watched import CONTEXT_FAMILIES

_EVERY: Final = 3
ANY: Final = "any"


def make_scenario(seed: int) -> Scenario:
    """Everything about one run follows from its seed."""
    return named_scenario(*kind_of_seed(seed))


def kind_of_seed(seed: int) -> tuple[str, int]:
    """The family of a seed, `any` where it is of none, and the number that its chances come from: the seed."""
    return (ANY if seed % _EVERY != _EVERY - 1 else FAMILIES[seed // _EVERY % len(FAMILIES)].__name__), seed


def named_scenario(family: str, seed: int) -> Scenario:
    """The scenario of a family, or of any kind, by a number."""
    return make_any(seed) if family == ANY else _BY_NAME[family](seed, Random(seed))


def hunting_seed(number: int) -> int:
    """Seeds in the order in which planted faults are hunted: five rounds of families, which are short, then mixed."""
    rounds = 5 * len(FAMILIES)
    if number < rounds or number % 2:
        return _EVERY * (number if number < rounds else rounds + (number - rounds) // 2) + _EVERY - 1
    place = (number - rounds) // 2
    return place // 2 * _EVERY + place % 2


def full_site(seed: int, random: Random) -> Scenario:
    """Outputs that are refused for long, decisions about their queues, small logs, and restarts."""
    place = random.choice(("s1", "s1", "s2"))
    start = random.uniform(1.0, 3.0)
    held = random.uniform(4.5, 7.0)
    quiet = random.choice((0.0, 3.5))  # so that everything is settled, and purged, when a relay begins again
    actions = [
        *(each for each in commits(random, 0.15, 60) if not 5.0 < each.time_s < 5.0 + quiet),
        Action(start, random.choice(("fill_inbox", "fill_inbox", "fill_site")), place, number=held - quiet),
        Action(start + held - quiet - random.uniform(0.1, 2.0), "kill", place, number=random.uniform(0.3, 1.5)),
        Action(random.uniform(7.0, 9.0), "kill", "s0", number=0.6),
        Action(random.uniform(5.0, 11.0), "kill", "s1", number=0.6),
    ]
    mine = [subscription("u0", "s1"), subscription("u1", "s2")]
    block = random.choice((400, 1 << 20))
    return small_scenario(seed, mine, actions, max_rows=30, max_bytes=40_000, max_block=block)


def first_messages_refused(seed: int, random: Random) -> Scenario:
    """A subscription begins where its inbox takes nothing, on a site that passes rows on; then that site restarts."""
    begin = random.uniform(1.0, 4.0)
    actions = [
        *commits(random, random.choice((0.1, 0.4)), 12),
        Action(begin - 0.3, "fill_inbox", "s1", number=random.uniform(3.5, 5.0)),
        Action(begin, "subscribe", "s1", AS_PLANNED),
        Action(begin + random.uniform(1.5, 3.0), "kill", "s1", number=0.5),
    ]
    return small_scenario(seed, [subscription("u0", "s2")], actions)


def damaged_while_stopped(seed: int, random: Random) -> Scenario:
    """Messages are damaged before a paused relay reads them, and the outputs that they were for are gone by then."""
    begin = random.uniform(1.0, 3.0)
    stop = random.uniform(2.0, 4.0)
    change = random.choice(("move", "move", "replan", "unsubscribe", "change"))
    added = [Action(begin + stop * 0.5, "subscribe", "s1", AS_PLANNED)] if random.random() < 0.7 else []
    actions = [
        *commits(random, 0.25, 12),
        Action(begin, "pause", "s1", number=stop),
        *added,
        *(Action(begin + stop * random.uniform(0.2, 0.5), "flip_site", "s1", number=1.0) for _ in range(4)),
        Action(begin + stop * random.uniform(0.75, 0.9), change, "s1", random.choice(("s0", "s2")), 1.0),
        Action(begin + stop * random.uniform(0.9, 1.5), random.choice(("pause", "cut")), "s0", number=1.5),
    ]
    mine = [subscription("u0", "s1"), subscription("u1", random.choice(("s1", "s2")))]
    return small_scenario(seed, mine, actions, max_block=random.choice((400, 1 << 20)))


def expiring(seed: int, random: Random) -> Scenario:
    """Rows expire while their reader has some of them in hand, and while more arrive over slow connections."""
    actions = [
        *commits(random, random.choice((0.1, 0.3)), 12),
        *(Action(random.uniform(1.0, 9.0), "stall_reader", "s1", number=random.uniform(1.0, 4.0)) for _ in range(3)),
        Action(random.uniform(2.0, 6.0), "detach", "s1", number=random.uniform(1.0, 5.0)),
        Action(random.uniform(3.0, 8.0), random.choice(("move", "kill_reader", "detach")), "s1", "s2", 2.0),
    ]
    mine = [subscription(f"u{number}", "s1", expires_s=random.choice((0.5, 1.5))) for number in range(2)]
    slow = random.choice((0.05, 0.3))
    return small_scenario(seed, mine, actions, max_block=random.choice((400, 1 << 20)), delay_s=slow)


def two_relays(seed: int, random: Random) -> Scenario:
    """A relay is replaced while the old one still runs, both with more in their queues than they may hold."""
    begin = random.uniform(1.0, 3.0)
    place = random.choice(("s0", "s1"))
    actions = [
        *commits(random, 0.12, 60),
        Action(begin, "fill_site", "s1" if place == "s0" else "s2", number=2.0),
        *(Action(begin + 0.5 + each, "replace", place, number=random.uniform(2.0, 6.0)) for each in range(3)),
        Action(begin + random.uniform(1.0, 4.0), "lossy", place, number=3.0),
        Action(begin + random.uniform(1.0, 4.0), "pause", place, number=random.uniform(0.3, 1.5)),
        Action(begin + random.uniform(3.0, 5.0), "fill_site", "s1" if place == "s0" else "s2", number=1.0),
    ]
    mine = [subscription(f"u{number}", "s2", policy=random.choice((None, LIMITED))) for number in range(2)]
    heavy = random.choice((10, 5_000))
    return small_scenario(
        seed, mine, actions, classes=random.randint(1, 6), max_rows=60, heavy_rows=heavy, max_block=900
    )


def two_readers(seed: int, random: Random) -> Scenario:
    """A reader is taken over by another one, and acknowledgements get lost on their way."""
    actions = [
        *commits(random, 0.2, 12),
        *(Action(random.uniform(1.0, 10.0), "replace_reader", "s1", number=random.uniform(1.0, 4.0)) for _ in range(3)),
        *(Action(random.uniform(1.0, 10.0), "lossy_reader", "s1", number=2.0) for _ in range(3)),
        Action(random.uniform(2.0, 8.0), "kill_reader", "s1", number=0.5),
    ]
    return small_scenario(seed, [subscription("u0", "s1"), subscription("u1", "s2")], actions)


def past_and_moves(seed: int, random: Random) -> Scenario:
    """Subscriptions that begin with the earliest row move before, at and after their first commit."""
    actions = commits(random, random.choice((0.3, 1.5)), 12)
    for _ in range(3):
        begin = random.uniform(1.0, 9.0)
        actions += [
            Action(begin, "subscribe", random.choice(("s0", "s1", "s2"))),
            Action(begin + random.uniform(0.05, 1.0), "move", "s0", random.choice(("s0", "s1", "s2"))),
            Action(begin + random.uniform(0.05, 2.0), "move", "s0", random.choice(("s0", "s1", "s2"))),
            Action(begin - 0.3, random.choice(("fill_inbox", "cut")), random.choice(("s0", "s1", "s2")), number=3.0),
        ]
    return small_scenario(seed, [subscription("u0", "s1", start="earliest")], actions)


def turned_trees(seed: int, random: Random) -> Scenario:
    """Plans change faster than rows travel, and relays begin again with parents that they did not have."""
    actions = commits(random, random.choice((0.1, 0.5)), random.choice((12, 60)))
    for _ in range(7):
        when, place = random.uniform(1.0, 9.0), random.choice(("s1", "s2"))
        actions += [
            Action(when, "replan", place),
            Action(when + random.uniform(0.0, 0.6), random.choice(("kill", "kill", "cut", "pause")), place, number=2.0),
        ]
    actions += [Action(random.uniform(2.0, 8.0), "move", "s0", random.choice(("s0", "s1", "s2"))) for _ in range(3)]
    mine = [subscription("u0", "s2"), subscription("u1", "s1")]
    small = random.choice((40_000, 12_000, 1 << 20))
    return small_scenario(seed, mine, actions, delay_s=random.choice((0.02, 0.3)), max_bytes=small)


def versions_queue_up(seed: int, random: Random) -> Scenario:
    """The catalog changes while outputs are refused: rows of several versions wait, for some who are there no more."""
    begin = random.uniform(1.0, 3.0)
    kinds = ("change", "change", "move", "replan", "subscribe", "unsubscribe")
    actions = [
        *commits(random, 0.2, 12),
        Action(begin, random.choice(("fill_site", "fill_inbox")), random.choice(("s1", "s2")), number=4.0),
        Action(begin, random.choice(("fill_site", "fill_inbox")), random.choice(("s1", "s2")), number=4.0),
        *(
            Action(begin + 0.3 + each * 0.7, random.choice(kinds), random.choice(("s1", "s2")), "s1", 1.0)
            for each in range(5)
        ),
    ]
    return small_scenario(seed, [subscription("u0", "s2"), subscription("u1", "s2"), subscription("u2", "s1")], actions)


def narrow_links(seed: int, random: Random) -> Scenario:
    """Links that take a row at a time, with more rows than their queues may hold, and relays that stop at any time."""
    actions = [
        *commits(random, 0.3, 60),
        Action(0.4, "bandwidth", "s0"),
        Action(random.uniform(0.4, 2.0), "bandwidth", random.choice(("s0", "s1"))),
        *(Action(random.uniform(1.0, 11.0), "kill", random.choice(("s0", "s1")), number=0.5) for _ in range(9)),
    ]
    mine = [subscription(f"u{number}", random.choice(("s1", "s2"))) for number in range(2)]
    return small_scenario(seed, mine, actions, max_rows=random.choice((30, 60)))


def damaged_everywhere(seed: int, random: Random) -> Scenario:
    """Parts of the root log and copies of their rows further down are damaged, also inside of commits."""
    begin = random.uniform(1.0, 4.0)
    kinds = (("flip_rows", "t0"), ("flip_rows", "t0"), ("flip_part", "t0"), ("flip_inbox", "s2"), ("flip_site", "s2"))
    actions = [
        *commits(random, 0.2, 60, 10.0),
        *(Action(begin + random.uniform(0.0, 4.0), *random.choice(kinds), number=1.0) for _ in range(16)),
        Action(begin, "stall_reader", "s2", number=3.0),
        Action(begin + random.uniform(0.0, 3.0), "pause", random.choice(("s1", "s2")), number=2.0),
        Action(begin + random.uniform(1.0, 4.0), random.choice(("subscribe", "detach", "move")), "s2", "s1", 1.5),
        *(Action(begin + random.uniform(1.0, 5.0), "kill_reader", "s2", number=0.5) for _ in range(2)),
        Action(begin + random.uniform(0.0, 3.0), "fill_inbox", "s2", number=1.5),
    ]
    mine = [subscription(f"u{number}", "s2", expires_s=random.choice((None, 1.0))) for number in range(2)]
    return small_scenario(
        seed, mine, actions, max_block=random.choice((400, 700)), max_rows=random.choice((40, 100_000))
    )


def link_of_many(seed: int, random: Random) -> Scenario:
    """Several subscriptions with limits of their own share a link that is too full, again and again."""
    begin = random.uniform(0.5, 3.0)
    actions = [
        *commits(random, 0.15, 60, 9.0),
        Action(begin, "fill_site", "s1", number=4.0),
        Action(begin + 2.0, "fill_site", "s2", number=4.0),
        Action(begin + random.uniform(1.0, 5.0), "lossy", "s0", number=2.0),
    ]
    policies = random.choice(((LIMITED,), (LIMITED, None), (None,), ({"max_rows": 40},)))
    mine = [
        subscription(f"u{number}", random.choice(("s1", "s2")), policy=random.choice(policies)) for number in range(4)
    ]
    return small_scenario(seed, mine, actions, classes=5, max_rows=60, heavy_rows=random.choice((10, 5_000)))


FAMILIES: Final[tuple[Callable[[int, Random], Scenario], ...]] = (
    full_site,
    first_messages_refused,
    damaged_while_stopped,
    expiring,
    two_relays,
    two_readers,
    past_and_moves,
    turned_trees,
    versions_queue_up,
    narrow_links,
    damaged_everywhere,
    link_of_many,
    rare.damaged_at_a_switch,
    rare.joining_late,
    rare.damaged_and_too_much,
    rare.damaged_inside_a_commit,
    rare.small_root_log,
    rare.changed_and_moved,
    rare.expiring_after_a_move,
    rare.two_drivers,
    rare.old_versions,
    rare.two_packing_relays,
    rare.slow_old_parent,
    rare.loops,
    rare.dead_parent,
    rare.old_copies,
    rare.first_message_damaged,
    rare.readers_away,
    rare.long_past,
    rare.large_blocks_behind_a_gap,
    rare.served_from_memory,
    company.shared_inbox,
    company.shared_and_full,
    stalls.stalled_and_old_copy,
    stalls.owed_behind_a_gap,
    stalls.small_logs_everywhere,
    *GROUP_FAMILIES,
    *DOUBLED_FAMILIES,
    *CONTEXT_FAMILIES,
    *BANDWIDTH_FAMILIES,
    *VALUE_FAMILIES,
    *THINNED_FAMILIES,
    *PUBLISHED_FAMILIES,
    *PUT_BACK_FAMILIES,
)
_BY_NAME: Final = {family.__name__: family for family in FAMILIES}
