"""Spans of a batch whose rows are not looked at for some classes of the index: how an identity's share is kept there.

A class of the index that gets a part of the rows gets a window of them, which begins at another place in each
micro-batch. Windows of all classes begin at the same row and have one of few lengths, so that a batch falls into few
spans of rows, each of which is matched without the boxes of the classes that do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from headgate.matching.lists import ClassLists, Ids

LEVELS: Final = (1 / 64, *(eighths / 8 for eighths in range(1, 8)))
"""The parts of the rows that a class may get; what it is given counts as the next of them, and as all beyond."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of a batch, and the classes whose boxes they do not meet."""

    start: int
    stop: int
    hidden: Ids


def level_of(part: float) -> float:
    """The part of the rows that a class gets which is given so much.

    >>> level_of(0.001), level_of(0.3), level_of(0.9)
    (0.015625, 0.375, 1.0)
    """
    return next((level for level in LEVELS if part <= level), 1.0)


def spans_of(rows: int, parts: Mapping[int, float], turn: float) -> tuple[list[Span], dict[int, int]]:
    """The spans of a batch, and by class how many of its rows it does not see; windows begin at `turn` of the rows.

    >>> spans, left_out = spans_of(8, {7: 0.5}, 0.25)
    >>> [(each.start, each.stop, each.hidden.tolist()) for each in spans], left_out
    ([(0, 2, [7]), (2, 6, []), (6, 8, [7])], {7: 4})
    """
    windows: dict[int, list[int]] = {}
    for identity, part in parts.items():
        wanted = math.ceil(level_of(part) * rows)
        if wanted < rows:
            windows.setdefault(wanted, []).append(identity)
    if not windows:
        return [], {}
    first = int(turn * rows)
    edges = sorted({0, rows, first, *((first + wanted) % rows for wanted in windows)})
    found = []
    for start, stop in pairwise(edges):
        place = (start - first) % rows
        hidden = [identity for wanted, mine in windows.items() if wanted <= place for identity in mine]
        found.append(Span(start, stop, np.sort(np.array(hidden, np.uint32))))
    return found, {identity: rows - wanted for wanted, mine in windows.items() for identity in mine}


def hide(lists: ClassLists, spans: Sequence[Span]) -> ClassLists:
    """The lists of a batch without the classes that each span hides, for an index that cannot leave them out itself.

    >>> spans, _ = spans_of(4, {7: 0.5}, 0.0)
    >>> found = hide(ClassLists.of([[3, 7]] * 4), spans)
    >>> [found.row(k).tolist() for k in range(4)]
    [[3, 7], [3, 7], [3], [3]]
    """
    if not spans:
        return lists
    plain = lists.plain()
    parts = [plain.slice(span.start, span.stop) for span in spans]
    kept = [part.only(~np.isin(part.numbers, span.hidden)) for part, span in zip(parts, spans, strict=True)]
    return ClassLists.concat(kept)
