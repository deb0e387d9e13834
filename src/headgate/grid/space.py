"""The space that DZ expressions divide: named dimensions, digits for each, and the order of the digits.

A DZ expression (grid paper, section 4.1) halves the space digit by digit, round robin over the dimensions. Here the
finest cells of the space are numbered in that order (their z-code, an integer of `digits` bits), and an expression is
the pair (code, length): its digits left-aligned in `digits` bits, so it stands for the interval of z-codes
``[code, code + 2**(digits - length))``. Containment, intersection and difference become integer comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import kernel

MAX_DIGITS = 60

Ints = npt.NDArray[np.int64]


@kernel
def _interleave(cells: Ints, order: Ints, bit: Ints, out: Ints) -> None:
    for row in range(cells.shape[0]):
        code = 0
        for digit in range(order.shape[0]):
            code = (code << 1) | ((cells[row, order[digit]] >> bit[digit]) & 1)
        out[row] = code


@kernel
def _separate(codes: Ints, order: Ints, bit: Ints, out: Ints) -> None:
    digits = order.shape[0]
    for row in range(codes.shape[0]):
        for digit in range(digits):
            out[row, order[digit]] |= ((codes[row] >> (digits - 1 - digit)) & 1) << bit[digit]


@dataclass(frozen=True)
class DzSpace:
    """Dimensions by name and the dimension that each digit halves, most significant digit first.

    >>> space = DzSpace.round_robin({"x": 2, "y": 1})
    >>> space.digits, [space.names[d] for d in space.order]
    (3, ['x', 'y', 'x'])
    """

    names: tuple[str, ...]
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"dimension names must be given and differ, not {self.names}")
        if len(self.order) > MAX_DIGITS:
            raise ValueError(f"{len(self.order)} digits are more than the {MAX_DIGITS} that fit an expression")
        if any(not 0 <= dimension < len(self.names) for dimension in self.order):
            raise ValueError("every digit must belong to a dimension")

    @classmethod
    def round_robin(cls, depths: Mapping[str, int], *, first: Sequence[str] = ()) -> DzSpace:
        """Digits in turn over the dimensions, each until its depth is used up.

        Dimensions in `first` have all their digits in front: with the spatial ones there, the number of regions grows
        with area alone at the top of the index (end of section 4.5.2).
        """
        names = tuple(depths)
        if any(depth < 0 for depth in depths.values()):
            raise ValueError(f"depths are at least 0, not {dict(depths)}")
        order: list[int] = []
        for group in ([n for n in names if n in first], [n for n in names if n not in first]):
            for level in range(max((depths[n] for n in group), default=0)):
                order.extend(names.index(n) for n in group if depths[n] > level)
        return cls(names, tuple(order))

    @property
    def digits(self) -> int:
        """Length of the longest expression."""
        return len(self.order)

    @property
    def cells(self) -> int:
        """Number of finest cells."""
        return 1 << self.digits

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Digits of each dimension."""
        return tuple(self.order.count(dimension) for dimension in range(len(self.names)))

    @cached_property
    def order_array(self) -> Ints:
        """`order` for the kernels."""
        return np.array(self.order, dtype=np.int64)

    @cached_property
    def bit_array(self) -> Ints:
        """For each digit, the bit of its dimension's cell number that it holds."""
        left = list(self.depths)
        bits = []
        for dimension in self.order:
            left[dimension] -= 1
            bits.append(left[dimension])
        return np.array(bits, dtype=np.int64)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each dimension at full depth."""
        return tuple(1 << depth for depth in self.depths)

    def encode(self, cells: npt.ArrayLike) -> Ints:
        """z-codes of finest cells, given as one row of cell numbers per cell.

        >>> DzSpace.round_robin({"x": 2, "y": 1}).encode([[2, 1], [1, 0]]).tolist()
        [6, 1]
        """
        rows = np.ascontiguousarray(np.atleast_2d(np.asarray(cells, dtype=np.int64)))
        if rows.shape[1] != len(self.names):
            raise ValueError(f"expected {len(self.names)} cell numbers per row, not {rows.shape[1]}")
        if rows.size and ((rows < 0).any() or (rows >= np.array(self.shape)).any()):
            raise ValueError(f"cell numbers must lie in {self.shape}")
        out = np.zeros(len(rows), dtype=np.int64)
        _interleave(rows, self.order_array, self.bit_array, out)
        return out

    def decode(self, codes: npt.ArrayLike) -> Ints:
        """Cell numbers of z-codes, the inverse of `encode`."""
        flat = np.atleast_1d(np.asarray(codes, dtype=np.int64))
        out = np.zeros((len(flat), len(self.names)), dtype=np.int64)
        _separate(flat, self.order_array, self.bit_array, out)
        return out

    def parse(self, text: str) -> tuple[int, int]:
        """Code and length of an expression written as digits.

        >>> DzSpace.round_robin({"x": 2, "y": 2}).parse("01")
        (4, 2)
        """
        if len(text) > self.digits or any(digit not in "01" for digit in text):
            raise ValueError(f"{text!r} is not an expression of at most {self.digits} digits 0 and 1")
        return int(text or "0", 2) << (self.digits - len(text)), len(text)

    def text(self, code: int, length: int) -> str:
        """An expression as digits, the inverse of `parse`; the whole space is the empty text."""
        return format(code >> (self.digits - length), f"0{length}b") if length else ""
