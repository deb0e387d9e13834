"""Objectives over what a site does in all its trees, priced by the unit of one tree.

A child more in one tree costs a site matching time in all of them, and with it everybody who hangs below the site in
another tree. Where such costs add up and grow in proportion, a site knows what one more child or byte costs in each of
its trees (`pull`, from the number of dependents there), tells the sum with its facts, and a unit adds it to a change.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headgate.tuning.arrangement import Arrangement
from headgate.tuning.benefit import Pricer
from headgate.tuning.compile import Compiled
from headgate.tuning.evaluate import SITE_WIDE
from headgate.tuning.overlay import Bits
from headgate.tuning.states import Additive, algebra_for

STEPS: Mapping[str, float] = {"fanout": 1.0, "outgoing_rate": 1e6, "incoming_rate": 1e6, "matched_rate": 1e6}
"""What changes with the shape of a tree, and by how much it is varied to see what it costs."""
PULL = "pull "
_ADDS = frozenset({"fanout", "outgoing_rate", "matching_cpu"})
_DRAWS = 3


def pulls(compiled: Compiled) -> bool:
    """Whether an objective depends on what sites do in other trees."""
    return bool(compiled.metrics & SITE_WIDE)


def proportional(compiled: Compiled) -> bool:
    """Whether costs of several trees add up and grow in proportion to what sites do: then pulls are exact."""
    algebra, term = algebra_for(compiled), compiled.terms[0]
    if not isinstance(algebra, Additive) or term.kind == "children" or (term.kind == "path" and term.function != "sum"):
        return False
    return compiled.metrics & SITE_WIDE <= _ADDS and _straight(compiled)


class _Given:
    """A site whose metrics are given, to see how a local value depends on them."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values

    def metric(self, name: str) -> float:
        return self.values.get(name, 1.0)

    def state(self, name: str) -> Bits:  # noqa: ARG002 - every profile is the same here
        return np.ones(1, dtype=np.bool_)

    def size(self, profile: Bits) -> float:  # noqa: ARG002 - and worth the same
        return 1.0


def _straight(compiled: Compiled) -> bool:
    """Whether equal steps of the metrics that count all trees change the local value equally, wherever they start."""
    generator = np.random.default_rng(0)
    for _ in range(_DRAWS):
        values = {name: float(generator.uniform(1.0, 9.0)) for name in sorted(compiled.metrics)}
        step = {name: float(generator.uniform(1.0, 9.0)) for name in sorted(compiled.metrics & SITE_WIDE)}
        found = [
            float(compiled.terms[0].value(_Given({**values, **{name: values[name] + k * step[name] for name in step}})))
            for k in range(3)
        ]
        if not abs(found[2] - 2 * found[1] + found[0]) <= 1e-9 * max(1.0, *map(abs, found)):
            return False
    return True


def cost_elsewhere(pricer: Pricer, moves: tuple[tuple[int, int], ...]) -> float:
    """What a change adds to the objective in the other trees of the sites that it touches."""
    unit, now = pricer.unit, pricer.now
    after = Arrangement(unit, now.setting, now.measure, dict(moves), now, pricer.compiled.needs_profiles)
    total = 0.0
    for site in after.dirty & unit.members.keys():
        facts = unit.members[site].facts.elsewhere
        was, becomes = _share(now, site, pricer.compiled), _share(after, site, pricer.compiled)
        total += sum((becomes[name] - was[name]) * facts.get(PULL + name, 0.0) for name in was)
    if not (isinstance(pricer.algebra, Additive) and pricer.algebra.average):
        return total
    return total / float(pricer.algebra.merge([unit.outside, pricer.inside])[0])


def _share(at: Arrangement, site: int, compiled: Compiled) -> dict[str, float]:
    frontier, children = at.member(site).frontier, at.children(site)
    found = {"fanout": float(frontier.fanout + len(children))}
    if compiled.needs_profiles:
        matched = at.rate(site)
        found["outgoing_rate"] = frontier.rate + sum(at.rate(child) for child in children)
        found["matched_rate"] = matched
        found["incoming_rate"] = 0.0 if at.parent(site) < 0 else matched
    return found
