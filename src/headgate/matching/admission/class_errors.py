"""Errors of single classes: estimates from the samples that the errors of a whole stream are estimated from.

A class is true or not for a row, so what a sample says of it is a share, with the variance of a share. Estimates of
separate batches add up, and so do their variances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.matching.lists import ClassLists, Ids

MOST_CLASSES: Final = 2_000
"""So many classes have estimates of their own at most: those with the most errors."""

ClassErrors = Mapping[int, tuple[float, float, float, float]]
"""By class: matches missed, the variance of that estimate, wrong matches, the variance of that."""


def share_variance(hits: float, sampled: int, population: int) -> float:
    """The variance of the number of rows of a population that are estimated from the hits among a sample of it.

    >>> share_variance(5, 10, 10), round(share_variance(5, 10, 1000))
    (0.0, 27500)
    """
    if sampled >= population or not sampled:
        return 0.0
    share = hits / sampled
    spread = share * (1 - share) if 0 < share < 1 else 0.25 / sampled
    return population**2 * spread / max(sampled - 1, 1) * (1 - sampled / population)


def estimate_missed(lists: ClassLists, population: int) -> ClassErrors:
    """Matches that every class missed among a population of rows, by the true classes of a sample of them.

    >>> estimate_missed(ClassLists.of([[1, 2], [2]]), 2)
    {1: (1.0, 0.0, 0.0, 0.0), 2: (2.0, 0.0, 0.0, 0.0)}
    """
    return _estimated(*lists.class_counts(), lists.rows, population, wrong=False)


def compare_classes(exact: ClassLists, given: ClassLists, population: int) -> ClassErrors:
    """Matches that every class missed, and that it has wrongly, by two sets of lists of the same sample.

    >>> compare_classes(ClassLists.of([[1], [3]]), ClassLists.of([[2], [3]]), 2)
    {1: (1.0, 0.0, 0.0, 0.0), 2: (0.0, 0.0, 1.0, 0.0)}
    """
    right, ours = ((lists.row_of_id() << 32) | lists.ids.astype(np.int64) for lists in (exact.plain(), given.plain()))
    found = []
    for one, other, wrong in ((right, ours, False), (ours, right, True)):
        ids, counts = np.unique(np.setdiff1d(one, other, assume_unique=True) & 0xFFFFFFFF, return_counts=True)
        found.append(_estimated(ids.astype(np.uint32), counts, exact.rows, population, wrong=wrong))
    return add_errors(found)


def estimate_drawn(
    missed: Mapping[int, int], wrong: Mapping[int, int], sampled: int, population: int, drawn_of: float
) -> ClassErrors:
    """Errors of classes that were drawn from `drawn_of` times as many: each stands for those that were not.

    That is right on the average over batches, as each time others are drawn; the variance says how far off one may be.
    """
    found = {}
    for each in missed.keys() | wrong.keys():
        figures: list[float] = []
        for hits in (missed.get(each, 0), wrong.get(each, 0)):
            rows = population * hits / max(sampled, 1)
            variance = share_variance(hits, sampled, population) if hits else 0.0
            figures += [drawn_of * rows, drawn_of**2 * variance + drawn_of * (drawn_of - 1) * rows**2]
        found[each] = (figures[0], figures[1], figures[2], figures[3])
    return found


def add_errors(parts: Iterable[ClassErrors]) -> dict[int, tuple[float, float, float, float]]:
    """The sums of several estimates, of the classes with the most errors."""
    found: dict[int, tuple[float, float, float, float]] = {}
    for part in parts:
        for each, more in part.items():
            before = found.get(each)
            found[each] = more if before is None else tuple(a + b for a, b in zip(before, more, strict=True))  # type: ignore[assignment] # four of them
    if len(found) > MOST_CLASSES:
        most = sorted(found, key=lambda each: -(found[each][0] + found[each][2]))[:MOST_CLASSES]
        found = {each: found[each] for each in most}
    return found


def _estimated(
    ids: Ids, counts: npt.NDArray[np.int64], sampled: int, population: int, *, wrong: bool
) -> dict[int, tuple[float, float, float, float]]:
    if len(ids) > MOST_CLASSES:
        chosen = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
        ids, counts = ids[chosen], counts[chosen]
    found = {}
    for each, hits in zip(ids.tolist(), counts.tolist(), strict=True):
        one = (population * hits / sampled, share_variance(hits, sampled, population))
        found[each] = (0.0, 0.0, *one) if wrong else (*one, 0.0, 0.0)
    return found
