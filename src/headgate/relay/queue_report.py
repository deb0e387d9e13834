"""What waits in an output's queue, for status displays: in all, and on a link for each delivery class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from headgate.relay.queued_blocks import Waiting

MOST_CLASSES: Final = 2000
"""With more classes than this in a queue they are not listed one by one: the report is stored every second."""


def age_s(queue: Iterable[Waiting], now: float) -> float:
    """For how long the oldest row has waited, 0 when none waits."""
    return next((round(max(0.0, now - each.since), 3) for each in queue if len(each.block.seqs)), 0.0)


def waits_by_class(queue: Iterable[Waiting], now: float) -> dict[str, tuple[int, int, float]] | None:
    """Rows, bytes and the oldest row's wait in seconds for each class in a link's queue; None for too many classes."""
    ids, counts, sizes, since = [], [], [], []
    for each in queue:
        if each.block.classes is not None and len(each.block.seqs):
            found, rows = each.block.classes.class_counts()
            ids.append(found)
            counts.append(rows)
            sizes.append(rows * (each.block.rows.nbytes / len(each.block.seqs)))
            since.append(np.full(len(found), each.since))
    if not ids:
        return {}
    classes, of_class = np.unique(np.concatenate(ids), return_inverse=True)
    if len(classes) > MOST_CLASSES:
        return None
    oldest = np.full(len(classes), np.inf)
    np.minimum.at(oldest, of_class, np.concatenate(since))
    rows = np.bincount(of_class, np.concatenate(counts)).astype(np.int64)
    size = np.bincount(of_class, np.concatenate(sizes)).astype(np.int64)
    waits = np.round(np.maximum(0.0, now - oldest), 3)
    return {
        str(class_id): (row, bytes_, wait)
        for class_id, row, bytes_, wait in zip(
            classes.tolist(), rows.tolist(), size.tolist(), waits.tolist(), strict=True
        )
    }


def withheld_rows(queue: Iterable[Waiting]) -> dict[str, int]:
    """By subscription id, rows of its class in a link's queue that are not for it (see `headgate.wire.patch`)."""
    found: dict[str, int] = {}
    for each in queue:
        for receiver, patch in each.block.patches.items():
            found[str(receiver)] = found.get(str(receiver), 0) + len(patch.without)
    return {receiver: count for receiver, count in found.items() if count}
