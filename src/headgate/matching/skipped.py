"""Which context updates a pin leaves out: whole updates by place, and single changes inside an update by their order.

An update of the log may change thousands of classes. What control under overload sheds of it is a row of bits, one for
each change in the order in which the update names them: a pin that leaves out ten thousand changes is a kilobyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Updates at the places `whole`, and of those in `partly` the changes whose bit is set, first change first.

    >>> some = Skipped(frozenset({3}), {5: bytes([0b01000000])})
    >>> some.has(3, 7), some.has(5, 0), some.has(5, 1)
    (True, False, True)
    """

    whole: frozenset[int] = frozenset()
    partly: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Places, sizes: Places, chosen: npt.NDArray[np.bool_]) -> Skipped:
        """From a mark for every change of the updates at these places, which make so many changes each.

        >>> Skipped.of(np.array([3, 5]), np.array([1, 2]), np.array([True, False, True]))
        Skipped(whole=frozenset({3}), partly={5: b'@'})
        """
        ends = np.cumsum(sizes)
        counts = np.diff(np.concatenate([[0], np.cumsum(chosen)])[np.concatenate([[0], ends])])
        whole = (counts == sizes) & (sizes > 0)
        partly = np.flatnonzero((counts > 0) & ~whole)
        return cls(
            frozenset(places[whole].tolist()),
            {int(places[k]): np.packbits(chosen[ends[k] - sizes[k] : ends[k]]).tobytes() for k in partly.tolist()},
        )

    def __bool__(self) -> bool:
        return bool(self.whole or self.partly)

    def has(self, place: int, number: int) -> bool:
        """Whether the change of that number in the update at a place is left out."""
        if place in self.whole:
            return True
        bits = self.partly.get(place)
        return bits is not None and number >> 3 < len(bits) and bool(bits[number >> 3] & (0x80 >> (number & 7)))

    def numbers(self, place: int, size: int) -> Iterator[int]:
        """The changes left out of an update of that many."""
        if place in self.whole:
            yield from range(size)
        elif place in self.partly:
            yield from np.flatnonzero(np.unpackbits(np.frombuffer(self.partly[place], np.uint8))[:size]).tolist()

    def places(self) -> list[int]:
        """Where something is left out, ascending."""
        return sorted(self.whole.union(self.partly))

    def differing(self, other: Skipped) -> list[int]:
        """The places where two leave out different things, ascending."""
        partly = {
            place
            for place in self.partly.keys() | other.partly.keys()
            if self.partly.get(place) != other.partly.get(place)
        }
        return sorted((self.whole ^ other.whole) | partly)

    def joined(self, later: Skipped) -> Skipped:
        """With what is left out at other places."""
        return Skipped(self.whole | later.whole, {**self.partly, **later.partly})


NOTHING = Skipped()
