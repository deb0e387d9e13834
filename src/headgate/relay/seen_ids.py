"""The ids of messages that a root has taken from sites: a message that comes again, by whatever way, is known by it.

A sender numbers its messages, so that its ids are one beginning with many numbers: ranges of numbers are kept for each
beginning. The newest beginnings are kept, in records of a fixed size of which the newest replaces the oldest; one that
is used again moves to the newest record. So what is written for a message stays small, whatever is remembered.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from headgate.protocol.records import DoorIds

SLOTS: Final = 32
STEMS: Final = 512
"""So many beginnings are in one record; `SLOTS` times as many are remembered."""
_RANGES: Final = 256
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9]\d{0,14})", re.DOTALL)

Ranges = list[tuple[int, int]]


class SeenIds:
    """Ids that were seen, by what they begin with."""

    def __init__(self, slots: int = SLOTS, stems: int = STEMS) -> None:
        self._slots, self._stems = slots, stems
        self._ranges: dict[str, Ranges] = {}
        self._record_of: dict[str, int] = {}
        self._records: dict[int, dict[str, None]] = {0: {}}
        self.number = 0

    def __contains__(self, identity: str) -> bool:
        stem, number = split_id(identity)
        return covers(self._ranges.get(stem, []), number)

    def add(self, identities: Iterable[str]) -> list[int]:
        """Remember ids; the numbers of the records that have changed, oldest first."""
        changed: set[int] = set()
        for identity in identities:
            stem, number = split_id(identity)
            self._place(stem)
            self._ranges[stem] = widened(self._ranges.get(stem, []), number)
            changed.add(self.number)
        return sorted(changed)

    def _place(self, stem: str) -> None:
        """Have a beginning in the newest record, which is opened where the one before it is full."""
        before = self._record_of.get(stem)
        if before == self.number:
            return
        if before is not None:
            self._records[before].pop(stem, None)
        if len(self._records[self.number]) >= self._stems:
            self.number += 1
            self._records[self.number] = {}
            for gone in self._records.pop(self.number - self._slots, {}):
                del self._record_of[gone], self._ranges[gone]
        self._records[self.number][stem] = None
        self._record_of[stem] = self.number

    def record(self, number: int) -> dict[str, Ranges]:
        """What a record holds."""
        return {stem: self._ranges[stem] for stem in self._records[number]}

    def slot(self, number: int) -> int:
        """Where a record is kept."""
        return number % self._slots

    @property
    def slots(self) -> int:
        """How many records there are at most."""
        return self._slots

    def load(self, records: Iterable[DoorIds]) -> None:
        """Take over what was stored."""
        for found in sorted(records, key=lambda each: each.number):
            self.number = found.number
            self._records[found.number] = {}
            for stem, ranges in found.ids.items():
                before = self._record_of.get(stem)
                if before is not None:
                    self._records[before].pop(stem, None)
                self._ranges[stem] = [(low, high) for low, high in ranges]
                self._records[found.number][stem] = None
                self._record_of[stem] = found.number


def split_id(identity: str) -> tuple[str, int]:
    """An id as a beginning and a number; one that ends with none has the number 0 of a beginning of its own.

    >>> split_id("f3a-12"), split_id("f3a-"), split_id("x007")
    (('nf3a-', 12), ('wf3a-', 0), ('nx00', 7))
    """
    found = _NUMBERED.fullmatch(identity)
    return ("w" + identity, 0) if found is None else ("n" + found[1], int(found[2]))


def covers(ranges: Ranges, number: int) -> bool:
    """Whether a number is in one of some ranges, which are in order."""
    place = bisect_right(ranges, (number, 1 << 62))
    return place > 0 and number <= ranges[place - 1][1]


def widened(ranges: Ranges, number: int) -> Ranges:
    """Ranges with a number; neighbours become one. Where there are too many, the lowest is forgotten.

    >>> widened([(1, 2), (4, 4)], 3), widened([], 5)
    ([(1, 4)], [(5, 5)])
    """
    if covers(ranges, number):
        return ranges
    place = bisect_right(ranges, (number, number))
    low, high, first, last = number, number, place, place
    if place and ranges[place - 1][1] == number - 1:
        low, first = ranges[place - 1][0], place - 1
    if place < len(ranges) and ranges[place][0] == number + 1:
        high, last = ranges[place][1], place + 1
    return [*ranges[:first], (low, high), *ranges[last:]][-_RANGES:]
