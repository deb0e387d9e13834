"""Kernels that give boxes new ranges in bulk: first everybody who must leaves a leaf, then everybody finds a home.

A changed box stays in its lane while its leaf's bounding box contains it. The others are taken out together, the splits
say which leaf each belongs to, and they are put there together. Both passes go leaf by leaf: memory is what a change
costs, and so each leaf is fetched once, in order, ahead of its use. And because all leave before the first arrives,
a leaf has room for about as many as left it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.matching.compiled.change import AHEAD, clear, prefetch, prefetch_leaf, roomy, take_lane, widen, write
from headgate.matching.compiled.coding import Codes, Keys, encode_changes
from headgate.matching.compiled.jit import Int, bare_inner, inner, kernel
from headgate.matching.compiled.ordering import ABREAST
from headgate.matching.compiled.packing import Integers
from headgate.matching.compiled.tree import MISPLACED, MOVED, BoxTree

# A slot's place while its box is in no leaf: this bit and its number among those taken out.
OUT = np.uint32(0x80000000)

FULL = np.uint32(0xFFFFFFFF)


@inner
def _by_leaf(leaves: npt.NDArray[np.int32], count: Int, all_leaves: Int) -> Integers:
    """The order of the first `count` entries by leaf, equal ones as they come; as they are where sorting costs more."""
    order = np.empty(count, np.int64)
    if count * 4 < all_leaves:
        for k in range(count):
            order[k] = k
        return order
    heads = np.zeros(all_leaves + 1, np.int32)
    for k in range(count):
        heads[leaves[k] + 1] += 1
    for leaf in range(all_leaves):
        heads[leaf + 1] += heads[leaf]
    for k in range(count):
        leaf = leaves[k]
        order[heads[leaf]] = k
        heads[leaf] += 1
    return order


@inner
def _take_out(
    tree: BoxTree,
    slots: Integers,
    attributes: Integers,
    lows: Keys,
    highs: Keys,
    move: bool,
    movers: Integers,
    codes: Codes,
    origins: npt.NDArray[np.int32],
) -> Int:
    """Write every new range; boxes that their leaf cannot hold are taken out. Returns how many those are."""
    blocks, levels, used, places, exact = tree.blocks, tree.levels, tree.used, tree.places, tree.exact
    count = len(slots)
    leaves = np.empty(count, np.int32)
    for k in range(count):
        leaves[k] = places[slots[k]] >> np.uint32(5)
    order = _by_leaf(leaves, count, len(used))
    lowers, uppers = np.empty(count, np.uint16), np.empty(count, np.uint16)
    encode_changes(tree.coder, attributes, lows, highs, lowers, uppers)
    out: Int = 0
    for k in range(-AHEAD, count):
        soon = k + AHEAD
        if soon < count:
            change = order[soon]
            attribute, leaf = attributes[change], np.int64(leaves[change])
            prefetch(exact.ctypes.data + slots[change] * exact.strides[0] + attribute * 16)
            lower, upper = lowers[change], uppers[change]
            above, side = levels[1] + (leaf >> 5), leaf & 31
            if blocks[above, 2 * attribute, side] > lower or blocks[above, 2 * attribute + 1, side] < upper:
                prefetch_leaf(blocks, leaf)
            else:
                address = blocks.ctypes.data + leaf * blocks.strides[0] + attribute * 128
                prefetch(address)
                prefetch(address + 64)
        if k < 0:
            continue
        change = order[k]
        slot, column = slots[change], 2 * attributes[change]
        lower, upper = np.int64(lowers[change]), np.int64(uppers[change])
        exact[slot, attributes[change], 0] = lows[change]
        exact[slot, attributes[change], 1] = highs[change]
        if places[slot] & OUT:
            mover = np.int64(places[slot] ^ OUT)
            codes[mover, column], codes[mover, column + 1] = lower, upper
            continue
        place = np.int64(places[slot])
        leaf, lane = place >> 5, place & 31
        above, side = levels[1] + (leaf >> 5), leaf & 31
        if blocks[above, column, side] > lower or blocks[above, column + 1, side] < upper:
            if move and len(used) > 1:
                for other in range(codes.shape[1]):
                    codes[out, other] = blocks[leaf, other, lane]
                codes[out, column], codes[out, column + 1] = lower, upper
                clear(blocks, used, place)
                movers[out], origins[out] = slot, leaf
                places[slot] = OUT | np.uint32(out)
                out += 1
                continue
            widen(blocks, levels, leaf, attributes[change], lower, upper)
        blocks[leaf, column, lane], blocks[leaf, column + 1, lane] = lower, upper
    return out


@bare_inner
def _find_homes(tree: BoxTree, codes: Codes, count: Int, homes: npt.NDArray[np.int32]) -> None:
    """The leaf that the splits give each box."""
    splits = tree.splits
    for first in range(0, count, ABREAST):
        last = min(first + ABREAST, count)
        for box in range(first, last):
            homes[box] = 0
        deeper = True
        while deeper:
            deeper = False
            for box in range(first, last):
                here = homes[box]
                if here >= 0:
                    side = np.int64(np.int64(codes[box, splits[here, 0]]) >= np.int64(splits[here, 1]))
                    homes[box] = splits[here, 2 + side]
                    deeper = True
        for box in range(first, last):
            homes[box] = ~homes[box]


@bare_inner
def _put(tree: BoxTree, leaf: Int, slot: Int, codes: Codes) -> None:
    """Put a box that was taken out into a leaf that has room."""
    lane = take_lane(tree.used, leaf)
    tree.lane_ids[leaf * 32 + lane] = tree.slot_ids[slot]
    tree.lane_slots[leaf * 32 + lane] = slot
    tree.places[slot] = leaf * 32 + lane
    write(tree.blocks, tree.levels, leaf, lane, codes)


@inner
def _put_in(tree: BoxTree, movers: Integers, codes: Codes, origins: npt.NDArray[np.int32], count: Int) -> None:
    """Put boxes where they belong; where that is full beside it, else back, else anywhere."""
    used = tree.used
    homes = np.empty(count, np.int32)
    _find_homes(tree, codes, count, homes)
    order = _by_leaf(homes, count, len(used))
    left: Int = 0
    for k in range(-AHEAD, count):
        soon = k + AHEAD
        if soon < count:
            box = order[soon]
            leaf = np.int64(homes[box])
            prefetch_leaf(tree.blocks, leaf)
            prefetch(tree.slot_ids.ctypes.data + movers[box] * 4)
            prefetch(tree.lane_ids.ctypes.data + leaf * 128)
            prefetch(tree.lane_slots.ctypes.data + leaf * 128)
        if k < 0:
            continue
        box = order[k]
        if used[homes[box]] == FULL:
            order[left] = box
            left += 1
        else:
            _put(tree, np.int64(homes[box]), movers[box], codes[box])
    spill: Int = 0
    for k in range(left):
        box = order[k]
        leaf = roomy(used, np.int64(homes[box]))
        if leaf < 0:
            leaf = np.int64(origins[box])
            tree.state[MISPLACED] += 1
            if used[leaf] == FULL:
                while used[spill] == FULL:
                    spill += 1
                leaf = spill
        _put(tree, leaf, movers[box], codes[box])


@kernel
def change_ranges(tree: BoxTree, slots: Integers, attributes: Integers, lows: Keys, highs: Keys, move: bool) -> None:
    """Give each slot's attribute a new range of non-null keys; of two changes of one range the last one stays.

    Without `move` boxes widen their leaves instead of leaving them.
    """
    count = len(slots)
    movers, origins = np.empty(count, np.int64), np.empty(count, np.int32)
    codes = np.empty((count, tree.blocks.shape[1]), np.uint16)
    out = _take_out(tree, slots, attributes, lows, highs, move, movers, codes, origins)
    _put_in(tree, movers, codes, origins, out)
    tree.state[MOVED] += out
