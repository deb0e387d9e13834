"""State for additive system functions, SUM and AVERAGE: counts, sums, and for bottleneck paths the paper's T_i."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headgate.tuning.compile import Compiled
from headgate.tuning.states.prefix import Prefix

# Groups of dependents that a change above treats alike: key -> (sites counted, sum of h).
# The key is 0 for SUM and for terms off the path, h itself for MIN and MAX, the depth for AVERAGE.
State: TypeAlias = Mapping[float, tuple[float, float]]
Total: TypeAlias = tuple[float, float]


class Additive:
    """SUM and AVERAGE over any single node cost."""

    def __init__(self, compiled: Compiled) -> None:
        self.term = compiled.terms[0]
        self.average = compiled.function == "average"
        self.kind = self.term.function if self.term.kind == "path" else ""
        self.nothing = float("inf") if self.kind == "min" else float("-inf")

    def empty(self) -> State:
        """The state of no sites."""
        return {}

    def single(self, weight: int, values: tuple[float, ...]) -> State:
        """One site."""
        if weight == 0:
            return {}
        if self.kind in ("min", "max"):
            return {self.nothing: (weight, 0.0)}
        if self.kind:
            return {0: (weight, 0.0)}
        value = values[0]
        return {} if value != value else {0: (weight, weight * value)}

    def union(self, parts: Iterable[State]) -> State:
        """The state of disjoint sets."""
        merged: dict[float, tuple[float, float]] = {}
        for part in parts:
            for key, (count, total) in part.items():
                have = merged.get(key)
                merged[key] = (count, total) if have is None else (have[0] + count, have[1] + total)
        return merged

    def extend(self, state: State, local: tuple[float, ...]) -> State:
        """One site further up."""
        if not self.kind or local[0] != local[0]:
            return state
        value = local[0]
        if self.kind == "sum":
            return {key: (count, total + value * count) for key, (count, total) in state.items()}
        if self.kind == "average":
            return {key + 1: (count, total + value * count) for key, (count, total) in state.items()}
        closer = min if self.kind == "min" else max
        merged: dict[float, tuple[float, float]] = {}
        for key, (count, _) in state.items():
            now = closer(key, value)
            merged[now] = (merged.get(now, (0.0, 0.0))[0] + count, 0.0)
        return merged

    def settle(self, state: State, prefix: Prefix) -> Total:
        """Sites counted and the sum of their costs under a prefix."""
        counted = sum(count for count, _ in state.values())
        if not self.kind:
            return counted, sum(total for _, total in state.values())
        above, steps = prefix[0]
        if self.kind == "sum":
            return counted, sum(total + above * count for count, total in state.values())
        if self.kind == "average":
            return counted, sum(
                (total + above * count) / (steps + depth) for depth, (count, total) in state.items() if steps + depth
            )
        if steps == 0:
            return counted, sum(value * count for value, (count, _) in state.items())
        closer = min if self.kind == "min" else max
        return counted, sum(closer(above, value) * count for value, (count, _) in state.items())

    def change(self, state: State, before: Prefix, after: Prefix) -> float:
        """Cost change of the dependents when their site's prefix changes: the corrected equations of section 3.2.2.

        SUM over SUM: the change times the number of dependents. SUM over MIN, decrease from c to c': the sum over
        h >= c' of (c' - min(c, h)); increase: over h >= c' of (c' - c), and over c < h < c' of (h - c). MAX is the
        mirror image. AVERAGE: the quotient with sum and depth changed, less the old quotient.
        """
        if not self.kind or before == after:
            return 0.0
        (old, steps), (new, steps_after) = before[0], after[0]
        if self.kind == "sum":
            return (new - old) * sum(count for count, _ in state.values())
        if self.kind == "average":
            return sum(
                (total + new * count) / (steps_after + depth) - (total + old * count) / (steps + depth)
                for depth, (count, total) in state.items()
            )
        sign = 1.0 if self.kind == "min" else -1.0
        low, high = sign * old, sign * new
        change = 0.0
        for value, (count, _) in state.items():
            h = sign * value
            if high < low:
                change += (high - min(low, h)) * count if h >= high else 0.0
            elif h >= high:
                change += (high - low) * count
            elif h > low:
                change += (h - low) * count
        return sign * change

    def own(self, weight: int, cost: float) -> Total:
        """One site whose cost is known."""
        return (float(weight), weight * cost) if weight and cost == cost else (0.0, 0.0)

    def merge(self, parts: Iterable[Total]) -> Total:
        """Totals of disjoint sets."""
        counted, total = 0.0, 0.0
        for part in parts:
            counted, total = counted + part[0], total + part[1]
        return counted, total

    def finish(self, result: Total) -> float:
        """The sum, or the average of the sites counted."""
        counted, total = result
        if not self.average:
            return total
        return total / counted if counted else float("nan")

    def size(self, state: State) -> int:
        """Two numbers a group: one group for SUM, one a distinct h for MIN and MAX, one a depth for AVERAGE."""
        return 2 * max(1, len(state))
