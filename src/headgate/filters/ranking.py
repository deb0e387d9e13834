"""Numbers from rows: an expression of the filter language that is larger where a row suits somebody better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.errors import FilterError
from headgate.filters.evaluate import Scope, evaluate
from headgate.filters.expr import Expr
from headgate.filters.filter import context_types
from headgate.filters.limits import check_limits
from headgate.filters.parser import Parser
from headgate.filters.types import BOOL, DOUBLE, FLOAT, NULL, is_integer, name_of
from headgate.model import GroupRule, Schema
from headgate.model.group import ROUND_ROBIN


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well a row suits somebody, by the values of its columns and of somebody's context."""

    expr: Expr

    def evaluate(self, rows: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """One number per row, larger is better; TRUE is 1, FALSE 0, and what is unknown comes last."""
        with np.errstate(all="ignore"):
            found = evaluate(self.expr, Scope(rows, context))
            numbers = np.asarray(found.values, dtype=np.float64)
        unknown = np.isnan(numbers) if found.null is None else np.isnan(numbers) | found.null
        return np.array(np.broadcast_to(np.where(unknown, -np.inf, numbers), rows.num_rows))


def parse_ranking(text: str, schema: Schema, context: Mapping[str, Any]) -> Ranking:
    """The ranking that a text means over rows of a schema; `context` has the values that `$name` may refer to.

    >>> near = parse_ranking("$free - load", Schema.of({"load": "int"}), {"free": 0.0})
    >>> near.evaluate(pa.record_batch({"load": [1, None]}), {"free": 4.0}).tolist()
    [3.0, -inf]
    """
    found = Parser(check_limits(text), schema, context_types(context)).parse_value()
    if found.type not in (BOOL, DOUBLE, FLOAT, NULL) and not is_integer(found.type):
        raise FilterError(
            f"rows are ranked by a number, not by a {name_of(found.type)}", text, hint="CAST(... AS double)"
        )
    return Ranking(found)


def deal_ranking(rule: GroupRule, schema: Schema) -> Ranking | None:
    """How the rows of a group are ranked for each member; None where they are dealt in turn."""
    return None if rule.deal == ROUND_ROBIN else parse_ranking(rule.deal, schema, rule.context)
