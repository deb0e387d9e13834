"""Families of scenarios about groups: members and dealers that die, stall, leave and come back, and their faults."""

from __future__ import annotations

from random import Random
from typing import Final

from headgate.model import GroupRule
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription


def group_of_members(seed: int, random: Random) -> Scenario:
    """A group of three members and an ordinary subscription; dealers, members and relays have troubles of all kinds."""
    kinds = (
        *("kill_member", "kill_member", "stall_member", "leave_member", "lossy_member", "hoard_rows"),
        *("kill_dealer", "two_dealers"),
    )
    others = ("kill", "flip_inbox", "fill_inbox", "move", "lossy_dealer", "pause")
    actions = [
        *commits(random, random.choice((0.15, 0.5)), random.choice((3, 12))),
        *(
            Action(random.uniform(0.8, 12.0), random.choice(kinds), "s1", number=random.uniform(0.3, 5.0))
            for _ in range(random.choice((3, 6, 12)))
        ),
        *(
            Action(random.uniform(1.0, 10.0), random.choice(others), "s1", random.choice(("s1", "s2")), 1.5)
            for _ in range(random.choice((0, 2, 4)))
        ),
    ]
    lease_s = random.choice((0.8, 2.0, 6.0))
    mine = [subscription("u0", "s1", group=GroupRule(lease_s=lease_s)), subscription("u1", "s2")]
    return small_scenario(
        seed, mine, actions, max_block=random.choice((400, 1 << 20)), delay_s=random.choice((0.02, 0.2))
    )


GROUP_FAMILIES: Final = (group_of_members,)
"""All families of this module."""
GROUP_MUTANTS: Final = (
    Mutant(
        "rows that a group is done with are dealt again by the next dealer",
        "gateway.dealer",
        "        tally.beyond = self.dealing.beyond()\n",
        "        tally.beyond = []\n",
    ),
    Mutant(
        "a member's acknowledgement is answered before it is stored",
        "gateway.dealer",
        "stored = not call.done or await self._store_now(max(until_s, self.now.monotonic_s + _STORE_S))",
        "stored = True",
    ),
    Mutant(
        "rows of a member that is gone are not dealt again",
        "gateway.dealing",
        "                kept.holder[kept.holder == gone.number] = _FREE\n",
        "                pass\n",
    ),
    Mutant(
        "a lease never ends",
        "gateway.dealing",
        "(kept.holder >= 0) & (kept.due_s <= now_s)",
        "(kept.holder >= 0) & (kept.due_s <= -1.0)",
    ),
    Mutant(
        "a lease that was renewed ends as if it was not",
        "gateway.dealing",
        "kept.handed[indices], kept.due_s[indices] = True, now_s + self.lease_s",
        "kept.handed[indices], kept.due_s[indices] = True, now_s",
    ),
    Mutant(
        "a group acknowledges what is dealt and not done",
        "gateway.dealing",
        "        return bool((self.holder == _DONE).all())\n",
        "        return bool((self.holder != _FREE).all())\n",
    ),
    Mutant(
        "acknowledgements of rows that a new dealer has not read yet are forgotten",
        "gateway.dealing",
        "                    self._foresee(seq, lost)\n",
        "                    pass\n",
    ),
)
