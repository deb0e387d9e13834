"""Shedding evenly: every link of a site and every class on it loses the same part, as the planner's model says.

In the model (QASD section 4.2) a site whose links need more than its upload passes upload / need of every row. Relays
get there without knowing any need: outputs that share a budget go in the order of how long their rows have waited, so
they wait equally long, and what waits longer than `shed_after_s` is thinned by a part that grows with the wait. So all
outputs behind one bottleneck are thinned alike, and one behind a narrower link of its own more. Under an overload of up
to ten times the wait settles between once and about twice `shed_after_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

# Queues are thinned each quarter of `shed_after_s` by a quarter of how far the wait is past it: gently, so that small
# differences between waits make small differences in what is shed. Waits that differ by less than `NEAR` are one.
EVERY = 0.25
BY = 0.25
NEAR = 1.2
LEAST = 0.5
GOLDEN = 0.6180339887498949


def wait_of(passed: float, shed_after_s: float) -> float:
    """How long rows wait, in seconds, where a part of them passes and the rest is shed evenly; 0 where all pass.

    Rows that wait for w times `shed_after_s` are thinned 1 / EVERY times while each such wait passes, each time to the
    part that `Evenly` keeps at that wait; the wait settles where what is left of them is what passes.

    >>> round(wait_of(0.3, 2.0), 1), wait_of(1.0, 2.0)
    (3.3, 0.0)
    """
    if passed >= 1.0:
        return 0.0
    low, high = 1.0, 1.0 + (1.0 - LEAST) / BY
    for _ in range(40):
        middle = (low + high) / 2
        left = (1.0 - BY * (middle - 1.0)) ** (middle / EVERY)
        low, high = (middle, high) if left > passed else (low, middle)
    return low * shed_after_s


class Evenly:
    """When the outputs of a site are thinned, and to what part each.

    >>> evenly = Evenly(2.0)
    >>> evenly.parts({"a": 3.0, "b": 2.9, "c": 1.0}, now=10.0)
    {'a': 0.875, 'b': 0.875}
    """

    def __init__(self, shed_after_s: float) -> None:
        self._after_s = shed_after_s
        self._next_s = 0.0
        self._round = 0

    def parts(self, waits: Mapping[K, float], now: float) -> dict[K, float]:
        """What part each output keeps of what it holds, now, by the waits of all outputs; most often nothing is due."""
        if now < self._next_s or max(waits.values(), default=0.0) <= self._after_s:
            return {}
        # Not in step with the blocks, which come at a fixed interval: else some were thinned once more than others.
        self._round += 1
        self._next_s = now + self._after_s * EVERY * (0.5 + self._round * GOLDEN % 1.0)
        found = {}
        for key, wait in waits.items():
            level = max(other for other in waits.values() if other <= wait * NEAR)
            if level > self._after_s:
                found[key] = max(1.0 - BY * (level / self._after_s - 1.0), LEAST)
        return found
