"""What a client knows of its query: which site serves which parts, and what nobody serves yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.serving import messages as m
from headgate.grid.space import DzSpace


@dataclass(slots=True)
class Placement:
    """One query in the eyes of its client; `lacking` is the bandwidth that nobody serves, in finest cells."""

    demand: m.Demand
    asked_at: float
    lacking: int
    parts: dict[str, list[m.Parts]] = field(default_factory=dict)
    refused: bool = False
    complete_at: float | None = None

    def hear(self, space: DzSpace, message: m.ToSite | m.ToClient, now: float) -> None:
        """Take what a site says about the query."""
        match message:
            case m.ServedParts(site, parts):
                self.parts.setdefault(site, []).append(parts)
                self.lacking -= _weight(space, parts)
                if self.complete_at is None and self.lacking == 0:
                    self.complete_at = now
            case m.Left(site, parts):
                left = cells_of(space, self.parts.get(site, [])) - cells_of(space, [parts])
                self.parts.pop(site, None)
                self.lacking += _weight(space, parts)
                if left:
                    self.parts[site] = [m.Parts(parts.demand, *left.expressions())]
            case m.ServingRefused():
                self.refused = True


def _weight(space: DzSpace, parts: m.Parts) -> int:
    return int(parts.demand.weights(space, parts.codes, parts.lengths).sum())


def cells_of(space: DzSpace, parts: Iterable[m.Parts]) -> DzSet:
    """The cells that parts ask for."""
    listed = list(parts)
    empty = np.empty(0, dtype=np.int64)
    codes = np.concatenate([empty, *(part.codes for part in listed)])
    lengths = np.concatenate([empty, *(part.lengths for part in listed)])
    return DzSet.from_expressions(space, codes, lengths)
