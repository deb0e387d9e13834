"""A family of scenarios in which logs are put back to older copies or exchanged, and its planted faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription


def put_back(seed: int, random: Random) -> Scenario:
    """Old copies of inboxes, of the root log, of the state log and of all logs, and logs of two sites exchanged."""
    kinds = ("old_inbox", "old_inbox", "old_root", "old_state", "old_server", "exchange_logs", "exchange_logs")
    paces = random.choice((0.2, 0.6))
    until_s = random.choice((3.0, 6.0, 12.0))  # without commits nothing but reports is written
    actions = commits(random, paces, random.choice((12, 60)), until_s)
    for begin in (1.5, 5.0, 8.5):
        kind, place = random.choice(kinds), random.choice(("s1", "s2"))
        other = "s2" if place == "s1" else "s1"
        place = "t0" if kind == "old_root" else place
        actions.append(Action(begin + random.uniform(0.0, 1.0), kind, place, other, random.uniform(0.1, 2.0)))
    others = ("kill_reader", "stall_reader", "move", "subscribe", "replan", "fill_inbox", "kill", "detach")
    actions += [
        Action(random.uniform(0.6, 11.0), random.choice(others), random.choice(("s1", "s2")), "s1", 1.5)
        for _ in range(random.choice((0, 4)))
    ]
    mine = [subscription("u0", "s1"), subscription("u1", "s2", expires_s=random.choice((None, 2.0)))]
    return small_scenario(seed, mine, actions, max_block=random.choice((400, 1 << 20)))


PUT_BACK_FAMILIES: Final[tuple[Callable[[int, Random], Scenario], ...]] = (put_back,)
PUT_BACK_MUTANTS: Final = (
    Mutant(
        "a log that ends before it was seen is started on",
        "service.identity",
        "if info is not None and info.last < seen:",
        "if info is not None and info.last < 0:",
    ),
)
