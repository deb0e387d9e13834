"""Kernels that put things in order: rows so that neighbours meet the same leaves, and ids where they must be sorted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.coding import Codes
from headgate.matching.compiled.jit import Int, inner, kernel, shared
from headgate.matching.compiled.packing import Integers, Splits
from headgate.matching.compiled.tree import REPEATED, TOP_ID, BoxTree
from headgate.matching.lists import Ids

RANK_SORT_LIMIT = 128
BUCKET_BITS = 12
# Descents of the splits that run side by side.
ABREAST = 8


@inner
def _rank_sort(values: Ids, out: Ids, repeats: bool) -> None:
    """Sort by counting smaller values: quadratic, but 16 comparisons an instruction and no branch."""
    count = len(values)
    for k in range(count):
        value, rank = values[k], np.uint32(0)
        for j in range(count):
            rank += np.uint32(values[j] < value)
        if repeats:
            for j in range(k):
                rank += np.uint32(values[j] == value)
        out[rank] = value


@shared
def _sort(values: Ids, out: Ids, heads: npt.NDArray[np.int32], top: Int, repeats: bool) -> None:
    """Sort ids into `out`; `values` is room: long lists go into buckets by their leading bits, and those by rank."""
    count = len(values)
    bits = 0
    while (top >> bits) > 0:
        bits += 1
    wanted = 0
    if count > RANK_SORT_LIMIT:
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
        out[heads[bucket]] = values[k]
        heads[bucket] += 1
    values[:] = out
    start: Int = 0
    for k in range(buckets):
        end = np.int64(heads[k])
        if end - start > RANK_SORT_LIMIT:
            values[start:end].sort()
            out[start:end] = values[start:end]
        else:
            _rank_sort(values[start:end], out[start:end], repeats)
        start = end


@shared
def sorted_ids(tree: BoxTree, places: Ids, out: Ids, spare: Ids, heads: npt.NDArray[np.int32]) -> Int:
    """The ids of the boxes at some places into `out`, ascending, each once; returns how many they are."""
    count, repeats = len(places), tree.state[REPEATED] > 0
    for k in range(count):
        spare[k] = tree.lane_ids[places[k]]
    _sort(spare[:count], out[:count], heads, tree.state[TOP_ID], repeats)
    if not repeats or count == 0:
        return count
    kept = 1
    for k in range(1, count):
        if out[k] != out[kept - 1]:
            out[kept] = out[k]
            kept += 1
    return kept


@kernel
def write_ids(
    tree: BoxTree,
    places: Ids,
    starts: Integers,
    sets: Integers,
    offsets: Integers,
    ids: Ids,
    spare: Ids,
    heads: npt.NDArray[np.int32],
) -> None:
    """Sorted ids of every row, from the places of the set that each row has."""
    for row in range(len(sets)):
        mine = places[starts[sets[row]] : starts[sets[row] + 1]]
        offsets[row + 1] = offsets[row] + sorted_ids(tree, mine, ids[offsets[row] :], spare, heads)


@kernel
def find_sets(codes: Codes, table: npt.NDArray[np.int32], sets: Integers, chosen: Integers) -> Int:
    """Rows with the same codes are one set: the set of each row, and a row of each; returns how many sets there are.

    `table` is full of -1, its length a power of two above the number of rows.
    """
    mask = np.uint64(len(table) - 1)
    found: Int = 0
    for row in range(len(codes)):
        spread = np.uint64(0)
        for k in range(codes.shape[1]):
            spread = (spread ^ np.uint64(codes[row, k])) * np.uint64(0x9E3779B97F4A7C15)
            spread ^= spread >> np.uint64(29)
        place = spread & mask
        while table[place] >= 0:
            other, same = chosen[table[place]], True
            for k in range(codes.shape[1]):
                same = same and codes[other, k] == codes[row, k]
            if same:
                break
            place = (place + np.uint64(1)) & mask
        if table[place] < 0:
            table[place] = found
            chosen[found] = row
            found += 1
        sets[row] = table[place]
    return found


@kernel
def order_rows(codes: Codes, splits: Splits, leaves: Int, order: Integers) -> None:
    """Rows by the leaf that the splits give them, as if a row were a box that begins and ends at its codes.

    Rows of one leaf or of neighbours meet nearly the same leaves, which so stay in the cache from one row to the next.
    Several rows descend side by side: one waits for memory while the others go on.
    """
    rows = len(codes)
    homes = np.zeros(rows, np.int32)
    for first in range(0, rows, ABREAST):
        last = min(first + ABREAST, rows)
        deeper = True
        while deeper:
            deeper = False
            for row in range(first, last):
                here = homes[row]
                if here >= 0:
                    side = np.int64(np.int64(codes[row, splits[here, 0] >> 1]) >= np.int64(splits[here, 1]))
                    homes[row] = splits[here, 2 + side]
                    deeper = True
    heads = np.zeros(leaves + 1, np.int32)
    for row in range(rows):
        heads[~homes[row] + 1] += 1
    for k in range(leaves):
        heads[k + 1] += heads[k]
    for row in range(rows):
        leaf = ~homes[row]
        order[heads[leaf]] = row
        heads[leaf] += 1
