"""Costs of everything outside of a subtree, as references to what others already hold.

Row states send every other site's cost (Table 4: O(|V|)). Here the parts are shared until somebody prices a unit;
their size on the wire is counted in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.tuning.overlay import Floats, Ints


@dataclass(frozen=True, slots=True)
class Rope:
    """What lies outside of the parent, the parent itself, and its other children's subtrees."""

    above: Rope | None
    own: tuple[Floats, Ints]
    branches: Sequence[tuple[Floats, Ints]]
    skip: int
    count: int

    def flat(self) -> tuple[Floats, Ints]:
        """All costs and weights as two arrays."""
        parts: list[tuple[Floats, Ints]] = []
        rope: Rope | None = self
        while rope is not None:
            parts.append(rope.own)
            parts.extend(part for index, part in enumerate(rope.branches) if index != rope.skip)
            rope = rope.above
        return np.concatenate([costs for costs, _ in parts]), np.concatenate([weights for _, weights in parts])


def flat(outside: Any) -> Any:
    """An outside result ready for an algebra."""
    return outside.flat() if isinstance(outside, Rope) else outside
