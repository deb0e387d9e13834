"""Constraints as violations: 0 where a bound holds, and how far it is missed where it does not.

A bound on every site, and `max(...) <=` or `min(...) >=` over a set, become the sum of the sites' violations, so that
each step towards holding shows; any other bound on the system is the distance of the system cost from its threshold.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from headgate.tuning.compile import Compiled, compile_system
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.language.parser import parse_constraint
from headgate.tuning.language.syntax import Constraint, Number, SystemCost
from headgate.tuning.language.vocabulary import BUILT_IN, Vocabulary


@dataclass(frozen=True, slots=True)
class CompiledConstraint:
    """A compiled constraint. `by_site` limits sum their violations in `compiled` itself.

    `value` is what is bounded, without the bound, and `threshold` the bound as it was written.
    """

    text: str
    compiled: Compiled
    by_site: bool
    miss: Callable[[Any], Any]
    value: Compiled
    threshold: Number

    def violation(self, cost: float) -> float:
        """How far a system cost of `compiled` misses the bound; 0 when it holds or when there is nothing to bound."""
        if np.isnan(cost):
            return 0.0
        return cost if self.by_site else float(self.miss(cost))

    def of(self, views: TreeView | list[TreeView]) -> float:
        """The violation on whole trees."""
        return self.violation(evaluate(self.compiled, views))


def compile_constraint(constraint: Constraint | str, vocabulary: Vocabulary = BUILT_IN) -> CompiledConstraint:
    """Compile a constraint.

    >>> compile_constraint("fanout <= 6").by_site
    True
    """
    if isinstance(constraint, str):
        constraint = parse_constraint(constraint, vocabulary)
    metric, operator = constraint.metric, constraint.operator
    miss = _miss(operator, constraint.threshold.value)
    if isinstance(metric, SystemCost):
        uniform = (metric.function == "max" and operator in ("<", "<=")) or (
            metric.function == "min" and operator in (">", ">=")
        )
        if not uniform:
            compiled = compile_system(metric, constraint.definitions, vocabulary, text=str(constraint))
            return CompiledConstraint(str(constraint), compiled, False, miss, compiled, constraint.threshold)
        system = SystemCost("sum", metric.cost, metric.over)
    else:
        system = SystemCost("sum", metric, "brokers")
    compiled = compile_system(system, constraint.definitions, vocabulary, text=str(constraint))
    return CompiledConstraint(str(constraint), _missing(compiled, miss), True, miss, compiled, constraint.threshold)


def _missing(compiled: Compiled, miss: Callable[[Any], Any]) -> Compiled:
    """The same cost with every site's value replaced by its violation."""
    inner = compiled.combine
    if inner is None and compiled.terms[0].kind == "local":
        term = compiled.terms[0]
        value = term.value
        return replace(compiled, terms=(replace(term, value=lambda view: miss(value(view))),))
    if inner is None:
        return replace(compiled, combine=lambda values: miss(values[0]))
    return replace(compiled, combine=lambda values: miss(inner(values)))


def _miss(operator: str, threshold: float) -> Callable[[Any], Any]:
    """The violation of one value. A strict bound that is just met is missed by a hair."""
    hair = 1e-12 * max(1.0, abs(threshold))
    compare = _HOLDS[operator]

    def miss(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            distance = 1.0 if operator == "!=" else np.maximum(np.abs(value - threshold), hair)
            return np.where(np.isnan(value), np.nan, np.where(compare(value, threshold), 0.0, distance))
        if value != value or compare(value, threshold):
            return value if value != value else 0.0
        return 1.0 if operator == "!=" else max(abs(value - threshold), hair)

    return miss


_HOLDS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "<=": operators.le,
        "<": operators.lt,
        ">=": operators.ge,
        ">": operators.gt,
        "==": operators.eq,
        "!=": operators.ne,
    }
)
