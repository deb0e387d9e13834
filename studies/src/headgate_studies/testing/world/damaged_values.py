"""A family of scenarios in which pins and sums of the ledger are damaged, and its planted faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import ROOMY, Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription


def damaged_values(seed: int, random: Random) -> Scenario:
    """Pins and sums are damaged while their owners are away, also where the manifests behind the sums are gone."""
    actions = commits(random, random.choice((0.15, 0.4)), random.choice((12, 60)))
    for _ in range(random.choice((2, 4))):
        when = random.uniform(1.0, 11.0)
        actions.append(Action(when, "flip_sums", "t0", number=random.uniform(0.2, 2.0)))
        if random.random() < 0.6:
            actions.append(Action(when + 0.1, "subscribe", random.choice(("s0", "s1", "s2"))))
        if random.random() < 0.6:
            actions.append(Action(when - 0.2, random.choice(("kill_reader", "move", "detach")), "s1", "s2", 1.5))
    for _ in range(random.choice((2, 4))):
        when = random.uniform(0.6, 11.0)
        actions.append(Action(when, "flip_pin", "t0", number=random.uniform(0.1, 1.0)))
        actions.append(Action(when - 0.1, random.choice(("change", "replan", "subscribe")), "s1", "s2"))
    actions += [Action(random.uniform(1.0, 11.0), "flip_inbox", random.choice(("s1", "s2"))) for _ in range(3)]
    mine = [subscription("u0", "s1"), subscription("u1", "s2", start=random.choice(("now", "earliest")))]
    small = random.random() < 0.4
    squeeze = not small and random.random() < 0.5
    if small or squeeze:
        mine[1] = subscription("u1", "s2")
    return small_scenario(
        seed,
        mine,
        actions,
        delay_s=random.choice((0.02, 0.2)),
        squeeze=squeeze,
        root_bytes=random.choice((20_000, 60_000)) if small else ROOMY,
    )


VALUE_FAMILIES: Final[tuple[Callable[[int, Random], Scenario], ...]] = (damaged_values,)
VALUE_MUTANTS: Final = (
    Mutant(
        "sums that cannot be read begin with nothing",
        "service.books",
        "                return Matched(stream, mark=first.after, lost=first.after), sequence\n",
        "                return Matched(stream), sequence\n",
    ),
    Mutant(
        "a pin that cannot be read stops its stream",
        "protocol.commits",
        'known = port.quarantine.take(logs.state, stored, Pin.decode, "pinned anew") if stored else None',
        "known = Pin.decode(stored.data) if stored else None",
    ),
)
