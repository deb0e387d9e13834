"""Control of context updates for the Spark job: which of those that wait are applied, shed or deferred.

The decision is taken before a micro-batch runs, from what earlier ones have taken, and is recorded with its pin: a
batch that is replayed is matched with the same state. A shed update is never applied (section 4.2); a deferred one
waits at its place and all that come after it with it, so that the state lags and is exact again after the burst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.gate import BatchGate
from headgate.matching.skipped import NOTHING, Skipped

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# As in the hybrid of the library: the share of the remaining time that a batch may use, and what the state gets of it.
_EASE = 0.4
_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Expected:
    """What is believed of the next batch: its rows, the age of the oldest, and what a row and an update take."""

    rows: int = 0
    age_s: float = 0.0
    row_cost_s: float = 0.0
    update_cost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Updates up to the place `upto` are applied, except those that are `shed`, which change `shed_changes` values."""

    upto: int
    shed: Skipped = NOTHING
    shed_changes: int = 0


def plan_updates(
    gate: BatchGate,
    batch: int,
    places: Places,
    sizes: Places,
    expected: Expected,
    first: Flags | None = None,
    spared: Flags | None = None,
) -> UpdatePlan:
    """What happens to the updates that wait: their places in the log, ascending, and how many values each changes.

    Of all those values in order, the ones in `first` are shed before others and the ones in `spared` never.

    >>> waiting, sizes = np.array([3, 5, 9]), np.array([1, 1, 1])
    >>> plan_updates(BatchGate("shed updates", 1.0), 1, waiting, sizes, Expected(update_cost_s=0.8)).shed.places()
    [3, 5]
    >>> plan_updates(BatchGate("hybrid", 1.0), 1, waiting, 10 * sizes, Expected(update_cost_s=0.02)).upto
    5
    """
    last, powers = int(places[-1]), gate.powers
    if powers.updates == "apply" or gate.bound_s is None:
        return UpdatePlan(last)
    remaining = max(0.0, gate.bound_s - expected.age_s)
    matching = expected.rows * expected.row_cost_s
    applying = float(sizes.sum()) * expected.update_cost_s
    if powers.updates == "defer":
        spare = max(_EASE * remaining - matching, _LEAST * _EASE * gate.bound_s)
        if applying <= spare:
            return UpdatePlan(last)
        fits = int(np.searchsorted(np.cumsum(sizes) * expected.update_cost_s, spare, side="right"))
        return UpdatePlan(int(places[max(fits, 1) - 1]))
    if matching + applying <= remaining:
        return UpdatePlan(last)
    excess = matching + applying - gate.settle * remaining
    if powers.rows:  # rows give their share, and more where updates alone cannot give the rest
        excess = max((1 - gate.messages_share) * excess, excess - matching)
    changes = int(np.ceil(excess / expected.update_cost_s)) if expected.update_cost_s else 0
    return _shed(gate, batch, places, sizes, changes, first, spared)


def _shed(
    gate: BatchGate,
    batch: int,
    places: Places,
    sizes: Places,
    changes: int,
    first: Flags | None,
    spared: Flags | None,
) -> UpdatePlan:
    """Shed so many values at random; the newest is always kept, so that costs go on being learned."""
    total = int(sizes.sum())
    order = np.random.default_rng([gate.seed, batch, 2]).permutation(max(0, total - 1))
    if spared is not None:
        order = order[~spared[order]]
    if first is not None:
        order = np.concatenate([order[first[order]], order[~first[order]]])
    chosen = np.zeros(total, bool)
    chosen[order[:changes]] = True
    return UpdatePlan(int(places[-1]), Skipped.of(places, sizes, chosen), int(chosen.sum()))
