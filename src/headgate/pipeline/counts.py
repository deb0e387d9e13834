"""Matched counts by class on their way from the workers to the manifest.

With many classes they outweigh everything else that a partition tells the driver, and what the driver does with them is
serial: so a partition sums them up, tells them once, and packs them as manifests do. 500,000 classes take a quarter
of a megabyte instead of four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.matching import ClassLists
from headgate.wire.integers import encode_sorted, encode_uints

UInts = npt.NDArray[np.uint64]
Counts = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Ids, each once and ascending, and how many rows each has."""

_MERGE_AT = 16


class Counted:
    """The counts of a partition while its batches are matched."""

    def __init__(self) -> None:
        self._parts: list[Counts] = []

    def add(self, lists: ClassLists) -> None:
        """Count the lists of some rows."""
        self._parts.append(lists.class_counts())
        if len(self._parts) > _MERGE_AT:
            self._parts = [sum_counts(self._parts)]

    def packed(self) -> tuple[int, bytes, bytes]:
        """How many classes were counted, and their ids and counts as a staged row holds them."""
        ids, counts = sum_counts(self._parts)
        return len(ids), encode_sorted(ids), encode_uints(counts)


class ClassCosts:
    """What the classes that are evaluated one by one took in a partition."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, float]] = {}

    def add(self, costs: Mapping[int, tuple[int, float]]) -> None:
        """Add rows and seconds of each class."""
        for identity, (rows, seconds) in costs.items():
            before = self._found.get(identity, (0, 0.0))
            self._found[identity] = before[0] + rows, before[1] + seconds

    def packed(self) -> dict[str, Any]:
        """As a staged row of a partition has it."""
        found = sorted(self._found.items())
        return {
            "spent_classes": len(found),
            "spent_ids": encode_sorted(np.array([identity for identity, _ in found], np.uint64)),
            "spent_rows": encode_uints(np.array([rows for _, (rows, _) in found], np.uint64)),
            "spent_ns": encode_uints(np.array([int(seconds * 1e9) for _, (_, seconds) in found], np.uint64)),
        }


def sum_counts(parts: Sequence[Counts]) -> tuple[UInts, UInts]:
    """Counts by id, each id once and ascending; within a part each id stands once.

    >>> one, two = (np.array([3, 7]), np.array([2, 1])), (np.array([7]), np.array([3]))
    >>> [each.tolist() for each in sum_counts([one, two])]
    [[3, 7], [2, 4]]
    """
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    top, total = max(int(ids[-1]) for ids, _ in parts), sum(len(ids) for ids, _ in parts)
    if top < 16 * total + 4096:  # a table of all ids beats sorting
        table = np.zeros(top + 1, np.uint64)
        for ids, counts in parts:
            table[ids.astype(np.int64, copy=False)] += counts.astype(np.uint64, copy=False)
        present = np.flatnonzero(table)
        return present.astype(np.uint64), table[present]
    found, places = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    sums = np.zeros(len(found), np.uint64)
    np.add.at(sums, places, np.concatenate([counts for _, counts in parts]).astype(np.uint64))
    return found.astype(np.uint64), sums
