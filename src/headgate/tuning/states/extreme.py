"""State for bottleneck system functions, MIN and MAX: one extreme h, or one for each depth under AVERAGE."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headgate.tuning.compile import Compiled
from headgate.tuning.states.prefix import Prefix

# Extreme h by depth; the only key is 0 unless the node function is AVERAGE. Empty when no site is counted.
State: TypeAlias = Mapping[int, float]


class Extreme:
    """MIN and MAX over any single node cost.

    Bottleneck over bottleneck works with one value too: the largest of min(c, h_j) is min(c, largest h_j), so MAX over
    MIN keeps the largest h and MIN over MIN the smallest (ERRATA: g_i is the wrong one and contains the old link).
    """

    def __init__(self, compiled: Compiled) -> None:
        self.term = compiled.terms[0]
        self.kind = self.term.function if self.term.kind == "path" else ""
        self.pick = min if compiled.function == "min" else max
        self.worst = math.inf if compiled.function == "min" else -math.inf

    def empty(self) -> State:
        """The state of no sites."""
        return {}

    def single(self, weight: int, values: tuple[float, ...]) -> State:
        """One site."""
        if weight == 0:
            return {}
        if self.kind:
            return {0: 0.0 if self.kind in ("sum", "average") else (math.inf if self.kind == "min" else -math.inf)}
        return {} if values[0] != values[0] else {0: values[0]}

    def union(self, parts: Iterable[State]) -> State:
        """The state of disjoint sets."""
        merged: dict[int, float] = {}
        for part in parts:
            for depth, value in part.items():
                have = merged.get(depth)
                merged[depth] = value if have is None else self.pick(have, value)
        return merged

    def extend(self, state: State, local: tuple[float, ...]) -> State:
        """One site further up."""
        if not self.kind or local[0] != local[0]:
            return state
        value = local[0]
        if self.kind == "sum":
            return {depth: found + value for depth, found in state.items()}
        if self.kind == "average":
            return {depth + 1: found + value for depth, found in state.items()}
        closer = min if self.kind == "min" else max
        return {depth: closer(found, value) for depth, found in state.items()}

    def settle(self, state: State, prefix: Prefix) -> float:
        """The extreme cost of the set; the neutral value when it is empty."""
        if not state:
            return self.worst
        if not self.kind:
            return state[0]
        above, steps = prefix[0]
        if self.kind == "sum":
            return state[0] + above
        if self.kind == "average":
            return self.pick((total + above) / (steps + depth) for depth, total in state.items())
        if steps == 0:
            return state[0]
        return (min if self.kind == "min" else max)(above, state[0])

    def own(self, weight: int, cost: float) -> float:
        """One site whose cost is known."""
        return cost if weight and cost == cost else self.worst

    def merge(self, parts: Iterable[float]) -> float:
        """The extreme of disjoint sets."""
        return self.pick(parts, default=self.worst)

    def finish(self, result: float) -> float:
        """The extreme itself; NaN when nothing was counted."""
        return math.nan if result == self.worst else result

    def size(self, state: State) -> int:
        """One number, or one for each depth."""
        return max(1, len(state)) if self.kind != "average" else 2 * max(1, len(state))
