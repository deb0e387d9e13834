"""Families of scenarios in which an inbox takes nothing for long, so that all depends on what is kept meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import LIMITED, commits, small_scenario, subscription


def stalled_and_old_copy(seed: int, random: Random) -> Scenario:
    """A site log is put back to a copy that lacks what was decided for an inbox since then, once or twice."""
    place, begin = random.choice(("s1", "s2")), random.uniform(1.0, 2.0)
    when, ago_s = begin + random.uniform(1.0, 3.0), random.uniform(0.5, 3.0)
    actions = [
        *commits(random, random.choice((0.15, 0.3)), random.choice((12, 60))),
        Action(begin, "fill_inbox", place, number=random.uniform(6.0, 9.0)),
        Action(when, "restore_site", place, number=2 * ago_s),
    ]
    if random.random() < 0.5:
        again = when + ago_s + random.uniform(1.0, 2.0)
        actions.append(Action(again, "restore_site", place, number=random.uniform(0.5, 3.0)))
    mine = [subscription("u0", place, policy=random.choice((None, LIMITED)))]
    return small_scenario(
        seed,
        mine,
        actions,
        classes=random.choice((1, 5)),
        max_rows=random.choice((4, 30)),
        max_block=random.choice((400, 1 << 20)),
        max_bytes=random.choice((20_000, 40_000, 1 << 20)),
    )


def owed_behind_a_gap(seed: int, random: Random) -> Scenario:
    """Plans change under an inbox that takes nothing: rows are owed, others wait behind a gap, and logs fill."""
    actions = commits(random, random.choice((0.06, 0.12)), random.choice((12, 60)))
    begin = random.uniform(1.0, 3.0)
    actions.append(Action(begin + random.uniform(0.0, 0.5), "fill_inbox", "s2", number=random.uniform(4.0, 7.0)))
    for each in range(5):
        when, trouble = (
            begin + each * random.uniform(0.7, 1.4),
            random.choice(("pause", "cut", "flip_site", "flip_site")),
        )
        place, number = random.choice(("s1", "s2")), random.uniform(1.0, 3.0)
        actions.append(Action(when, "replan", "s2"))
        actions.append(Action(max(when + random.uniform(-0.3, 0.4), 0.1), trouble, place, number=number))
    mine = [subscription("u0", "s2"), subscription("u1", random.choice(("s1", "s2")))]
    return small_scenario(
        seed,
        mine,
        actions,
        classes=random.choice((1, 5)),
        max_rows=random.choice((30, 100_000)),
        delay_s=random.choice((0.02, 0.3)),
        max_bytes=random.choice((20_000, 24_000)),
        max_block=random.choice((400, 1 << 20)),
    )


def small_logs_everywhere(seed: int, random: Random) -> Scenario:
    """As before, and the root's own log is so small that it has forgotten the rows that are asked for."""
    found = owed_behind_a_gap(seed, random)
    return replace(found, root_bytes=random.choice((40_000, 60_000, 80_000)))
