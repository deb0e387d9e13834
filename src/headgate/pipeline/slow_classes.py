"""Classes that took far longer than was estimated, counted over micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.pipeline.staged import Staged
from headgate.protocol.reports import SlowClass


def slow_classes(before: Mapping[int, int], staged: Staged) -> tuple[dict[int, int], tuple[SlowClass, ...]]:
    """How many micro-batches in a row each class took too long, and the report of it."""
    now = {identity: before.get(identity, 0) + 1 for identity in staged.slow()}
    found = tuple(
        SlowClass(identity=identity, batches=now[identity], row_us=round(row_us, 1), limit_us=round(limit_us, 1))
        for identity, (row_us, limit_us) in staged.slow().items()
    )
    return now, found
