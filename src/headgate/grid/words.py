"""DZ expressions with wildcards: one word for many plain expressions.

A word has a digit 0, 1 or * at every position; digits past the end of its text are *. It is kept as two integers over
all digits of the space: `stars` (where * stands) and `value` (the other digits). One word says "this half in x, any y,
lowest quarter of the resolution", which plain expressions can only say by listing every y.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headgate.grid.dzset import DzSet
from headgate.grid.space import DzSpace, Ints


@dataclass(frozen=True, slots=True)
class Word:
    """A DZ expression with wildcards.

    >>> space = DzSpace.round_robin({"x": 2, "y": 2})
    >>> Word.parse(space, "0*").contains(Word.parse(space, "0"))
    True
    >>> [word.text for word in Word.parse(space, "*").minus(Word.parse(space, "0*1"))]
    ['1', '0*0']
    """

    space: DzSpace
    value: int
    stars: int

    @classmethod
    def parse(cls, space: DzSpace, text: str) -> Word:
        """A word from its digits."""
        if len(text) > space.digits or any(digit not in "01*" for digit in text):
            raise ValueError(f"{text!r} is not a word of at most {space.digits} digits 0, 1 and *")
        padded = text.ljust(space.digits, "*")
        value = int(padded.replace("*", "0") or "0", 2)
        stars = int("".join("1" if digit == "*" else "0" for digit in padded) or "0", 2)
        return cls(space, value, stars)

    @classmethod
    def of_prefixes(cls, space: DzSpace, prefixes: dict[str, tuple[int, int]]) -> Word:
        """The word of an aligned box: for each dimension named, the leading (bits, how many) of its cell number."""
        value, stars = 0, space.cells - 1
        for name, (bits, count) in prefixes.items():
            dimension = space.names.index(name)
            if not (0 <= count <= space.depths[dimension] and 0 <= bits < 1 << count):
                raise ValueError(f"{bits} does not have {count} of the {space.depths[dimension]} digits of {name!r}")
            seen = 0
            for digit, owner in enumerate(space.order):
                if owner == dimension and seen < count:
                    seen += 1
                    place = space.digits - 1 - digit
                    stars &= ~(1 << place)
                    value |= ((bits >> (count - seen)) & 1) << place
        return cls(space, value, stars)

    @property
    def text(self) -> str:
        """The word as digits, without the * at its end."""
        digits = self.space.digits
        full = "".join(
            "*" if self.stars >> place & 1 else str(self.value >> place & 1) for place in range(digits - 1, -1, -1)
        )
        return full.rstrip("*")

    @property
    def cells(self) -> int:
        """Number of finest cells covered."""
        return 1 << self.stars.bit_count()

    def contains(self, other: Word) -> bool:
        """Whether every cell of the other word lies in this one; no shortcut by length, which * forbids."""
        return not other.stars & ~self.stars and not (self.value ^ other.value) & ~self.stars

    def intersection(self, other: Word) -> Word | None:
        """The word of the common cells, None when there are none."""
        if (self.value ^ other.value) & ~(self.stars | other.stars):
            return None
        return Word(self.space, self.value | other.value, self.stars & other.stars)

    def minus(self, other: Word) -> tuple[Word, ...]:
        """Disjoint words for the cells of this word that are not in the other: one per digit that the other fixes."""
        if self.intersection(other) is None:
            return (self,)
        rest: list[Word] = []
        value, stars = self.value, self.stars
        for place in range(self.space.digits - 1, -1, -1):
            bit = 1 << place
            if stars & bit and not other.stars & bit:
                stars &= ~bit
                rest.append(Word(self.space, value | (~other.value & bit), stars))
                value |= other.value & bit
        return tuple(rest)

    def complement(self) -> tuple[Word, ...]:
        """Disjoint words for every cell outside."""
        return Word(self.space, 0, self.space.cells - 1).minus(self)

    def expressions(self) -> tuple[Ints, Ints]:
        """Codes and lengths of the plain expressions that the word stands for: a * inside descends both ways."""
        length = len(self.text)
        places = [place for place in range(self.space.digits - length, self.space.digits) if self.stars >> place & 1]
        codes = np.array([self.value], dtype=np.int64)
        for place in reversed(places):
            codes = np.concatenate([codes, codes | (1 << place)])
        codes.sort()
        return codes, np.full(len(codes), length, dtype=np.int64)

    def to_set(self) -> DzSet:
        """The cells covered, as a set."""
        return DzSet.from_expressions(self.space, *self.expressions())


def union(space: DzSpace, words: Iterable[Word]) -> DzSet:
    """The cells that any of the words covers."""
    found = DzSet.empty(space)
    for word in words:
        found = found | word.to_set()
    return found


def compact(cells: DzSet) -> tuple[Word, ...]:
    """Fewer words than expressions for the same cells: pairs that differ in one digit become one word with a *.

    Digits are tried from the last to the first, so the result is disjoint and deterministic, not always the least.

    >>> space = DzSpace.round_robin({"x": 2, "y": 2})
    >>> [word.text for word in compact(DzSet.of(space, "000", "010"))]
    ['0*0']
    """
    space = cells.space
    codes, lengths = cells.expressions()
    stars = (np.int64(1) << (space.digits - lengths)) - 1
    for place in range(space.digits):
        bit = np.int64(1) << place
        order = np.lexsort((codes, codes & ~bit, stars))
        codes, stars = codes[order], stars[order]
        pair = np.zeros(len(codes), dtype=bool)
        pair[:-1] = (stars[:-1] == stars[1:]) & (codes[:-1] ^ codes[1:] == bit)
        stars = np.where(pair, stars | bit, stars)
        keep = np.ones(len(codes), dtype=bool)
        keep[1:] = ~pair[:-1]
        codes, stars = codes[keep], stars[keep]
    order = np.argsort(codes, kind="stable")
    return tuple(Word(space, int(c), int(s)) for c, s in zip(codes[order], stars[order], strict=True))
