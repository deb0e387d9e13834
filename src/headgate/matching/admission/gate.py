"""Control for the Spark job, which sees whole micro-batches: which rows of a batch are admitted.

The job matches in batches anyway; what is left to decide is how many rows it may keep so that their age stays within
the bound, and which updates of contexts it applies (`headgate.matching.admission.updates`). The choice depends only on
the batch and the seed, so a replayed batch sheds the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.batching import ORDERS, Batching
from headgate.matching.admission.frontend import choose, requirement_of
from headgate.matching.admission.hybrid import Hybrid
from headgate.matching.admission.shed_both import ShedBoth
from headgate.matching.admission.shed_messages import ShedMessages
from headgate.matching.admission.tolerance import ALL, ToleranceLevel, nested, tolerance_of, withhold
from headgate.matching.index import MatchingError


@dataclass(frozen=True, slots=True)
class Powers:
    """What a method may do to a micro-batch: shed rows; apply, shed or defer updates; change the order."""

    rows: bool = False
    updates: Literal["apply", "shed", "defer"] = "apply"
    reorders: bool = False

    @property
    def bounded(self) -> bool:
        """Whether it needs a latency bound."""
        return self.rows or self.updates != "apply"


GATES: Mapping[str, Powers] = MappingProxyType(
    {
        "traditional": Powers(),
        "shed": Powers(rows=True),
        "shed updates": Powers(updates="shed"),
        "shed both": Powers(rows=True, updates="shed"),
        "batch": Powers(reorders=True),
        "hybrid": Powers(rows=True, updates="defer", reorders=True),
    }
)
"""The methods of a deployment file."""

_OPTIONS = ("seed", "settle", "order", "arrived", "messages_share", "victims", "update_victims")


@dataclass(frozen=True, slots=True)
class Gated:
    """For each row from how many groups of classes it is withheld, most tolerant first; 0 is matched for all.

    `groups` is how many there are, so a row of that depth is shed. `late` rows were kept although they do not fit the
    bound: no group tolerates more.
    """

    depth: npt.NDArray[np.int8]
    groups: int = 1
    late: int = 0

    @property
    def keep(self) -> npt.NDArray[np.bool_]:
        """The rows that are matched for all."""
        kept: npt.NDArray[np.bool_] = self.depth == 0
        return kept

    @property
    def shed(self) -> int:
        """How many rows are matched for nobody."""
        return int((self.depth == self.groups).sum())

    @property
    def partly(self) -> int:
        """How many rows are matched for some groups only."""
        return int(((self.depth > 0) & (self.depth < self.groups)).sum())

    @property
    def withheld(self) -> tuple[int, ...]:
        """By group how many rows are withheld from it."""
        return tuple(int((self.depth > group).sum()) for group in range(self.groups))


@dataclass(frozen=True, slots=True)
class BatchGate:
    """Admits what the bound allows. `settle` is the share of the remaining time that is planned with.

    `messages_share` of the excess is taken from rows where both are shed; rows that the filter `victims` takes, and
    updates that `update_victims` takes, go before others. `tolerance` is the share of rows that may be withheld from a
    class that has no requirement of its own.
    """

    method: str
    bound_s: float | None
    seed: int = 0
    settle: float = 0.9
    order: str = "arrival"
    arrived: str | None = None
    messages_share: float = 0.5
    victims: str | None = None
    update_victims: str | None = None
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        if self.method not in GATES:
            raise MatchingError(f"no admission method {self.method!r}", hint="methods are " + ", ".join(GATES))
        if self.powers.bounded and not (self.bound_s and self.bound_s > 0):
            raise MatchingError(
                f"admission by {self.method!r} needs a latency bound",
                where="admission",
                hint="write for example `bound: 5 s`",
            )

    @property
    def powers(self) -> Powers:
        """What the method may do."""
        return GATES[self.method]

    @classmethod
    def of(
        cls, method: str, bound_s: float | None, options: Mapping[str, Any], require: Mapping[str, Any] | None = None
    ) -> BatchGate:
        """The gate of a stream's admission entry; an option that it does not know or cannot use is refused.

        A requirement chooses the method, the bound, the order and the preference.

        >>> BatchGate.of("shed", 2.0, {"settel": 0.5})
        Traceback (most recent call last):
        headgate.matching.index.MatchingError: admission.options: unknown option 'settel' (options are seed, settle, \
order, arrived, messages_share, victims, update_victims)
        >>> BatchGate.of("traditional", None, {}, {"preset": "sports results", "bound": 2.0}).method
        'shed'
        """
        for name in options:
            if name not in _OPTIONS:
                raise MatchingError(
                    f"unknown option {name!r}", where="admission.options", hint="options are " + ", ".join(_OPTIONS)
                )
        if require is not None:
            method, bound_s, chosen = _chosen(require)
            options = {**chosen, **options}
        seed, settle = options.get("seed", 0), options.get("settle", 0.9)
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise MatchingError(
                f"{seed!r} is not a seed", where="admission.options.seed", hint="write a whole number from 0 on"
            )
        if not _number(settle) or not 0.0 < settle <= 1.0:
            raise MatchingError(
                f"{settle!r} is not a share of the time that remains",
                where="admission.options.settle",
                hint="write a number above 0 and up to 1, such as 0.9",
            )
        share = options.get("messages_share", 0.5)
        if not _number(share) or not 0.0 <= share <= 1.0:
            raise MatchingError(
                f"{share!r} is not a share of the excess",
                where="admission.options.messages_share",
                hint="write a number from 0 (updates first) to 1 (rows first)",
            )
        order = options.get("order", ORDERS[0])
        if order not in ORDERS:
            raise MatchingError(
                f"no order of execution {order!r}",
                where="admission.options.order",
                hint="orders are " + ", ".join(ORDERS),
            )
        found = cls(method, bound_s, seed, float(settle), messages_share=float(share), tolerance=tolerance_of(require))
        victims, updates, arrived = (options.get(each) for each in ("victims", "update_victims", "arrived"))
        if updates is not None and found.powers.updates != "shed":
            raise MatchingError(
                f"admission by {method!r} sheds no updates",
                where="admission.options.update_victims",
                hint="methods that do are " + ", ".join(name for name, each in GATES.items() if each.updates == "shed"),
            )
        return replace(
            found,
            order=order if found.powers.reorders else "arrival",
            arrived=None if arrived is None else str(arrived),
            victims=None if victims is None else str(victims),
            update_victims=None if updates is None else str(updates),
        )

    def admit(
        self,
        batch: int,
        rows: int,
        oldest_age_s: float,
        row_cost_s: float,
        first: npt.NDArray[np.bool_] | None = None,
        levels: Sequence[ToleranceLevel] = ALL,
    ) -> Gated:
        """Which rows of a batch to keep: `oldest_age_s` is the age of its oldest row, `row_cost_s` what a row takes.

        Rows in `first` are victims before any other is. `levels` are the groups of classes by what they tolerate.

        >>> BatchGate("shed", 2.0).admit(7, 1000, 1.0, 0.002).shed
        550
        """
        nothing = Gated(np.zeros(rows, np.int8), len(levels))
        if not self.powers.rows or self.bound_s is None or rows == 0:
            return nothing
        remaining = max(0.0, self.bound_s - oldest_age_s)
        if rows * row_cost_s <= remaining:
            return nothing
        counts, late = withhold(levels, rows, int(self.settle * remaining / row_cost_s))
        order = np.random.default_rng([self.seed, batch]).permutation(rows)
        if first is not None:
            order = np.concatenate([order[first[order]], order[~first[order]]])
        return Gated(nested(counts, order), len(levels), late)

    def sample(
        self, batch: int, rows: npt.NDArray[np.int64], admitted: int, least: int = 16, most: int = 256
    ) -> npt.NDArray[np.int64]:
        """A seeded sample of rows that is matched in order too: a hundredth of what was admitted, 16 to 256 rows.

        >>> BatchGate("shed", 2.0).sample(7, np.arange(5), 0).tolist()
        [0, 1, 2, 3, 4]
        """
        count = min(len(rows), max(least, min(most, admitted // 100)))
        chosen = np.random.default_rng([self.seed, batch, 1]).choice(len(rows), count, replace=False, shuffle=False)
        return np.sort(rows[chosen])


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _chosen(require: Mapping[str, Any]) -> tuple[str, float | None, dict[str, Any]]:
    """The method of a requirement by the name that a deployment file has for it, its bound and its options."""
    need = requirement_of(require)
    match choose(need):
        case Hybrid(order=order):
            return "hybrid", need.bound_s, {"order": order}
        case ShedBoth(messages_share=share):
            return "shed both", need.bound_s, {"messages_share": share}
        case ShedMessages():
            return "shed", need.bound_s, {}
        case Batching(order=order):
            return "batch", need.bound_s, {"order": order}
        case _:
            return "traditional", need.bound_s, {}
