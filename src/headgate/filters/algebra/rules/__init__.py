"""Rewrite rules of `simplify`, one a file, in the order in which they run.

A rule takes a condition and gives one that is TRUE for the same rows. Rules see conditions that stand in AND and OR
alone, where FALSE and NULL select the same rows, namely none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headgate.filters.algebra.rules.absorb import absorb
from headgate.filters.algebra.rules.drop_implied import drop_implied
from headgate.filters.algebra.rules.drop_neutral import drop_neutral
from headgate.filters.algebra.rules.drop_repeats import drop_repeats
from headgate.filters.algebra.rules.fold_constants import fold_constants
from headgate.filters.algebra.rules.join_ranges import join_ranges
from headgate.filters.algebra.rules.order_operands import order_operands
from headgate.filters.algebra.rules.push_negation import push_negation
from headgate.filters.expr import Expr

Rule: TypeAlias = Callable[[Expr], Expr]

RULES: tuple[Rule, ...] = (
    push_negation,
    fold_constants,
    drop_neutral,
    drop_repeats,
    absorb,
    join_ranges,
    drop_implied,
    order_operands,
)

__all__ = ["RULES", "Rule"]
