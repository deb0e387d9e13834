"""Policies: what a receiver gives up first, in ordered levels, and what it is told about it (PACK section 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.reduction.digesters import Digester
from headgate.reduction.filters import ReductionFilter
from headgate.reduction.filters.max_age import MaxAge
from headgate.reduction.filters.random import Random

CONTROLLERS = ("ladder", "deficit")
DEFAULT_CONTROLLER = "deficit"


@dataclass(frozen=True, slots=True)
class Level:
    """One step of giving up: filters that are applied together, in order, after those of the levels before."""

    filters: tuple[ReductionFilter, ...]

    @property
    def label(self) -> str:
        """The names of its filters."""
        return "+".join(found.name for found in self.filters)

    @property
    def as_needed(self) -> bool:
        """Whether one of its filters drops as many rows as have to go."""
        return any(found.as_needed for found in self.filters)

    @property
    def rewrites(self) -> bool:
        """Whether one of its filters changes the values of rows."""
        return any(found.rewrites for found in self.filters)

    @property
    def newest_first(self) -> bool:
        """Whether one of its filters prefers new rows to old ones."""
        return any(found.newest_first for found in self.filters)


@dataclass(frozen=True, slots=True)
class Policy:
    """Ordered levels, digesters, and how the level is chosen. After the last level the oldest rows go.

    `automatic` lets the queue reorder the levels by what it measures. `max_age` holds always, not only under pressure.
    `headroom` is the part of the queue that a pack leaves free at least. `text` is the canonical document: policies
    with equal text are equal and share one queue.
    """

    levels: tuple[Level, ...]
    digesters: tuple[Digester, ...] = ()
    controller: str = DEFAULT_CONTROLLER
    automatic: bool = False
    max_age: MaxAge | None = None
    headroom: float = 0.1
    max_rows: int | None = None
    max_bytes: float | None = None
    text: str = field(default="default")

    @property
    def columns(self) -> frozenset[str]:
        """The columns that a queue needs beside the selected ones to apply the policy."""
        found = {path.split(".")[0] for digester in self.digesters for path in digester.columns}
        for level in self.levels:
            for each in level.filters:
                found |= each.reads()
        if self.max_age is not None:
            found |= self.max_age.reads()
        return frozenset(found)

    @property
    def random_seed(self) -> int | None:
        """The seed of a policy that only drops at random, as much as needed; None for any other."""
        first = self.levels[0].filters if self.levels else ()
        only = first[0] if len(first) == 1 else None
        return only.seed if isinstance(only, Random) and only.fraction is None else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def default_policy() -> Policy:
    """Drop at random, as much as needed, and count it."""
    return Policy((Level((Random(None, 0),)),))


def canonical(document: Mapping[str, Any]) -> str:
    """One text for documents that say the same in another order of keys."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
