"""Sets of values of one ordered attribute, as a sorted tuple of cuts.

The set holds what lies at or after an even cut and before the next odd one: `(2, 5, 8)` is 2 <= k < 5 or k >= 8. Open
and closed bounds need no flags, because every value has a successor (see `keys`): k > 4 is k >= 5. All operations are
one merge of sorted tuples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

Key: TypeAlias = Any  # int or str, never mixed within one attribute
Cuts: TypeAlias = tuple[Key, ...]

EMPTY: Cuts = ()


def holds(cuts: Cuts, key: Key) -> bool:
    """Whether a value is in the set.

    >>> holds((2, 5, 8), 4), holds((2, 5, 8), 5), holds((2, 5, 8), 99)
    (True, False, True)
    """
    return bisect_right(cuts, key) % 2 == 1


def intersection(one: Cuts, other: Cuts) -> Cuts:
    """Values in both sets.

    >>> intersection((2, 5, 8), (4, 9))
    (4, 5, 8, 9)
    """
    return _merge(one, other, lambda first, second: first and second)


def union(one: Cuts, other: Cuts) -> Cuts:
    """Values in either set.

    >>> union((2, 5), (5, 8))
    (2, 8)
    """
    return _merge(one, other, lambda first, second: first or second)


def difference(one: Cuts, other: Cuts) -> Cuts:
    """Values of the first set that are not in the second.

    >>> difference((2, 9), (4, 5))
    (2, 4, 5, 9)
    """
    return _merge(one, other, lambda first, second: first and not second)


def union_all(sets: Sequence[Cuts]) -> Cuts:
    """Values in any of the sets, in one sweep over all cuts.

    >>> union_all([(2, 5), (9,), (5, 8)])
    (2, 8, 9)
    """
    return _sweep(sets, 1)


def intersection_all(sets: Sequence[Cuts]) -> Cuts:
    """Values in each of the sets, in one sweep over all cuts.

    >>> intersection_all([(2, 9), (4,), (0, 5, 8)])
    (4, 5, 8, 9)
    """
    return _sweep(sets, len(sets))


def _sweep(sets: Sequence[Cuts], least: int) -> Cuts:
    """Values that lie in at least so many of the sets."""
    steps: dict[Key, int] = {}
    for cuts in sets:
        step = 1
        for cut in cuts:
            steps[cut] = steps.get(cut, 0) + step
            step = -step
    found: list[Key] = []
    depth = 0
    for cut in sorted(steps):
        before, depth = depth, depth + steps[cut]
        if (before >= least) != (depth >= least):
            found.append(cut)
    return tuple(found)


def _merge(one: Cuts, other: Cuts, keep: Callable[[bool, bool], bool]) -> Cuts:
    found: list[Key] = []
    inside = first = second = False
    i = j = 0
    while i < len(one) or j < len(other):
        first_next = j == len(other) or (i < len(one) and one[i] <= other[j])
        cut = one[i] if first_next else other[j]
        if i < len(one) and one[i] == cut:
            first, i = not first, i + 1
        if j < len(other) and other[j] == cut:
            second, j = not second, j + 1
        now = keep(first, second)
        if now != inside:
            found.append(cut)
            inside = now
    return tuple(found)


def ranges(cuts: Cuts) -> Iterator[tuple[Key, Key | None]]:
    """The maximal ranges, first value and the cut after the last; None where there is no end."""
    for index in range(0, len(cuts), 2):
        yield cuts[index], cuts[index + 1] if index + 1 < len(cuts) else None
