"""Rows that a site holds of the parts it serves, each part with its own coverage.

A part is a set of cells with one range (after, upto] of the stream's sequence: every row of these cells in that range
is here, and nothing is claimed about others. A part that a site owns is filled by its subscription; one that was
replicated, by the site that it came from. Either is read in the same way, and a reader who has rows up to a number
goes on behind it wherever it reads: nothing comes twice and nothing is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.grid.dzset import DzSet
from headgate.grid.space import Ints

NOTHING = -1
"""The place of a reader that has nothing yet: it is given what is kept."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows with their numbers, ascending, and their cells."""

    rows: pa.RecordBatch
    seqs: Ints
    codes: Ints

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """What a part has in (after, upto] of an expression; `after` is later than asked where rows are no longer kept."""

    after: int
    upto: int
    found: tuple[HeldRows, ...]


@dataclass(slots=True)
class HeldPart:
    """One part: its cells, and what is held of them. Nothing is, while `after` is None.

    `steady` once rows come as they are made, and no longer those that were kept for it.
    """

    cells: DzSet
    after: int | None = None
    upto: int = NOTHING
    chunks: deque[HeldRows] = field(default_factory=deque)
    count: int = 0
    steady: bool = False

    def add(self, after: int, upto: int, held: HeldRows) -> int:
        """Take the rows of a range; returns how many were new.

        What was had before is passed over. A range that does not follow what is here makes the part begin anew.
        """
        if self.after is None or after > self.upto:
            self.after, self.upto, self.count = after, after, 0
            self.chunks.clear()
        if upto <= self.upto:
            return 0
        new = inside(held, self.cells.bounds, self.upto, upto)
        if len(new):
            self.chunks.append(new)
            self.count += len(new)
        self.upto = upto
        return len(new)

    def precede(self, after: int, upto: int, held: list[HeldRows]) -> None:
        """Take what another site has of the time before this part began, where the two meet."""
        if self.after is None or upto < self.after or after >= self.after:
            return
        earlier = [inside(each, self.cells.bounds, after, self.after) for each in held]
        self.chunks.extendleft(each for each in reversed(earlier) if len(each))
        self.count += sum(map(len, earlier))
        self.after = after

    def trim(self, most: int) -> None:
        """Let the oldest rows go, until so many are left at most."""
        while self.count > most and len(self.chunks) > 1:
            gone = self.chunks.popleft()
            self.count -= len(gone)
            self.after = int(gone.seqs[-1])

    def read(self, start: int, end: int, after: int, most: int) -> PartAnswer | None:
        """Rows with codes in [start, end) behind a number, and no more than about so many of them; None if none."""
        if self.after is None:
            return None
        begin = max(after, self.after)
        found: list[HeldRows] = []
        count, bounds = 0, np.array([[start, end]])
        for chunk in self.chunks:
            if int(chunk.seqs[-1]) <= begin:
                continue
            rows = inside(chunk, bounds, begin, self.upto)
            if len(rows):
                found.append(rows)
                count += len(rows)
            if count >= most:
                return PartAnswer(begin, int(chunk.seqs[-1]), tuple(found))
        return PartAnswer(begin, max(begin, self.upto), tuple(found))


class Shelf:
    """The parts of one stream at one site, by a key of whoever fills them."""

    def __init__(self, most_rows: int) -> None:
        self.most_rows = most_rows
        self.parts: dict[object, HeldPart] = {}

    def __iter__(self) -> Iterator[HeldPart]:
        return iter(self.parts.values())

    def trim(self) -> None:
        """Keep to the limit of rows, each part to its share by size."""
        total = sum(part.cells.cells for part in self) or 1
        for part in self:
            part.trim(max(1, self.most_rows * part.cells.cells // total))

    def read(self, code: int, size: int, after: int, most: int) -> PartAnswer | None:
        """What is here of an expression behind a number, from the part that has most of it; None where it is not here.

        A part that goes on where the reader stands comes first, then the one that reaches back farthest.
        """
        region = DzSet(next(iter(self)).cells.space, np.array([[code, code + size]])) if self.parts else None
        having = [part for part in self if part.after is not None and region is not None and region <= part.cells]
        if not having:
            return None
        if after == NOTHING:
            best = max(having, key=lambda part: (part.upto, -(part.after or 0)))
        else:
            going_on = [part for part in having if part.after is not None and part.after <= after]
            best = max(going_on or having, key=lambda p: (p.upto, 0) if going_on else (-(p.after or 0), p.upto))
        return best.read(code, code + size, after, most)


def inside(held: HeldRows, bounds: Ints, after: int, upto: int) -> HeldRows:
    """The rows in some intervals of cells with numbers in (after, upto]."""
    row = np.searchsorted(bounds[:, 0], held.codes, side="right") - 1
    kept = (row >= 0) & (held.codes < bounds[np.maximum(row, 0), 1]) if len(bounds) else np.zeros(len(held), dtype=bool)
    kept &= (held.seqs > after) & (held.seqs <= upto)
    if kept.all():
        return held
    which = np.flatnonzero(kept)
    return HeldRows(held.rows.take(pa.array(which)), held.seqs[which], held.codes[which])
