"""Bulk loading: boxes into leaves so that a row meets few of them.

Top-down greedy splits: a set of boxes is halved by the lower or the upper bound of the attribute that shrinks the two
halves' bounding boxes most, weighed by how often rows fall there. So the data chooses the attributes: one that nobody
constrains, or that all constrain alike, is never split; wide and narrow ranges part by themselves because a wide range
has a low lower and a high upper bound. Halves are cut at ranks, never at values, so equal boxes still fill leaves
evenly. The splits are kept: they lead a changed box to its new leaf.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.coding import Codes
from headgate.matching.compiled.jit import Int, inner, kernel

SAMPLE = 64

Integers = npt.NDArray[np.int64]


# The binary tree of splits, one line of four numbers each: column, threshold, child below it, child at or above it.
# A child c >= 0 is a split, otherwise it is leaf ~c.
Splits = npt.NDArray[np.int32]


@inner
def _partition(order: Integers, start: Int, stop: Int, rank: Int, column: Int, codes: Codes) -> None:
    """Reorder so that no code before `rank` exceeds one at or after it."""
    while stop - start > 1:
        first = codes[order[start], column]
        middle = codes[order[(start + stop) // 2], column]
        last = codes[order[stop - 1], column]
        pivot = max(min(first, middle), min(max(first, middle), last))
        left, right = start, stop - 1
        while left <= right:
            while codes[order[left], column] < pivot:
                left += 1
            while codes[order[right], column] > pivot:
                right -= 1
            if left <= right:
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if rank <= right:
            stop = right + 1
        elif rank >= left:
            start = left
        else:
            return


@inner
def _score(codes: Codes, sample: Integers, column: Int, values: Integers, weights: npt.NDArray[np.float32]) -> float:
    """Expected share of boxes still met after halving the sample by a column; 2 where the column cannot halve it."""
    count = len(sample)
    attribute = column // 2
    for k in range(count):
        values[k] = codes[sample[k], column]
    ordered = np.sort(values[:count])
    if ordered[0] == ordered[count - 1]:
        return 2.0
    cut = ordered[count // 2]
    if cut == ordered[0]:
        cut = ordered[np.searchsorted(ordered, cut, side="right")]
    left_low: Int = 65535
    left_high: Int = 0
    right_low: Int = 65535
    right_high: Int = 0
    left = 0
    for k in range(count):
        low = np.int64(codes[sample[k], 2 * attribute])
        high = np.int64(codes[sample[k], 2 * attribute + 1])
        if values[k] < cut:
            left_low, left_high = min(left_low, low), max(left_high, high)
            left += 1
        else:
            right_low, right_high = min(right_low, low), max(right_high, high)
    weight = weights[attribute]
    whole = weight[max(left_high, right_high) + 1] - weight[min(left_low, right_low)]
    halves = left * (weight[left_high + 1] - weight[left_low])
    halves += (count - left) * (weight[right_high + 1] - weight[right_low])
    return float(halves / (count * whole + np.float32(1e-30)))


@inner
def _best_column(
    order: Integers, start: Int, stop: Int, codes: Codes, weights: npt.NDArray[np.float32], values: Integers
) -> Int:
    count = min(SAMPLE, stop - start)
    sample = np.empty(count, np.int64)
    for k in range(count):
        sample[k] = order[start + k * (stop - start) // count]
    best, found = 1.5, 0
    for column in range(codes.shape[1]):
        score = _score(codes, sample, column, values, weights)
        if score < best:
            best, found = score, column
    return found


@kernel
def split_boxes(
    codes: Codes, leaves: Int, weights: npt.NDArray[np.float32], order: Integers, starts: Integers, splits: Splits
) -> None:
    """Fill `order` with boxes by leaf, `starts` with each leaf's first place in it, and the splits.

    `weights[a, c]` is the share of rows whose code on attribute a is below c.
    """
    pending = np.empty((256, 5), np.int64)
    values = np.empty(SAMPLE, np.int64)
    depth, made = 1, 0
    pending[0] = (0, len(codes), 0, leaves, -1)
    while depth > 0:
        depth -= 1
        start, stop, leaf, count, parent = pending[depth]
        here = made if count > 1 else ~leaf
        if parent >= 0:
            splits[parent >> 1, 2 + (parent & 1)] = here
        if count == 1:
            starts[leaf] = start
            continue
        made += 1
        left = count // 2
        if count > 2048:
            left = (left + 512) // 1024 * 1024
        elif count > 64:
            left = (left + 16) // 32 * 32
        rank = start + (stop - start) * left // count
        column = _best_column(order, start, stop, codes, weights, values)
        _partition(order, start, stop, rank, column, codes)
        threshold: Int = 0
        if rank < stop:
            threshold = 65535
            for k in range(rank, stop):
                threshold = min(threshold, np.int64(codes[order[k], column]))
        splits[here, 0] = column
        splits[here, 1] = threshold
        pending[depth] = (start, rank, leaf, left, 2 * here)
        pending[depth + 1] = (rank, stop, leaf + left, count - left, 2 * here + 1)
        depth += 2
    starts[leaves] = len(codes)


@kernel
def fill_leaves(
    codes: Codes,
    order: Integers,
    starts: Integers,
    blocks: npt.NDArray[np.uint16],
    lane_slots: npt.NDArray[np.uint32],
    places: npt.NDArray[np.uint32],
) -> None:
    """Write boxes into their lanes and remember where each is."""
    for leaf in range(len(starts) - 1):
        for k in range(starts[leaf], starts[leaf + 1]):
            lane, box = k - starts[leaf], order[k]
            lane_slots[leaf * 32 + lane] = box
            places[box] = leaf * 32 + lane
            for column in range(codes.shape[1]):
                blocks[leaf, column, lane] = codes[box, column]
