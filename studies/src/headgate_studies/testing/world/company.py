"""Families of scenarios about inboxes that several subscriptions share: who joins, leaves, stays behind or moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from headgate.model import Subscription
from headgate_studies.testing.world.scenario import POLICIES, Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription


def _sharing(names: Iterable[str], site: str, owner: int, **more: object) -> list[Subscription]:
    """Subscriptions that want the same, in the inbox of the first of them, whose id is given."""
    made = [subscription(name, site, **more) for name in names]
    return [made[0], *(replace(each, shared=(owner, 0)) for each in made[1:])]


def shared_inbox(seed: int, random: Random) -> Scenario:
    """Members of one inbox join late, leave, change what they want, move between sites, freeze, and begin again."""
    kinds = ("share", "share", "regroup", "rejoin", "move", "change", "unsubscribe", "kill_reader", "stall_reader")
    actions = [
        *commits(random, random.choice((0.15, 0.4)), 12),
        *(
            Action(random.uniform(1.0, 11.0), random.choice(kinds), "s1", random.choice(("s0", "s1", "s2")), 2.5)
            for _ in range(random.choice((4, 8, 14)))
        ),
        Action(random.uniform(2.0, 9.0), random.choice(("kill", "replace", "lossy", "flip_inbox")), "s1", number=1.5),
        Action(random.uniform(2.0, 9.0), random.choice(("kill", "pause", "flip_last")), "s1", number=1.0),
    ]
    policy = random.choice(POLICIES)
    mine = [*_sharing(("u0", "u1", "u2"), "s1", 1, policy=policy), subscription("u3", random.choice(("s1", "s2")))]
    return small_scenario(
        seed, mine, actions, max_block=random.choice((400, 1 << 20)), delay_s=random.choice((0.02, 0.2))
    )


def shared_and_full(seed: int, random: Random) -> Scenario:
    """One member reads nothing for long and fills the inbox for all of them, until the others get another one."""
    begin = random.uniform(1.0, 3.0)
    actions = [
        *commits(random, 0.15, random.choice((12, 60))),
        *(Action(begin + 0.5 * each, "stall_reader", "s1", number=random.uniform(2.0, 6.0)) for each in range(3)),
        *(Action(begin + random.uniform(1.0, 7.0), "regroup", "s1") for _ in range(2)),
        Action(begin + random.uniform(1.0, 7.0), random.choice(("share", "rejoin", "kill")), "s1", number=0.6),
        Action(begin + random.uniform(3.0, 8.0), random.choice(("rejoin", "fill_inbox", "kill")), "s1", number=1.0),
    ]
    mine = _sharing(("u0", "u1", "u2"), "s1", 1, policy=random.choice(POLICIES))
    return small_scenario(
        seed,
        mine,
        actions,
        max_rows=random.choice((30, 200)),
        inbox_messages=8,
        max_block=random.choice((400, 1 << 20)),
    )
