"""What every kind of state can do, and which kind an objective needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from headgate.tuning.compile import Compiled
from headgate.tuning.states.additive import Additive
from headgate.tuning.states.extreme import Extreme
from headgate.tuning.states.prefix import Prefix, advance, start
from headgate.tuning.states.rows import Rows

__all__ = ["Algebra", "Prefix", "advance", "algebra_for", "start"]


class Algebra(Protocol):
    """States of sets of sites below a site, relative to it. `Any` is the algebra's own representation."""

    def empty(self) -> Any:
        """The state of no sites."""

    def single(self, weight: int, values: tuple[float, ...]) -> Any:
        """One site, relative to itself; `values` are its terms that no path change can touch (NaN for path terms)."""

    def union(self, parts: Iterable[Any]) -> Any:
        """The state of disjoint sets below the same site."""

    def extend(self, state: Any, local: tuple[float, ...]) -> Any:
        """Relative to one site further up, whose path-term local values these are."""

    def settle(self, state: Any, prefix: Prefix) -> Any:
        """The absolute result: what this set adds to the system cost under a prefix."""

    def merge(self, parts: Iterable[Any]) -> Any:
        """Absolute results of disjoint sets as one."""

    def own(self, weight: int, cost: float) -> Any:
        """The absolute result of one site whose cost is known (NaN: it has none)."""

    def finish(self, result: Any) -> float:
        """The system cost of an absolute result."""

    def size(self, state: Any) -> int:
        """Numbers in a state, for counting traffic."""


def algebra_for(compiled: Compiled) -> Algebra:
    """The smallest state that prices an objective (Table 1's types by Table 4's states)."""
    if compiled.combine is not None:
        return Rows(compiled)
    if compiled.function in ("sum", "average"):
        return Additive(compiled)
    if compiled.function in ("min", "max"):
        return Extreme(compiled)
    return Rows(compiled)


def aggregation_type(compiled: Compiled) -> str:
    """The type of the paper's Table 1 (I to VI), `local` without node aggregation, `multi` with several metrics."""
    if compiled.combine is not None:
        return "multi"
    term = compiled.terms[0]
    if term.kind == "local":
        return "local"
    rows = {"sum": 0, "average": 0, "min": 1, "max": 1}
    row = rows.get(compiled.function, 2)
    additive = term.function in ("sum", "average")
    return ("I", "II", "III", "IV", "V", "VI")[2 * row + (not additive)]
