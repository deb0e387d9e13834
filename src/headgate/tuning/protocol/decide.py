"""The root's choice among the proposals of a period (XPORT, sections 4.2.1 and 4.2.2)."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.tuning.compile import Compiled
from headgate.tuning.joint import adds_up
from headgate.tuning.protocol.messages import Proposal
from headgate.tuning.search import TOLERANCE


def joins(compiled: Compiled) -> bool:
    """Whether changes below different children of the root can only help each other: SUM, AVERAGE, MIN and MAX.

    For SUM and AVERAGE disjoint subtrees add up; for a bottleneck function the joint benefit is at least the smaller
    of the two. The other functions are changed one at a time.
    """
    return compiled.function in ("sum", "average", "min", "max")


def choose(compiled: Compiled, proposals: Iterable[Proposal], root: int, *, concurrent: bool) -> list[Proposal]:
    """What to carry out: the best, and where allowed every further one that is independent of the chosen."""
    ranked = sorted(
        proposals,
        key=lambda offer: (offer.at_random, -max(offer.relief, 0.0), -offer.benefit, offer.owner),
    )
    chosen: list[Proposal] = []
    busy: set[int] = set()
    branches: set[int] = set()
    for offer in ranked:
        if not offer.at_random and offer.relief <= TOLERANCE and offer.benefit <= 0:
            continue
        if chosen:
            if not concurrent or offer.touched & busy or offer.at_random:
                continue
            if not adds_up(compiled):
                apart = offer.branch not in branches and root not in offer.touched and root not in busy
                if not joins(compiled) or not apart:
                    continue
        chosen.append(offer)
        busy |= offer.touched
        branches.add(offer.branch)
    return chosen
