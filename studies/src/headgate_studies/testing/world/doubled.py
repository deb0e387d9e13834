"""A family of scenarios about subscriptions with two paths, and its planted faults."""

from __future__ import annotations

from random import Random
from typing import Final

from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import LIMITED, commits, small_scenario, subscription


def two_paths(seed: int, random: Random) -> Scenario:
    """Rows go to the last site by the chain and by the root; the chain is cut, and in half of the runs more fails."""
    begin = random.uniform(3.0, 6.0)
    policies = random.choice(((None,), (None, LIMITED)))
    actions = [*commits(random, random.choice((0.1, 0.4)), random.choice((3, 12)))]
    limits = {"max_block": random.choice((700, 1 << 20)), "max_rows": random.choice((40, 100_000))}
    if random.random() < 0.5:
        actions.append(Action(begin, "sever", "s1", "s2", 2.3))
        policies, limits = (None,), {"max_block": limits["max_block"]}
    else:
        kinds = ("cut", "cut", "lossy", "kill", "pause", "fill_site", "flip_site", "replan", "move", "bandwidth")
        actions += [
            Action(random.uniform(1.0, 11.0), random.choice(kinds), random.choice(("s0", "s1", "s1", "s2")), "s2", 1.5)
            for _ in range(random.choice((2, 5, 9)))
        ]
    mine = [
        subscription("u0", "s2", paths=2, policy=random.choice(policies)),
        subscription("u1", "s2", policy=random.choice(policies)),
        subscription("u2", "s1", paths=random.choice((1, 2)), policy=random.choice(policies)),
    ]
    return small_scenario(seed, mine, actions, **limits)


DOUBLED_FAMILIES: Final = (two_paths,)
DOUBLED_MUTANTS: Final = (
    Mutant(
        "a second path is not asked for",
        "relay.silent_sites",
        "            self._ask(above, stream, serve=True)\n        state.seconds",
        "            pass\n        state.seconds",
    ),
)
