"""Kernels that put things in order: the ids that a row matches, and rows so that neighbours meet the same leaves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.coding import Codes
from headgate.matching.compiled.jit import Int, inner, kernel
from headgate.matching.compiled.packing import Integers
from headgate.matching.lists import Ids

RANK_SORT_LIMIT = 128
BUCKET_BITS = 12


@inner
def _rank_sort(values: Ids, spare: Ids, repeats: bool) -> None:
    """Sort by counting smaller values: quadratic, but 16 comparisons an instruction and no branch."""
    count = len(values)
    for k in range(count):
        value, rank = values[k], np.uint32(0)
        for j in range(count):
            rank += np.uint32(values[j] < value)
        if repeats:
            for j in range(k):
                rank += np.uint32(values[j] == value)
        spare[rank] = value
    values[:] = spare[:count]


@inner
def sort_ids(values: Ids, spare: Ids, heads: npt.NDArray[np.int32], top: Int, repeats: bool) -> None:
    """Sort ids: short lists by rank, long ones into buckets by their leading bits and those by rank."""
    count = len(values)
    if count <= RANK_SORT_LIMIT:
        _rank_sort(values, spare, repeats)
        return
    bits = 0
    while (top >> bits) > 0:
        bits += 1
    wanted = 0
    while (1 << wanted) * 12 < count and wanted < BUCKET_BITS:
        wanted += 1
    shift = np.uint32(max(0, bits - wanted))
    buckets = (top >> np.int64(shift)) + 1
    heads[: buckets + 1] = 0
    for k in range(count):
        heads[(values[k] >> shift) + 1] += 1
    for k in range(1, buckets + 1):
        heads[k] += heads[k - 1]
    for k in range(count):
        bucket = values[k] >> shift
        spare[heads[bucket]] = values[k]
        heads[bucket] += 1
    start: Int = 0
    for k in range(buckets):
        end = np.int64(heads[k])
        part = spare[start:end]
        if end - start > RANK_SORT_LIMIT:
            part.sort()
            values[start:end] = part
        else:
            for j in range(len(part)):
                value, rank = part[j], np.uint32(0)
                for i in range(len(part)):
                    rank += np.uint32(part[i] < value)
                if repeats:
                    for i in range(j):
                        rank += np.uint32(part[i] == value)
                values[start + rank] = value
        start = end


@inner
def drop_repeats(values: Ids) -> Int:
    """Drop repeats from sorted ids in place; returns how many are left."""
    kept = min(1, len(values))
    for k in range(1, len(values)):
        if values[k] != values[kept - 1]:
            values[kept] = values[k]
            kept += 1
    return kept


@kernel
def order_rows(codes: Codes, chosen: Integers, bits: Integers, limits: Integers, order: Integers) -> None:
    """Rows by cell: a stable counting sort by the leading bits of the codes of a few attributes.

    Rows of one cell meet nearly the same leaves, which so stay in the cache from one row to the next.
    """
    rows = len(codes)
    cells = np.empty(rows, np.int32)
    total = 0
    for k in range(len(bits)):
        total += bits[k]
    heads = np.zeros((1 << total) + 1, np.int64)
    for row in range(rows):
        cell = 0
        for k in range(len(chosen)):
            part = (np.int64(codes[row, chosen[k]]) << bits[k]) // limits[k]
            cell = (cell << bits[k]) | min(part, (1 << bits[k]) - 1)
        cells[row] = cell
        heads[cell + 1] += 1
    for k in range(1, len(heads)):
        heads[k] += heads[k - 1]
    for row in range(rows):
        order[heads[cells[row]]] = row
        heads[cells[row]] += 1
