"""The arrays of an index: blocks of boxes under blocks of bounding boxes, and what is needed to change them in place.

Level 0 is the leaves. Lane j of node i on level k is the bounding box of node 32 i + j on level k - 1. A lane that
holds nothing has lower codes 65535 and upper codes 0, which no row meets. There is no Python object per box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.coding import FULL_CODE, Coder, Codes, Flags, Keys, encode_ranges
from headgate.matching.compiled.jit import Int, kernel
from headgate.matching.compiled.packing import Integers, Splits, fill_leaves, split_boxes

LANES = 32
FILL = 28
EMPTY = np.uint32(0xFFFFFFFF)
GONE = np.uint32(0xFFFFFFFE)

# Places in BoxTree.state.
LIVE, FREE, MISPLACED, TABLE_USED, REPEATED, TOP_ID, MOVED = range(7)


class BoxTree(NamedTuple):
    """Everything a kernel needs. Slots are places of boxes in `exact`, `slot_ids` and `places`.

    `places[slot]` is 32 * leaf + lane; for a free slot it is the next free slot, `state[FREE]` being the first.
    `hashed` is an open-addressed table of slots by id; a class of several boxes has several entries.
    """

    blocks: npt.NDArray[np.uint16]
    levels: Integers
    lane_ids: npt.NDArray[np.uint32]
    lane_slots: npt.NDArray[np.uint32]
    used: npt.NDArray[np.uint32]
    slot_ids: npt.NDArray[np.uint32]
    places: npt.NDArray[np.uint32]
    exact: Keys
    hashed: npt.NDArray[np.uint32]
    state: Integers
    splits: Splits
    coder: Coder


def arrays_of(tree: BoxTree) -> dict[str, np.ndarray]:
    """The arrays by name, in a fixed order: what a file holds."""
    found: dict[str, np.ndarray] = {}
    for name, value in tree._asdict().items():
        if isinstance(value, np.ndarray):
            found[name] = value
        else:
            found.update({f"{name}.{part}": array for part, array in value._asdict().items()})
    return found


def tree_of(arrays: dict[str, np.ndarray]) -> BoxTree:
    """The inverse of `arrays_of`."""
    coder = Coder(*(arrays[f"coder.{part}"] for part in Coder._fields))
    plain = {name: arrays[name] for name in BoxTree._fields if name in arrays}
    return BoxTree(**plain, coder=coder)


def aligned(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """An uninitialised array that starts at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


@kernel
def summarise(blocks: npt.NDArray[np.uint16], levels: Integers, used: npt.NDArray[np.uint32]) -> None:
    """Empty the lanes that are not used and recompute every bounding box from the leaves up."""
    for leaf in range(len(used)):
        for lane in range(LANES):
            if not (used[leaf] >> np.uint32(lane)) & np.uint32(1):
                for column in range(0, blocks.shape[1], 2):
                    blocks[leaf, column, lane] = 65535
                    blocks[leaf, column + 1, lane] = 0
    for level in range(1, len(levels)):
        first, stop = levels[level], len(blocks)
        if level + 1 < len(levels):
            stop = levels[level + 1]
        children = first - levels[level - 1]
        for node in range(first, stop):
            for column in range(0, blocks.shape[1], 2):
                for lane in range(LANES):
                    child = (node - first) * LANES + lane
                    low, high = np.uint16(65535), np.uint16(0)
                    if child < children:
                        below = blocks[levels[level - 1] + child]
                        for k in range(LANES):
                            low = min(low, below[column, k])
                            high = max(high, below[column + 1, k])
                    blocks[node, column, lane] = low
                    blocks[node, column + 1, lane] = high


@kernel
def _fill_table(slot_ids: npt.NDArray[np.uint32], hashed: npt.NDArray[np.uint32], count: Int) -> Int:
    """Enter slots 0 to count - 1; returns how many have an id that another slot has too."""
    mask = np.uint64(len(hashed) - 1)
    repeated: Int = 0
    for slot in range(count):
        place = (np.uint64(slot_ids[slot]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
        same: Int = 0
        while hashed[place & mask] != np.uint32(0xFFFFFFFF):
            same |= np.int64(slot_ids[hashed[place & mask]] == slot_ids[slot])
            place += np.uint64(1)
        hashed[place & mask] = slot
        repeated += same
    return repeated


def level_sizes(leaves: int) -> list[int]:
    """How many nodes each level has; there is always a level above the leaves."""
    sizes = [leaves, -(-leaves // LANES)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // LANES))
    return sizes


def row_weights(attributes: int, coder: Coder, rows: Codes | None) -> npt.NDArray[np.float32]:
    """Share of rows below each code: from a sample of rows where there is one, evenly over the boundaries otherwise.

    A tenth is spread evenly even with a sample, so that what the sample missed is still worth splitting.
    """
    weights = np.zeros((attributes, FULL_CODE + 2), np.float32)
    for k in range(attributes):
        size = int(coder.starts[k + 1] - coder.starts[k]) + 2
        share = np.zeros(FULL_CODE + 1)
        share[:size] = 1.0 / size
        if rows is not None and len(rows):
            share = 0.1 * share + 0.9 * np.bincount(rows[:, k], minlength=FULL_CODE + 1) / len(rows)
        np.cumsum(share, out=weights[k, 1:])
    return weights


def build_tree(
    ids: npt.NDArray[np.uint32],
    exact: Keys,
    nulls: Flags,
    coder: Coder,
    rows: Codes | None = None,
    spare: float = 1 / 64,
) -> BoxTree:
    """The tree of boxes: `exact` is boxes x attributes x (low, high), `rows` codes of a sample of rows."""
    count, attributes = exact.shape[:2]
    codes = np.empty((count, 2 * attributes), np.uint16)
    encode_ranges(coder, exact, nulls, codes)
    capacity = count + max(64, int(count * spare))
    leaves = max(1, -(-int(count * (1 + (spare if spare > 0.1 else 0))) // FILL))
    sizes = level_sizes(leaves)
    blocks = aligned((sum(sizes), 2 * attributes, LANES), np.uint16)
    blocks[:, 0::2, :], blocks[:, 1::2, :] = FULL_CODE, 0
    lane_slots = np.full(leaves * LANES, EMPTY, np.uint32)
    places = np.arange(1, capacity + 1, dtype=np.uint32)
    places[-1] = EMPTY
    order, starts = np.arange(count, dtype=np.int64), np.zeros(leaves + 1, np.int64)
    splits = aligned((leaves, 4), np.int32)
    splits[:] = (0, 0, -1, -1)
    split_boxes(codes, leaves, row_weights(attributes, coder, rows), order, starts, splits)
    fill_leaves(codes, order, starts, blocks, lane_slots, places)
    levels = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    filled = np.diff(starts).astype(np.uint64)
    used = ((np.uint64(1) << filled) - np.uint64(1)).astype(np.uint32)
    summarise(blocks, levels, used)
    slot_ids = np.zeros(capacity, np.uint32)
    slot_ids[:count] = ids
    kept = np.empty((capacity, attributes, 2), np.int64)
    kept[:count] = exact
    kept[count:] = 0
    hashed = np.full(1 << max(6, int(2 * capacity - 1).bit_length() - 1), EMPTY, np.uint32)
    if len(hashed) * 3 < capacity * 4:
        hashed = np.full(2 * len(hashed), EMPTY, np.uint32)
    repeated = _fill_table(slot_ids, hashed, count)
    lane_ids = np.where(lane_slots == EMPTY, 0, slot_ids[np.minimum(lane_slots, capacity - 1)]).astype(np.uint32)
    free = count if count < capacity else int(EMPTY)
    return BoxTree(
        blocks,
        levels,
        lane_ids,
        lane_slots,
        used,
        slot_ids,
        places,
        kept,
        hashed,
        np.array([count, free, 0, count, repeated, ids.max(initial=0), 0, 0], np.int64),
        splits,
        coder,
    )
