"""Statistics approximation (XPORT, section 3.2.4): sites that matter more send their statistics more often.

A site takes part in every (w * p)-th phase. Additive node functions: w is the number of all sites over the number at
and below the site (counting itself: a leaf would divide by zero). Bottleneck node functions: w is the distance of the
site's local value from its dependents' extreme, in units of that extreme, and at least one phase (ERRATA).
"""

from __future__ import annotations

import math

from headgate.tuning.protocol.neighbourhood import ROOT, Neighbourhood


def weight(here: Neighbourhood) -> float:
    """The weight of a site: small when its statistics matter."""
    compiled = here.costs[0]
    term = next((term for term in compiled.terms if term.kind == "path"), None)
    if term is not None and term.function in ("min", "max") and compiled.combine is None:
        local = here.local()[0][0]
        below = [child.report.local[0][0] for child in here.children.values()]
        if not below or math.isnan(local):
            return 1.0
        extreme = min(below) if term.function == "min" else max(below)
        return abs(local - extreme) / max(abs(extreme), 1e-12)
    total = here.surroundings.total if here.surroundings is not None else here.sites()
    return total / here.sites()


def period_of(here: Neighbourhood, constant: float | None) -> int:
    """Every how many phases a site sends its statistics; the root always does."""
    if constant is None or here.parent == ROOT:
        return 1
    return max(1, min(1000, round(weight(here) * constant)))
