"""How the rows of a group are ranked for its members, by the expression that the group's rule has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError
from headgate.filters.ranking import Ranking, deal_ranking
from headgate.gateway.dealing import Rank
from headgate.model import Column, GroupRule, Schema
from headgate.model.group import ROUND_ROBIN


def rank_of(rule: GroupRule) -> Rank | None:
    """What ranks rows for members by a rule; None where they are dealt in turn."""
    return None if rule.deal == ROUND_ROBIN else GroupRanks(rule)


class GroupRanks:
    """Ranks rows by an expression; rows that lack a column of it suit everybody equally."""

    def __init__(self, rule: GroupRule) -> None:
        self._rule = rule
        self._schema: pa.Schema | None = None
        self._ranking: Ranking | None = None

    def __call__(self, rows: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.float64]:
        """One number per row; the member with the largest gets it."""
        if self._schema is None or not self._schema.equals(rows.schema):
            self._schema, self._ranking = rows.schema, self._parsed(rows.schema)
        return np.zeros(rows.num_rows) if self._ranking is None else self._ranking.evaluate(rows, context)

    def _parsed(self, schema: pa.Schema) -> Ranking | None:
        try:
            return deal_ranking(self._rule, Schema(tuple(Column(each.name, each.type) for each in schema)))
        except HeadgateError as error:  # its owner may no longer see a column
            SERVICE.warning("rows of a group are dealt in turn, as they lack what `deal` names: %s", error)
            return None
