"""Control for the Spark job, which sees whole micro-batches: which rows of a batch are admitted.

The job matches in batches anyway; what is left to decide is how many rows it may keep so that their age stays within
the bound. The choice depends only on the batch and the seed, so a replayed batch sheds the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.batching import ORDERS
from headgate.matching.index import MatchingError

# The methods of a deployment file, and whether they shed rows of a micro-batch.
GATES: Mapping[str, bool] = {"traditional": False, "batch": False, "shed": True, "hybrid": True}

_OPTIONS = ("seed", "settle", "order", "arrived")


@dataclass(frozen=True, slots=True)
class Gated:
    """Which rows are kept, and how many are not."""

    keep: npt.NDArray[np.bool_]
    shed: int


@dataclass(frozen=True, slots=True)
class BatchGate:
    """Admits what the bound allows. `settle` is the share of the remaining time that is planned with."""

    method: str
    bound_s: float | None
    seed: int = 0
    settle: float = 0.9

    def __post_init__(self) -> None:
        if self.method not in GATES:
            raise MatchingError(f"no admission method {self.method!r}", hint="methods are " + ", ".join(GATES))
        if GATES[self.method] and not (self.bound_s and self.bound_s > 0):
            raise MatchingError(
                f"admission by {self.method!r} needs a latency bound",
                where="admission",
                hint="write for example `bound: 5 s`",
            )

    @classmethod
    def of(cls, method: str, bound_s: float | None, options: Mapping[str, Any]) -> BatchGate:
        """The gate of a stream's admission entry; an option that it does not know or cannot use is refused.

        >>> BatchGate.of("shed", 2.0, {"settel": 0.5})
        Traceback (most recent call last):
        headgate.matching.index.MatchingError: admission.options: unknown option 'settel' (options are seed, settle, \
order, arrived)
        """
        for name in options:
            if name not in _OPTIONS:
                raise MatchingError(
                    f"unknown option {name!r}", where="admission.options", hint="options are " + ", ".join(_OPTIONS)
                )
        seed, settle = options.get("seed", 0), options.get("settle", 0.9)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise MatchingError(
                f"{seed!r} is not a seed", where="admission.options.seed", hint="write a whole number from 0 on"
            )
        if isinstance(settle, bool) or not isinstance(settle, int | float) or not 0.0 < settle <= 1.0:
            raise MatchingError(
                f"{settle!r} is not a share of the time that remains",
                where="admission.options.settle",
                hint="write a number above 0 and up to 1, such as 0.9",
            )
        order = options.get("order", ORDERS[0])
        if order not in ORDERS:
            raise MatchingError(
                f"no order of execution {order!r}",
                where="admission.options.order",
                hint="orders are " + ", ".join(ORDERS),
            )
        return cls(method, bound_s, seed, float(settle))

    def admit(self, batch: int, rows: int, oldest_age_s: float, row_cost_s: float) -> Gated:
        """Which rows of a batch to keep: `oldest_age_s` is the age of its oldest row, `row_cost_s` what a row takes.

        >>> BatchGate("shed", 2.0).admit(7, 1000, 1.0, 0.002).shed
        550
        """
        keep = np.ones(rows, bool)
        if not GATES[self.method] or self.bound_s is None:
            return Gated(keep, 0)
        remaining = max(0.0, self.bound_s - oldest_age_s)
        if rows * row_cost_s <= remaining:
            return Gated(keep, 0)
        kept = min(rows, int(self.settle * remaining / row_cost_s))
        keep[:] = False
        chosen = np.random.default_rng([self.seed, batch]).choice(rows, kept, replace=False, shuffle=False)
        keep[chosen] = True
        return Gated(keep, rows - kept)

    def sample(self, batch: int, rows: npt.NDArray[np.int64], admitted: int) -> npt.NDArray[np.int64]:
        """A seeded sample of rows that is matched in order too: a hundredth of what was admitted, 16 to 256 rows.

        >>> BatchGate("shed", 2.0).sample(7, np.arange(5), 0).tolist()
        [0, 1, 2, 3, 4]
        """
        count = min(len(rows), max(16, min(256, admitted // 100)))
        chosen = np.random.default_rng([self.seed, batch, 1]).choice(len(rows), count, replace=False, shuffle=False)
        return np.sort(rows[chosen])
