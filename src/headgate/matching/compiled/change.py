"""Kernels that add and remove boxes in place, and the steps that these share with changes (`moving`).

The splits say which leaf a box belongs to; it goes there, or to a sibling with a free lane, or anywhere. Bounding boxes
only ever grow here, so a row can be tested against more leaves than it need be but never misses one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headgate.matching.compiled.coding import Codes, Flags, Keys, code_range
from headgate.matching.compiled.jit import Int, bare_inner, bare_kernel, kernel
from headgate.matching.compiled.packing import Integers, Splits
from headgate.matching.compiled.tree import FREE, GONE, LIVE, MISPLACED, REPEATED, TABLE_USED, TOP_ID, BoxTree

Slots = npt.NDArray[np.uint32]
Blocks = npt.NDArray[np.uint16]

# How many changes ahead memory is asked for.
AHEAD = 16


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address."""
    del typing_context, address

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        byte, flag = ir.PointerType(ir.IntType(8)), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]), "llvm.prefetch.p0"
        )
        builder.call(function, [builder.inttoptr(arguments[0], byte), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@bare_inner
def _home(splits: Splits, codes: Codes) -> Int:
    """The leaf that the splits give a box."""
    here: Int = 0
    while here >= 0:
        side = np.int64(np.int64(codes[splits[here, 0]]) >= np.int64(splits[here, 1]))
        here = np.int64(splits[here, 2 + side])
    return ~here


@bare_inner
def widen(blocks: Blocks, levels: Integers, leaf: Int, attribute: Int, low: Int, high: Int) -> None:
    """Let the bounding boxes above a leaf contain a range."""
    node = leaf
    for level in range(1, len(levels)):
        block, lane = levels[level] + (node >> 5), node & 31
        grown = False
        if blocks[block, 2 * attribute, lane] > low:
            blocks[block, 2 * attribute, lane] = low
            grown = True
        if blocks[block, 2 * attribute + 1, lane] < high:
            blocks[block, 2 * attribute + 1, lane] = high
            grown = True
        if not grown:
            return
        node >>= 5


@bare_inner
def roomy(used: Slots, home: Int) -> Int:
    """The home leaf if it has a free lane, else a sibling that has one, else -1."""
    for step in range(32):
        leaf = home ^ step
        if leaf < len(used) and used[leaf] != np.uint32(0xFFFFFFFF):
            return leaf
    return -1


@bare_inner
def take_lane(used: Slots, leaf: Int) -> Int:
    """Claim a free lane of a leaf that has one."""
    lane, free = 0, ~used[leaf]
    while not (free >> np.uint32(lane)) & np.uint32(1):
        lane += 1
    used[leaf] |= np.uint32(1) << np.uint32(lane)
    return lane


@bare_inner
def write(blocks: Blocks, levels: Integers, leaf: Int, lane: Int, codes: Codes) -> None:
    """Write a box into a lane and let the bounding boxes above contain it."""
    for column in range(len(codes)):
        blocks[leaf, column, lane] = codes[column]
    above, side = levels[1] + (leaf >> 5), leaf & 31
    for attribute in range(len(codes) // 2):
        low, high = codes[2 * attribute], codes[2 * attribute + 1]
        if blocks[above, 2 * attribute, side] > low or blocks[above, 2 * attribute + 1, side] < high:
            widen(blocks, levels, leaf, attribute, low, high)


@bare_inner
def clear(blocks: Blocks, used: Slots, place: Int) -> None:
    """Empty a lane: one attribute that no row meets is enough, `summarise` does the others."""
    leaf, lane = place >> 5, place & 31
    used[leaf] &= ~(np.uint32(1) << np.uint32(lane))
    blocks[leaf, 0, lane] = 65535
    blocks[leaf, 1, lane] = 0


@bare_inner
def _find(hashed: Slots, slot_ids: Slots, identity: Int) -> Int:
    """The place in `hashed` of an id's first entry, or -1."""
    mask = np.uint64(len(hashed) - 1)
    place = (np.uint64(identity) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    while True:
        slot = hashed[place & mask]
        if slot == np.uint32(0xFFFFFFFF):
            return -1
        if slot != GONE and slot_ids[slot] == identity:
            return np.int64(place & mask)
        place += np.uint64(1)


@bare_kernel
def find_slots(tree: BoxTree, ids: Slots, slots: Integers) -> Int:
    """Slots of ids, -1 for unknown ones; returns the place of the first unknown id or -1."""
    hashed, slot_ids = tree.hashed, tree.slot_ids
    shift, mask = np.uint64(20), np.uint64(len(hashed) - 1)
    unknown = -1
    for k in range(len(ids)):
        if k + AHEAD < len(ids):
            place = (np.uint64(ids[k + AHEAD]) * np.uint64(0x9E3779B97F4A7C15)) >> shift
            prefetch(hashed.ctypes.data + np.int64(place & mask) * 4)
        found = _find(hashed, slot_ids, ids[k])
        slots[k] = np.int64(hashed[found]) if found >= 0 else -1
        if found < 0 and unknown < 0:
            unknown = k
    return unknown


@bare_inner
def prefetch_leaf(blocks: Blocks, leaf: Int) -> None:
    """Ask for the lines of every column of a leaf."""
    address = blocks.ctypes.data + leaf * blocks.strides[0]
    for column in range(blocks.shape[1]):
        prefetch(address + column * 64)


@kernel
def add_boxes(tree: BoxTree, ids: Slots, exact: Keys, nulls: Flags) -> Int:
    """Add boxes until slots, lanes or the table run out; returns how many were added."""
    codes = np.empty(tree.blocks.shape[1], np.uint16)
    mask = np.uint64(len(tree.hashed) - 1)
    spill = 0
    for k in range(len(ids)):
        slot = tree.state[FREE]
        if slot == 0xFFFFFFFF or tree.state[TABLE_USED] * 4 > len(tree.hashed) * 3:
            return k
        for attribute in range(exact.shape[1]):
            low, high = exact[k, attribute, 0], exact[k, attribute, 1]
            lower, upper = code_range(tree.coder, attribute, low, high, nulls[k, attribute])
            codes[2 * attribute], codes[2 * attribute + 1] = lower, upper
        leaf = roomy(tree.used, _home(tree.splits, codes) if len(tree.used) > 1 else 0)
        if leaf < 0:
            while spill < len(tree.used) and tree.used[spill] == np.uint32(0xFFFFFFFF):
                spill += 1
            if spill == len(tree.used):
                return k
            leaf = spill
            tree.state[MISPLACED] += 1
        tree.state[FREE] = tree.places[slot]
        tree.slot_ids[slot] = ids[k]
        tree.exact[slot] = exact[k]
        lane = take_lane(tree.used, leaf)
        tree.lane_ids[leaf * 32 + lane] = ids[k]
        tree.lane_slots[leaf * 32 + lane] = slot
        tree.places[slot] = leaf * 32 + lane
        write(tree.blocks, tree.levels, leaf, lane, codes)
        if _find(tree.hashed, tree.slot_ids, ids[k]) >= 0:
            tree.state[REPEATED] += 1
        place = (np.uint64(ids[k]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
        while tree.hashed[place & mask] < GONE:
            place += np.uint64(1)
        if tree.hashed[place & mask] == np.uint32(0xFFFFFFFF):
            tree.state[TABLE_USED] += 1
        tree.hashed[place & mask] = slot
        tree.state[LIVE] += 1
        tree.state[TOP_ID] = max(tree.state[TOP_ID], np.int64(ids[k]))
    return len(ids)


@bare_kernel
def remove_boxes(tree: BoxTree, ids: Slots) -> Int:
    """Remove every box of the ids; returns how many boxes went."""
    gone = 0
    for k in range(len(ids)):
        first = True
        place = _find(tree.hashed, tree.slot_ids, ids[k])
        while place >= 0:
            slot = np.int64(tree.hashed[place])
            clear(tree.blocks, tree.used, np.int64(tree.places[slot]))
            tree.hashed[place] = GONE
            tree.places[slot] = tree.state[FREE]
            tree.state[FREE] = slot
            tree.state[LIVE] -= 1
            if not first:
                tree.state[REPEATED] -= 1
            first = False
            gone += 1
            place = _find(tree.hashed, tree.slot_ids, ids[k])
    return gone
