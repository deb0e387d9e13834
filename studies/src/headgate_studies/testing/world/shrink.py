"""From a schedule that breaks a promise to a small one that breaks the same promise."""

from __future__ import annotations

import re

from headgate_studies.testing.world.scenario import Scenario
from headgate_studies.testing.world.simulation import Simulation

_WORDS = 6


def kind_of(violation: str) -> str:
    """What was broken, without the numbers and names of one run.

    >>> kind_of("u1: a block after 12 follows the coverage 9") == kind_of("u3: a block after 4 follows the coverage 2")
    True
    """
    words = re.sub(r"\b[a-z]*\d[\d.]*\b|[^a-z ]", " ", violation.lower()).split()
    return " ".join(words[:_WORDS])


def shrink(scenario: Scenario, violation: str, tries: int = 200) -> frozenset[int]:
    """Places of actions that can be left out together while the same kind of promise is broken.

    Halves are left out first, then smaller and smaller pieces, as in delta debugging.
    """
    wanted = kind_of(violation)
    kept = list(range(len(scenario.actions)))
    everything = frozenset(kept)
    pieces = 2
    while tries > 0 and len(kept) > 1:
        size = max(len(kept) // pieces, 1)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            tries -= 1
            found = Simulation(scenario.without(everything - set(fewer))).run().violation
            if found is not None and kind_of(found) == wanted:
                kept, pieces = fewer, max(pieces - 1, 2)
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(kept))
    return everything - set(kept)
