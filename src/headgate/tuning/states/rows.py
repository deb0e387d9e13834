"""State for everything else: one row a dependent. Holistic functions, percentiles, several metrics at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from headgate.tuning.aggregate import system_cost
from headgate.tuning.compile import Compiled
from headgate.tuning.overlay import Floats, Ints
from headgate.tuning.states.prefix import Prefix

Costs: TypeAlias = tuple[Floats, Ints]


@dataclass(frozen=True, slots=True)
class Table:
    """Dependents as rows: `values[t]` is h for a path term and the term itself otherwise, `steps[t]` counts links."""

    weights: Ints
    values: Floats
    steps: Ints


class Rows:
    """Any objective, by keeping every dependent's row."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.paths = [index for index, term in enumerate(compiled.terms) if term.kind == "path"]
        self.start = np.array([_neutral(term.function, term.kind) for term in compiled.terms])
        count = len(compiled.terms)
        self.none = Table(np.empty(0, np.int64), np.empty((count, 0)), np.empty((count, 0), np.int64))
        self.nobody: Costs = (np.empty(0), np.empty(0, np.int64))

    def empty(self) -> Table:
        """The state of no sites."""
        return self.none

    def single(self, weight: int, values: tuple[float, ...]) -> Table:
        """One site."""
        if weight == 0:
            return self.none
        column = np.where([term.kind == "path" for term in self.compiled.terms], self.start, np.array(values))
        return Table(np.array([weight]), column[:, None], np.zeros((len(column), 1), np.int64))

    def union(self, parts: Iterable[Table]) -> Table:
        """The state of disjoint sets."""
        tables = [part for part in parts if len(part.weights)]
        if len(tables) < 2:
            return tables[0] if tables else self.none
        return Table(
            np.concatenate([table.weights for table in tables]),
            np.concatenate([table.values for table in tables], axis=1),
            np.concatenate([table.steps for table in tables], axis=1),
        )

    def extend(self, state: Table, local: tuple[float, ...]) -> Table:
        """One site further up."""
        if not len(state.weights) or not self.paths:
            return state
        values, steps = state.values.copy(), state.steps.copy()
        for index, value in zip(self.paths, local, strict=True):
            if value == value:
                steps[index] += 1
                values[index] = _join(self.compiled.terms[index].function, values[index], value)
        return Table(state.weights, values, steps)

    def settle(self, state: Table, prefix: Prefix) -> Costs:
        """Each dependent's cost under a prefix, and its weight."""
        if not len(state.weights):
            return self.nobody
        values = [state.values[index] for index in range(len(self.compiled.terms))]
        for index, (above, steps) in zip(self.paths, prefix, strict=True):
            function = self.compiled.terms[index].function
            joined = _join(function, values[index], above) if steps else values[index]
            counted = state.steps[index] + steps
            if function == "average":
                joined = joined / np.maximum(counted, 1)
            values[index] = np.where(counted > 0, joined, np.nan)
        if self.compiled.combine is None:
            return values[0], state.weights
        costs = np.asarray(self.compiled.combine(tuple(values)), dtype=np.float64)
        return (costs if costs.ndim else np.full(len(state.weights), float(costs))), state.weights

    def own(self, weight: int, cost: float) -> Costs:
        """One site whose cost is known."""
        return self.owns([weight], [cost])

    def owns(self, weights: list[int], costs: list[float]) -> Costs:
        """Sites whose costs are known."""
        return np.array(costs, dtype=np.float64), np.array(weights, dtype=np.int64)

    def merge(self, parts: Iterable[Costs]) -> Costs:
        """Costs of disjoint sets, one after the other."""
        found = [part for part in parts if len(part[1])]
        if len(found) < 2:
            return found[0] if found else self.nobody
        return np.concatenate([costs for costs, _ in found]), np.concatenate([weights for _, weights in found])

    def finish(self, result: Costs) -> float:
        """The system function of all costs."""
        return system_cost(self.compiled.function, *result)

    def size(self, state: Table) -> int:
        """Every value of every dependent, and its links counted where that matters."""
        counted = sum(self.compiled.terms[index].function == "average" for index in self.paths)
        return len(state.weights) * (len(self.compiled.terms) + counted)


def _neutral(function: str, kind: str) -> float:
    if kind != "path" or function in ("sum", "average"):
        return 0.0
    return float("inf") if function == "min" else float("-inf")


def _join(function: str, values: Floats, above: float) -> Floats:
    if function in ("sum", "average"):
        return values + above
    return np.minimum(values, above) if function == "min" else np.maximum(values, above)
