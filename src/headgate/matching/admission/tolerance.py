"""How much of a stream a class may miss under overload: graded requirements of single classes (section 6).

Classes of one tolerance are a group. Rows are withheld from the most tolerant group first, and from a stricter one only
when that was not enough; in every micro-batch at most the tolerated share of the rows is withheld from a group, so that
the share holds over any time and for a class that came a minute ago. Rows are drawn at random, so the share of rows is
the expected share of a class's matches. When no group tolerates more, the rest is matched late.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.frontend import Requirement, choose, requirement_of
from headgate.matching.admission.hybrid import Hybrid
from headgate.matching.admission.shed_both import ShedBoth
from headgate.matching.admission.shed_messages import ShedMessages

LEVELS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Tolerances are rounded down to one of these: each group costs an index of its own in every worker."""


@dataclass(frozen=True, slots=True)
class ToleranceLevel:
    """A group of classes: the share of rows that may be withheld from it, and its share of all classes."""

    tolerance: float
    weight: float = 1.0


ALL: Final = (ToleranceLevel(1.0),)


def tolerance_of(require: Mapping[str, Any] | None, otherwise: float = 1.0) -> float:
    """The share of rows that a requirement lets pass unmatched; of a class that has none, `otherwise`.

    >>> [tolerance_of(each) for each in ({"preset": "e-science"}, {"preset": "sports results"}, None)]
    [0.0, 1.0, 1.0]
    >>> tolerance_of({"bound": 5.0, "false_negatives": 0.15})
    0.1
    """
    if require is None:
        return otherwise
    need: Requirement = requirement_of(require)
    if not isinstance(choose(need), ShedMessages | ShedBoth | Hybrid):
        return 0.0
    share = 1.0 if need.false_negatives is True else float(need.false_negatives)
    return max(level for level in LEVELS if level <= share)


def wants_true_state(require: Mapping[str, Any] | None) -> bool:
    """Whether a requirement forbids wrong matches, so that no update of its class may be shed or passed by rows.

    >>> wants_true_state({"preset": "sports results"}), wants_true_state({"preset": "load balancing"})
    (True, False)
    """
    return require is not None and not requirement_of(require).false_positives


def levels_of(tolerances: Iterable[float]) -> tuple[ToleranceLevel, ...]:
    """The groups of classes with these tolerances, most tolerant first.

    >>> [(level.tolerance, level.weight) for level in levels_of([1.0, 0.1, 1.0, 0.0])]
    [(1.0, 0.5), (0.1, 0.25), (0.0, 0.25)]
    """
    values, counts = np.unique(np.fromiter(tolerances, np.float64), return_counts=True)
    if len(values) == 0:
        return ALL
    weights = counts / counts.sum()
    return tuple(
        ToleranceLevel(float(each), float(weight)) for each, weight in zip(values[::-1], weights[::-1], strict=True)
    )


def withhold(levels: Sequence[ToleranceLevel], rows: int, fitting: float) -> tuple[list[int], int]:
    """From how many rows each group is kept away so that the work of `fitting` whole rows remains; and what is lacking.

    A row withheld from a group saves the group's share of a row's work. One row is always matched for all: it carries
    the word of what was shed, and tells what a row costs.

    >>> withhold(levels_of([1.0, 0.1, 0.1, 0.0]), 100, 90)
    ([40, 0, 0], 0)
    >>> withhold(levels_of([1.0, 0.1, 0.1, 0.0]), 100, 60)
    ([99, 10, 0], 11)
    """
    excess = rows - max(1.0, fitting)
    found = []
    for level in levels:
        most = min(int(level.tolerance * rows + 1e-9), rows - 1)
        count = min(max(0, math.ceil(excess / level.weight - 1e-6)), most) if most > 0 else 0
        found.append(count)
        excess -= count * level.weight
    return found, max(0, math.ceil(excess - 1e-6))


def nested(counts: Sequence[int], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """For each row from how many groups it is withheld, victims in this order; counts never grow.

    >>> nested([2, 1], np.array([3, 0, 1, 2])).tolist()
    [1, 0, 0, 2]
    """
    depth = np.zeros(len(order), np.int8)
    for count in counts:
        depth[order[:count]] += 1
    return depth
