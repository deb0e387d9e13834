"""Statistics approximation (XPORT, section 3.2.4): sites that matter more send their statistics more often.

A site takes part in every (w * p)-th phase. Additive node functions: w is the number of all sites over the number at
and below the site (counting itself: a leaf would divide by zero). Bottleneck node functions: w is the distance of the
site's local value from the bottleneck of all its dependents, itself included, in units of that bottleneck, and at least
one phase (ERRATA). So the site that is the bottleneck of those below it sends in every phase.
"""

from __future__ import annotations

import math

from headgate.tuning.protocol.neighbourhood import ROOT, Neighbourhood
from headgate.tuning.states.rows import Table


def weight(here: Neighbourhood) -> float:
    """The weight of a site: small when its statistics matter."""
    compiled = here.costs[0]
    term = next((term for term in compiled.terms if term.kind == "path"), None)
    if term is not None and term.function in ("min", "max") and compiled.combine is None:
        local = here.local()[0][0]
        if math.isnan(local):
            return 1.0
        bottleneck = _bottleneck(here, local, term.function)
        return abs(local - bottleneck) / max(abs(bottleneck), 1e-12)
    total = here.surroundings.total if here.surroundings is not None else here.sites()
    return total / here.sites()


def _bottleneck(here: Neighbourhood, local: float, function: str) -> float:
    """The bottleneck of a site's dependents: over the path down to it, its own value, and everything below it."""
    state = here.frontier(0).state
    below: list[float]
    if isinstance(state, Table):
        below = state.values[0].tolist()
    else:  # bottlenecks themselves are what states of bottleneck paths are kept by
        below = list(state) if here.costs[0].function in ("sum", "average") else list(state.values())
    above = [value for value, links in here.above()[0][:1] if links]
    known = [local, *above, *below]
    return min(known) if function == "min" else max(known)


def period_of(here: Neighbourhood, constant: float | None) -> int:
    """Every how many phases a site sends its statistics; the root always does."""
    if constant is None or here.parent == ROOT:
        return 1
    return max(1, min(1000, round(weight(here) * constant)))
