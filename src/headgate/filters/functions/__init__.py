"""The functions of the filter language, each an entry of one table that feeds parser, evaluator and reference."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headgate.filters.expr import Call, Expr
from headgate.filters.functions import general, nested, numeric, spatial, temporal, text
from headgate.filters.functions.base import Function

TABLE: tuple[Function, ...] = (
    *numeric.FUNCTIONS,
    *text.FUNCTIONS,
    *general.FUNCTIONS,
    *temporal.FUNCTIONS,
    *nested.FUNCTIONS,
    *spatial.FUNCTIONS,
)
FUNCTIONS: Mapping[str, Function] = MappingProxyType({name: entry for entry in TABLE for name in entry.names})
DATE_PARTS = frozenset(name for entry in temporal.FUNCTIONS for name in entry.names)


def call(name: str, args: tuple[Expr, ...]) -> Expr:
    """A typed call of a known function, by its canonical name."""
    function = FUNCTIONS[name]
    resolved, kind = function.resolve(args)
    return Call(kind, function.names[0], resolved)


__all__ = ["DATE_PARTS", "FUNCTIONS", "TABLE", "Function", "call"]
