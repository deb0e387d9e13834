"""The cores of a site, one for each tree that it is in, made from what home tells it."""

from __future__ import annotations

import math
from collections.abc import Callable

from headgate.protocol.tuning import TreeBrief, TuningBrief
from headgate.tuning.arrangement import Setting
from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.language.vocabulary import Vocabulary
from headgate.tuning.protocol.host import Host, Station
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.protocol.site import SiteAgent
from headgate.tuning.transformations import STANDARD, WIDE, installed
from headgate.tuning.unit import Facts

MODES = ("opportunistic", "random", "concurrent")
SILENT_S = 5.0
"""A neighbour is gone after three maintenance periods without a word, and never sooner than after so long."""
RANDOM_SHARE = 0.05
"""How often a unit proposes a random change besides its best one, in the mode `random`."""


def settings_of(brief: TuningBrief, tree: TreeBrief) -> TuningSettings:
    """What all sites agree on, for one tree."""
    words = Vocabulary.installed()
    return TuningSettings(
        compile_objective(brief.objective, words),
        Setting(tree.sizing),
        tuple(compile_constraint(text, words) for text in brief.constraints),
        (*(STANDARD if brief.levels == 3 else WIDE), *installed()),
        brief.levels,
        brief.maintenance_s,
        brief.optimisation_s,
        max(3, math.ceil(SILENT_S / brief.maintenance_s)),
        mode="opportunistic" if "opportunistic" in brief.modes else "bottleneck",
        concurrent="concurrent" in brief.modes,
        random_share=RANDOM_SHARE if "random" in brief.modes else 0.0,
        approximate=brief.approximate,
        joins=None if brief.joins is None else frozenset(brief.joins),
    )


def cores_of(brief: TuningBrief, measure: Callable[[str, int], float]) -> dict[int, SiteAgent]:
    """The cores of the trees that a site is in, by the number of the tree."""
    host, cores = Host(), {}
    roots = [tree.root for tree in brief.trees]
    for number, tree in enumerate(brief.trees):
        if not tree.member:
            continue
        settings = settings_of(brief, tree)
        station = None
        if len(brief.trees) > 1:
            others = tuple((other, root) for other, root in enumerate(roots) if other != number)
            station = Station(number, host, (0, roots[0]), others)
        counted = {"brokers": 1, "clients": tree.clients, "brokers-clients": 1 + tree.clients}
        weights = tuple(counted[compiled.over] for compiled in settings.costs)
        facts = Facts(1, tree.clients, tree.profile, dict(tree.constants))
        cores[number] = SiteAgent(
            brief.number, facts, weights, settings, measure, seed=brief.run % (1 << 31), station=station
        )
    return cores
