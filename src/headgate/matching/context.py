"""Context state: the values of subscribers that their filters refer to as `$name`, versioned by one order.

Messages and updates share one order (contract 8). A pin names a position in it, and `ContextState.at(position)` is the
index with exactly the updates up to there. Updates say what they replace, so the index moves both ways in place: a
micro-batch that is replayed with its pin gives the same rows, whether the worker is new, behind, or past that position.
A pin may also name updates, or single changes in them, that are never applied: control under overload has shed them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.index import ClassSpec, Index, MatchingError
from headgate.matching.lists import ClassLists, Ids
from headgate.matching.live import IndexDelta, LiveIndex
from headgate.matching.metering import Meter
from headgate.matching.skipped import NOTHING, Skipped

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContextUpdate:
    """New contexts of some classes at a position of the order: by class, all values before and all values after."""

    position: int
    changes: Mapping[int, tuple[Values, Values]]
    time_ms: int = 0


class ContextState:
    """An index as it was at `base`, the updates since, and the position that it stands at.

    `bound` counts the values that were bound and `bound_s` what that took, by the clock that is given.
    """

    def __init__(self, index: LiveIndex, base: int = 0, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._index = index
        self._base = self._position = base
        self._skipped = NOTHING
        self._log: list[ContextUpdate] = []
        self._positions: list[int] = []
        self._touched: dict[int, list[int]] = {}
        self._touched_upto = 0
        self._clock = clock
        self.bound = 0
        self.bound_s = 0.0

    def measure(self, meter: Meter | None) -> None:
        """Evaluate the classes that boxes do not decide by a clock."""
        self._index.measure(meter)

    @property
    def classes(self) -> Ids:
        """The ids of the index, ascending."""
        return self._index.classes

    @property
    def base(self) -> int:
        """The oldest position that can be had."""
        return self._base

    @property
    def position(self) -> int:
        """Where the index stands."""
        return self._position

    @property
    def head(self) -> int:
        """The last position that an update was recorded for, or the base."""
        return self._positions[-1] if self._positions else self._base

    def record(self, updates: Iterable[ContextUpdate]) -> None:
        """Append updates in order; one at or below the head is refused, with all of them."""
        new = list(updates)
        last = self.head
        for update in new:
            if update.position <= last:
                raise MatchingError(
                    f"a context update at position {update.position} came after position {last}",
                    hint="updates share one order with the messages",
                )
            last = update.position
        self._log.extend(new)
        self._positions.extend(update.position for update in new)

    def at(self, position: int, skipped: Skipped = NOTHING) -> Index:
        """The index with the recorded updates up to a position but the skipped ones, bound in bulk.

        A pin is chosen where everything before it is recorded; only then does a replay give the same rows. Updates of
        classes that the index does not have are kept for the version that brings them. A position before the base
        cannot be had.
        """
        if position < self._base:
            raise MatchingError(
                f"the state at position {position} is gone, the oldest is {self._base}", hint="open an older snapshot"
            )
        here, there = bisect_right(self._positions, self._position), bisect_right(self._positions, position)
        contexts: dict[int, Values] = {}
        if skipped or self._skipped:
            for identity in self._moving(here, there, skipped):
                contexts[identity] = self.value(identity, position, skipped)
        else:
            for update in self._log[here:there]:
                contexts.update({identity: now for identity, (_, now) in update.changes.items()})
            for update in reversed(self._log[there:here]):
                contexts.update({identity: was for identity, (was, _) in update.changes.items()})
        if contexts:
            began = self._clock()
            self._index.bind(contexts)
            self.bound_s += self._clock() - began
            self.bound += len(contexts)
        self._position, self._skipped = min(position, self.head), skipped
        return self._index

    def _moving(self, here: int, there: int, skipped: Skipped) -> dict[int, None]:
        """The classes whose values may differ between two numbers of updates, with what is and will be left out.

        An update between the two that is left out on the far side was not applied, or will not be: it concerns nobody,
        and that is what shedding saves.
        """
        low, high = min(here, there), max(here, there)
        found = self._classes_of(range(low, high), skipped if there > here else self._skipped, left_out=False)
        before = self._positions[low - 1] if low else self._base
        for place in skipped.differing(self._skipped):
            if place <= before and (number := self._number(place)) is not None:
                identities = list(self._log[number].changes)
                mine, theirs = (set(each.numbers(place, len(identities))) for each in (skipped, self._skipped))
                found.update(dict.fromkeys(identities[each] for each in sorted(mine ^ theirs)))
        return found

    def _number(self, place: int) -> int | None:
        """Which of the recorded updates has a place."""
        at = bisect_right(self._positions, place) - 1
        return at if at >= 0 and self._positions[at] == place else None

    def _classes_of(self, numbers: Iterable[int], skipped: Skipped, *, left_out: bool) -> dict[int, None]:
        """The classes that updates concern, in a fixed order: by what is left out of them, or by the rest."""
        found: dict[int, None] = {}
        for number in numbers:
            place, changes = self._positions[number], self._log[number].changes
            gone = set(skipped.numbers(place, len(changes)))
            if gone or left_out:
                found.update(dict.fromkeys(each for k, each in enumerate(changes) if (k in gone) == left_out))
            else:
                found.update(dict.fromkeys(changes))
        return found

    def value(self, identity: int, position: int, skipped: Skipped = NOTHING) -> Values:
        """The values of a class that some update concerns, as they are at a position without the skipped updates."""
        for number in range(self._touched_upto, len(self._log)):
            for k, each in enumerate(self._log[number].changes):
                self._touched.setdefault(each, []).append(number << 32 | k)
        self._touched_upto = len(self._log)
        found = self._touched[identity]
        for each in reversed(found[: bisect_left(found, bisect_right(self._positions, position) << 32)]):
            number = each >> 32
            if not skipped.has(self._positions[number], each & 0xFFFFFFFF):
                return self._log[number].changes[identity][1]
        return self._log[found[0] >> 32].changes[identity][0]

    def concerned(self, position: int, skipped: Skipped, head: int) -> list[int]:
        """The classes that may have other values at a position, without the skipped updates, than at the head."""
        here, there = bisect_right(self._positions, position), bisect_right(self._positions, head)
        found = self._classes_of(range(here, there), NOTHING, left_out=False)
        left = [number for place in skipped.places() if (number := self._number(place)) is not None]
        return list(found | self._classes_of(left, skipped, left_out=True))

    def spec(self, identity: int, values: Values) -> ClassSpec | None:
        """A class with a context alone, None when the index does not have it."""
        found = self._index.filter_of(identity)
        return None if found is None else ClassSpec(identity, found, values)

    def match(self, batch: pa.RecordBatch, position: int, skipped: Skipped = NOTHING) -> ClassLists:
        """The classes of each row with the state of a pinned position."""
        return self.at(position, skipped).match(batch)

    def match_each(
        self, batch: pa.RecordBatch, positions: npt.NDArray[np.int64], skipped: Skipped = NOTHING
    ) -> ClassLists:
        """The classes of each row with the state of a position of its own; the rows stay in their order.

        Rows of one position are matched together, positions in ascending order: the alternating runs of section 4.3.
        """
        order = np.argsort(positions, kind="stable")
        starts = np.flatnonzero(np.diff(positions[order], prepend=positions[order[:1]] - 1))
        parts = [
            self.match(batch.take(pa.array(run)), int(positions[run[0]]), skipped)
            for run in np.split(order, starts[1:])
        ]
        if len(parts) <= 1:
            return parts[0] if parts else ClassLists.empty(0)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return ClassLists.concat(parts).take(back)

    def arrivals(self, times_ms: npt.NDArray[np.int64], before: int, upto: int) -> npt.NDArray[np.int64]:
        """The position that each row stands at by its time: after the updates of (before, upto] that are not later."""
        start, stop = bisect_right(self._positions, before), bisect_right(self._positions, upto)
        known = np.array([update.time_ms for update in self._log[start:stop]], np.int64)
        places = np.array([before, *self._positions[start:stop]], np.int64)
        return places[np.searchsorted(np.maximum.accumulate(known), times_ms, side="right")]

    def advance(self, delta: IndexDelta) -> None:
        """Go on to the next version of the class set. New classes get what was recorded for them up to here."""
        self._index.apply(delta)
        added: Ids = delta.beside.ids
        fresh, contexts = set(added.tolist()), {}
        for update in self._log[: bisect_right(self._positions, self._position)]:
            for identity in fresh.intersection(update.changes):
                contexts[identity] = update.changes[identity][1]
        if contexts:
            self._index.bind(contexts)
