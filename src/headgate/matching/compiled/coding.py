"""Narrow codes: exact 64-bit keys of an attribute as 16 bits, monotone, rounded outwards.

An attribute has sorted boundary keys; the code of a key is one more than the number of boundaries at or below it, and
a null is 0. A range's codes contain the codes of every key in the range, so a test on codes misses nothing. It is
exact where the range's lower key, and the key after its upper one, are boundaries, which all are as long as an
attribute has at most `MAX_BOUNDARIES` of them; past that a quantile of them is kept and `inexact` is set, and rows
whose code equals a range's code are checked again with the keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.jit import Int, bare_inner, bare_kernel

MAX_BOUNDARIES = 65_500
FULL_CODE = 65_535
TABLE = 4096
LOWEST = -(2**63)
HIGHEST = 2**63 - 1

Keys = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint16]
Flags = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

# What a range says of nulls: none pass, only they do, or everything does (then the keys are LOWEST and HIGHEST).
NO_NULLS, ONLY_NULLS, ALSO_NULLS = 0, 1, 2


class Coder(NamedTuple):
    """The boundaries of all attributes and a table into them by value, as flat arrays for kernels."""

    boundaries: Keys
    starts: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint16]
    origin: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    floating: Flags
    inexact: Flags


@bare_inner
def _position(key: Int, floating: Int) -> float:
    """The place of a key on the number line, monotone; for floating attributes the value itself."""
    if floating:
        size = np.int64(abs(key)).view(np.float64)
        return -size if key < 0 else size
    return float(key)


@bare_inner
def _bucket(place: Any, origin: Any, scale: Any) -> Int:
    """The table entry of a place: monotone in exact and in rounded arithmetic; NaN comes last, as its key does."""
    slot = (place - origin) * scale
    slot = slot if slot < TABLE - 1.0 else TABLE - 1.0  # noqa: FURB136 (what min makes of NaN is not defined here)
    slot = slot if slot > 0.0 else 0.0  # noqa: FURB136 (likewise)
    return int(slot)


@bare_inner
def below(coder: Coder, attribute: Int, key: Int) -> Int:
    """How many boundaries of the attribute are at or below the key."""
    place = _position(key, coder.floating[attribute])
    bucket = _bucket(place, coder.origin[attribute], coder.scale[attribute])
    start = coder.starts[attribute]
    found: Int = start + np.int64(coder.table[attribute, bucket])
    left: Int = start + np.int64(coder.table[attribute, bucket + 1]) - found
    if len(coder.boundaries) == 0:
        return 0
    # Halves are added, not branched on: which one it is cannot be predicted, nor whether a bucket is empty.
    while True:
        half = (left + 1) >> 1
        found += half * np.int64(coder.boundaries[max(found + half - 1, 0)] <= key)
        left -= half
        if left <= 0:
            return found - start


@bare_kernel
def encode_rows(coder: Coder, keys: Keys, valid: Flags, codes: Codes) -> None:
    """Codes of a batch; `keys` and `valid` are attributes x rows, `codes` rows x attributes."""
    for attribute in range(keys.shape[0]):
        for row in range(keys.shape[1]):
            if valid[attribute, row]:
                codes[row, attribute] = 1 + below(coder, attribute, keys[attribute, row])
            else:
                codes[row, attribute] = 0


@bare_inner
def code_range(coder: Coder, attribute: Int, low: Int, high: Int, nulls: Int) -> tuple[Int, Int]:
    """The two codes of a range; marks the attribute inexact where they do not say it all."""
    if nulls == ONLY_NULLS:
        return 0, 0
    start, stop = coder.starts[attribute], coder.starts[attribute + 1]
    lower, upper = 0 if nulls == ALSO_NULLS else 1, FULL_CODE
    if low != LOWEST:
        under = below(coder, attribute, low)
        lower = 1 + under
        if under == 0 or coder.boundaries[start + under - 1] != low:
            coder.inexact[attribute] = 1
    if high != HIGHEST:
        over = below(coder, attribute, high)
        upper = 1 + over
        if start + over == stop or coder.boundaries[start + over] != high + 1:
            coder.inexact[attribute] = 1
    return lower, upper


@bare_kernel
def encode_changes(coder: Coder, attributes: Integers, lows: Keys, highs: Keys, lowers: Codes, uppers: Codes) -> None:
    """Codes of single ranges of non-null keys, each of its own attribute."""
    for k in range(len(attributes)):
        lowers[k], uppers[k] = code_range(coder, attributes[k], lows[k], highs[k], NO_NULLS)


@bare_kernel
def encode_ranges(coder: Coder, exact: Keys, nulls: Flags, codes: Codes) -> None:
    """Codes of boxes; `exact` is boxes x attributes x (low, high), `codes` boxes x (lower, upper of each attribute)."""
    for box in range(exact.shape[0]):
        for attribute in range(exact.shape[1]):
            low, high = exact[box, attribute, 0], exact[box, attribute, 1]
            lower, upper = code_range(coder, attribute, low, high, nulls[box, attribute])
            codes[box, 2 * attribute] = lower
            codes[box, 2 * attribute + 1] = upper


@bare_kernel
def _fill_table(coder: Coder) -> None:
    for attribute in range(len(coder.starts) - 1):
        start, stop = coder.starts[attribute], coder.starts[attribute + 1]
        bucket = 0
        for place in range(start, stop):
            value = _position(coder.boundaries[place], coder.floating[attribute])
            here = _bucket(value, coder.origin[attribute], coder.scale[attribute])
            while bucket <= here:
                coder.table[attribute, bucket] = place - start
                bucket += 1
        while bucket <= TABLE:
            coder.table[attribute, bucket] = stop - start
            bucket += 1


def positions(keys: Keys, floating: bool) -> npt.NDArray[np.float64]:
    """Places of keys on the number line; see `float_keys` for the inverse."""
    if not floating:
        return keys.astype(np.float64)
    sizes = np.abs(keys).view(np.float64)
    return np.where(keys < 0, -sizes, sizes)


def _boundaries(exact: Keys, nulls: Flags, limit: int) -> tuple[Keys, bool]:
    """The boundary keys of one attribute's ranges, and whether all of them were kept."""
    ranges = exact[nulls != ONLY_NULLS]
    lower, upper = ranges[:, 0], ranges[:, 1]
    found = np.unique(np.concatenate([lower[lower != LOWEST], upper[upper != HIGHEST] + 1]))
    if len(found) <= limit:
        return found, True
    return found[np.linspace(0, len(found) - 1, limit).astype(np.int64)], False


def make_coder(exact: Keys, nulls: Flags, floating: Flags, limit: int = MAX_BOUNDARIES) -> Coder:
    """The coder of a set of boxes: boxes x attributes x (low, high)."""
    attributes = exact.shape[1]
    parts = [_boundaries(exact[:, k], nulls[:, k], limit) for k in range(attributes)]
    starts = np.zeros(attributes + 1, np.int64)
    np.cumsum([len(part) for part, _ in parts], out=starts[1:])
    origin, scale = np.zeros(attributes), np.ones(attributes)
    for k, (part, _) in enumerate(parts):
        places = positions(part, bool(floating[k]))
        places = places[np.isfinite(places)]
        if len(places):
            origin[k] = places[0]
            with np.errstate(over="ignore", divide="ignore"):
                steep = TABLE / (places[-1] - places[0])
            scale[k] = steep if 0 < steep < np.inf else 1.0
    coder = Coder(
        np.concatenate([part for part, _ in parts]),
        starts,
        np.zeros((attributes, TABLE + 1), np.uint16),
        origin,
        scale,
        np.ascontiguousarray(floating, np.uint8),
        np.array([not whole for _, whole in parts], np.uint8),
    )
    _fill_table(coder)
    return coder
