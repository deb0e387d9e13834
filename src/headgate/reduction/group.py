"""A group of receivers on a link: same class, same policy, one private queue."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.reduction.backlog import Backlog
from headgate.reduction.policy import Policy
from headgate.reduction.rows import Ints

NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Group:
    """Receivers with the same class and policy. `refs` are the positions of the private rows they keep.

    `came` and `left` are recent bytes in and out (a row counts for each of its k keepers 1/k), `boost` the correction
    of the group's share of the buffer that brings its share of the link to what is fair.
    """

    class_id: int
    policy: Policy
    weight: float
    priority: int
    backlog: Backlog
    receivers: list[str] = field(default_factory=list)
    came: float = 0.0
    left: float = 0.0
    boost: float = 1.0
    refs: Ints = field(default_factory=lambda: NO_ROWS)
    columns: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        # What the policy looks at; asked for in every pack.
        self.columns = self.policy.columns
