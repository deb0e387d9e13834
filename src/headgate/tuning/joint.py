"""What changes of different units bring together, and which demotions are worth pricing at all."""

from __future__ import annotations

import numpy as np

from headgate.tuning.compile import Compiled
from headgate.tuning.outlook import Outlook


def adds_up(compiled: Compiled) -> bool:
    """Whether benefits of independent changes simply add: SUM or AVERAGE of a sum over the path, or off the path.

    ERRATA, section 4.2.2: for everything else cost changes have to be superposed and aggregated again.
    """
    if compiled.combine is not None or compiled.function not in ("sum", "average"):
        return False
    term = compiled.terms[0]
    return term.kind != "path" or term.function == "sum"


def plain_latency(compiled: Compiled) -> str | None:
    """The link metric of a minimised sum (or average) of a plain sum of one link metric over the path, if it is one."""
    term = compiled.terms[0]
    single = adds_up(compiled) and term.kind == "path" and len(term.metrics) == 1 and compiled.sign > 0
    name = next(iter(term.metrics)) if single else ""
    return name if name in compiled.plain_links else None


def useful_demotions(outlook: Outlook, owner: int, metric: str) -> set[tuple[int, int]]:
    """Pairs (site, under) whose demotion shortens the way: all pairs of children at once, without pricing each.

    Only for `plain_latency` objectives, where a demotion changes every cost below the site by the same amount: the way
    through the sibling less the direct one. With a thousand children that leaves few of a million pairs.
    """
    children = np.array(outlook.shape.children[owner], dtype=np.int64)
    if len(children) < 2:
        return set()
    link = outlook.view.overlay.links[metric]
    direct = link.pairs(children, np.full(len(children), owner))
    found: set[tuple[int, int]] = set()
    for site, present in zip(children.tolist(), direct.tolist(), strict=True):
        through = direct + link.pairs(np.full(len(children), site), children)
        better = children[(through < present) & (children != site)]
        found.update((site, int(under)) for under in better)
    return found
