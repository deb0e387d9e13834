"""The root's choice among the proposals of a period (XPORT, sections 4.2.1 and 4.2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headgate.tuning.compile import Compiled
from headgate.tuning.constraints import CompiledConstraint
from headgate.tuning.joint import adds_up
from headgate.tuning.overlay import Floats, Ints
from headgate.tuning.protocol.messages import Proposal
from headgate.tuning.protocol.superpose import superposed
from headgate.tuning.search import TOLERANCE


def joins(compiled: Compiled) -> bool:
    """Whether changes below different children of the root can only help each other: SUM, AVERAGE, MIN and MAX.

    For SUM and AVERAGE disjoint subtrees add up; for a bottleneck function the joint benefit is at least the smaller
    of the two. For the others the root superposes what each exchanges.
    """
    return compiled.function in ("sum", "average", "min", "max")


def side_by_side(limits: Iterable[CompiledConstraint]) -> bool:
    """Whether changes of disjoint subtrees that each keep the limits keep them together: bounds on every site do.

    Two changes may use up the same slack of a bound on the whole system, so under one they run one at a time.
    """
    return all(limit.by_site for limit in limits)


def choose(
    compiled: Compiled,
    proposals: Iterable[Proposal],
    root: int,
    *,
    concurrent: bool,
    limits: Sequence[CompiledConstraint] = (),
    total: tuple[Floats, Ints] | None = None,
) -> list[Proposal]:
    """What to carry out: the best, and where allowed every further one that is independent of the chosen.

    `total` holds every site's cost and weight as the root knows them, for objectives whose joint benefit has to be
    superposed. Under limits, and wherever benefits do not simply add, only changes below different children of the
    root that leave the root alone run side by side.
    """
    ranked = sorted(
        proposals,
        key=lambda offer: (offer.at_random, -max(offer.relief, 0.0), -offer.benefit, offer.owner),
    )
    concurrent = concurrent and side_by_side(limits)
    chosen: list[Proposal] = []
    busy: set[int] = set()
    branches: set[int] = set()
    joint = math.nan
    for offer in ranked:
        if not offer.at_random and offer.relief <= TOLERANCE and offer.benefit <= 0:
            continue
        after = offer.after
        if chosen:
            if not concurrent or offer.touched & busy or offer.at_random or chosen[0].at_random:
                continue
            apart = offer.branch not in branches and root not in offer.touched and root not in busy
            if not apart and (limits or not adds_up(compiled)):
                continue
            if not joins(compiled):
                both = _joint(compiled, [*chosen, offer], total)
                if both is None or (compiled.better(joint, both) <= 0 and offer.relief <= TOLERANCE):
                    continue
                after = both
        chosen.append(offer)
        busy |= offer.touched
        branches.add(offer.branch)
        joint = after
    return chosen


def _joint(compiled: Compiled, offers: list[Proposal], total: tuple[Floats, Ints] | None) -> float | None:
    """The system cost after all of them; None where it cannot be told."""
    changes = [offer.change for offer in offers if offer.change is not None]
    if total is None or len(changes) < len(offers):
        return None
    return superposed(compiled.function, total, changes)
