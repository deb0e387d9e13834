"""Kernels that walk the tree for rows and write the ids of the boxes that contain them.

The tree is blocks of 32 lanes in struct-of-arrays order: for each attribute 32 lower and 32 upper codes of 16 bits, so
one block tests 32 boxes against a row with two saturating subtractions an attribute and no branch. The same block form
serves leaves (lanes are boxes) and inner nodes (lanes are bounding boxes of children). The vector type is 32 x i16 in
LLVM's terms: one register with AVX-512, two with AVX2, four with SSE2 or NEON, from the same source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from headgate.matching.compiled.coding import Codes, Flags, Keys, below
from headgate.matching.compiled.jit import Int, inner, kernel
from headgate.matching.compiled.ordering import BUCKET_BITS, drop_repeats, sort_ids
from headgate.matching.compiled.packing import Integers
from headgate.matching.compiled.tree import LANES, REPEATED, TOP_ID, Tree
from headgate.matching.lists import Ids

# Up to how many attributes a row stays in registers while blocks are tested.
UNROLLED = 12


class Work(NamedTuple):
    """Room that a search needs, made once per thread; its size depends on the tree only."""

    one: Integers
    other: Integers
    below: npt.NDArray[np.uint16]
    above: npt.NDArray[np.uint16]
    codes: npt.NDArray[np.uint16]
    spare: Ids
    heads: npt.NDArray[np.int32]
    hits: Ids
    sure: Ids


def make_work(tree: Tree) -> Work:
    """Working room for searches of a tree of this size."""
    nodes, attributes = len(tree.blocks) + LANES, tree.blocks.shape[1] // 2
    return Work(
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(attributes, np.uint16),
        np.empty(attributes, np.uint16),
        np.empty(attributes, np.uint16),
        np.empty(len(tree.lane_ids) + LANES, np.uint32),
        np.empty((1 << BUCKET_BITS) + 2, np.int32),
        np.empty(nodes, np.uint32),
        np.empty(nodes, np.uint32),
    )


def _spread(builder: Any, address: Any, lanes: Any) -> Any:
    """The code at an address in every lane."""
    code = builder.load(builder.inttoptr(address, ir.PointerType(ir.IntType(16))))
    one = builder.insert_element(ir.Constant(lanes, ir.Undefined), code, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), zeros)


def _missed(builder: Any, subtract: Any, bounds: Any, low: Any, high: Any, lanes: Any) -> Any:
    """Not 0 in the lanes whose bounds at an address do not contain the codes."""
    pointer = builder.inttoptr(bounds, ir.PointerType(lanes))
    lower, upper = builder.load(pointer), builder.load(builder.gep(pointer, [ir.IntType(64)(1)]))
    lower.align = upper.align = 2
    return builder.or_(builder.call(subtract, [lower, low]), builder.call(subtract, [high, upper]))


def _each_block(builder: Any, count: Any, body: Callable[[Any], None], name: str) -> None:
    """A loop over places 0 to count - 1, of which there is at least one."""
    i64 = ir.IntType(64)
    start = builder.block
    head, done = builder.append_basic_block(f"block.{name}"), builder.append_basic_block(f"done.{name}")
    builder.branch(head)
    builder.position_at_end(head)
    place = builder.phi(i64)
    place.add_incoming(i64(0), start)
    body(place)
    following = builder.add(place, i64(1))
    place.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), head, done)
    builder.position_at_end(done)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def _test_blocks(
    typing_context: Any,
    first: Any,
    stride: Any,
    nodes: Any,
    count: Any,
    below: Any,
    above: Any,
    attributes: Any,
    hits: Any,
) -> Any:
    """Test a row against blocks: bit i of `hits[k]` is set where lane i of block `nodes[k]` contains it.

    All arguments are addresses or numbers; there is at least one node. Lower bounds must be at most the codes at
    `below`, upper ones at least those at `above`. Up to `UNROLLED` attributes the row's codes stay in registers over
    all blocks; more are read again for each.
    """
    del typing_context, first, stride, nodes, count, below, above, attributes, hits
    signature = types.void(*[types.intp] * 8)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        first, stride, nodes, count, below, above, attributes, hits = arguments
        i64, i32 = ir.IntType(64), ir.IntType(32)
        lanes = ir.VectorType(ir.IntType(16), LANES)
        zero = ir.Constant(lanes, [0] * LANES)
        subtract = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(lanes, [lanes, lanes]), f"llvm.usub.sat.v{LANES}i16"
        )

        def block_of(place: Any) -> Any:
            node = builder.load(builder.inttoptr(builder.add(nodes, builder.mul(place, i64(8))), ir.PointerType(i64)))
            return builder.add(first, builder.mul(node, stride))

        def keep(place: Any, missed: Any) -> None:
            bits = builder.bitcast(builder.icmp_unsigned("==", missed, zero), i32)
            builder.store(bits, builder.inttoptr(builder.add(hits, builder.mul(place, i64(4))), ir.PointerType(i32)))

        def many(place: Any) -> None:
            block, start = block_of(place), builder.block
            head, done = builder.append_basic_block("attribute"), builder.append_basic_block("tested")
            builder.branch(head)
            builder.position_at_end(head)
            attribute, so_far = builder.phi(i64), builder.phi(lanes)
            attribute.add_incoming(i64(0), start)
            so_far.add_incoming(zero, start)
            offset = builder.mul(attribute, i64(2))
            low = _spread(builder, builder.add(below, offset), lanes)
            high = _spread(builder, builder.add(above, offset), lanes)
            bounds = builder.add(block, builder.mul(attribute, i64(4 * LANES)))
            now = builder.or_(so_far, _missed(builder, subtract, bounds, low, high, lanes))
            following = builder.add(attribute, i64(1))
            attribute.add_incoming(following, head)
            so_far.add_incoming(now, head)
            builder.cbranch(builder.icmp_signed("<", following, attributes), head, done)
            builder.position_at_end(done)
            keep(place, now)

        def few(number: int) -> None:
            lows = [_spread(builder, builder.add(below, i64(2 * k)), lanes) for k in range(number)]
            highs = [_spread(builder, builder.add(above, i64(2 * k)), lanes) for k in range(number)]

            def body(place: Any) -> None:
                block, missed = block_of(place), zero
                for k in range(number):
                    bounds = builder.add(block, i64(4 * LANES * k))
                    missed = builder.or_(missed, _missed(builder, subtract, bounds, lows[k], highs[k], lanes))
                keep(place, missed)

            _each_block(builder, count, body, str(number))

        end = builder.append_basic_block("end")
        otherwise = builder.append_basic_block("many")
        switch = builder.switch(attributes, otherwise)
        for number in range(1, UNROLLED + 1):
            target = builder.append_basic_block(f"few.{number}")
            switch.add_case(i64(number), target)
            builder.position_at_end(target)
            few(number)
            builder.branch(end)
        builder.position_at_end(otherwise)
        _each_block(builder, count, many, "many")
        builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def _first_bit(typing_context: Any, mask: Any) -> Any:
    """The position of the lowest set bit of a mask that is not zero."""
    del typing_context, mask

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        found = builder.cttz(arguments[0], ir.IntType(1)(1))
        return builder.zext(found, ir.IntType(64))

    return types.intp(types.uint32), codegen


@inner
def _leaves(blocks: npt.NDArray[np.uint16], levels: Integers, row: Int, work: Work) -> tuple[Int, Integers]:
    """The leaves whose bounding box contains the row whose codes are at that address: how many, and which."""
    address, stride = blocks.ctypes.data, blocks.strides[0]
    attributes, hits = blocks.shape[1] // 2, work.hits
    here, there, count = work.one, work.other, 1
    here[0] = 0
    for level in range(len(levels) - 1, 0, -1):
        if count == 0:
            return 0, here
        first = address + levels[level] * stride
        _test_blocks(first, stride, here.ctypes.data, count, row, row, attributes, hits.ctypes.data)
        found = 0
        for k in range(count):
            base, lanes = here[k] * LANES, hits[k]
            while lanes != 0:
                there[found] = base + _first_bit(lanes)
                found += 1
                lanes &= lanes - np.uint32(1)
        here, there, count = there, here, found
    return count, here


@inner
def _collect(
    blocks: npt.NDArray[np.uint16], leaves: Integers, count: Int, row: Int, lane_ids: Ids, hits: Ids, out: Ids, end: Int
) -> Int:
    """Append the ids of the boxes in those leaves whose codes contain the row's; returns the new end of `out`."""
    if count > 0:
        _test_blocks(
            blocks.ctypes.data,
            blocks.strides[0],
            leaves.ctypes.data,
            count,
            row,
            row,
            blocks.shape[1] // 2,
            hits.ctypes.data,
        )
    for k in range(count):
        base, lanes = leaves[k] * LANES, hits[k]
        while lanes != 0:
            out[end] = lane_ids[base + _first_bit(lanes)]
            end += 1
            lanes &= lanes - np.uint32(1)
    return end


@inner
def _confirm(inexact: Flags, exact: Keys, codes: Codes, keys: Keys) -> bool:
    """Whether a box contains a row by the keys of the attributes whose codes do not say it all."""
    for attribute in range(len(codes)):
        if inexact[attribute] and codes[attribute] != 0:
            key = keys[attribute]
            if key < exact[attribute, 0] or key > exact[attribute, 1]:
                return False
    return True


@inner
def _rechecked(
    tree: Tree, leaves: Integers, count: Int, codes: Codes, keys: Keys, work: Work, out: Ids, end: Int
) -> Int:
    """As `_collect`, and boxes with a bound that has the same inexact code as the row are compared by key."""
    if count == 0:
        return end
    address, stride, nodes = tree.blocks.ctypes.data, tree.blocks.strides[0], leaves.ctypes.data
    attributes, inexact, hits, sure = len(codes), tree.coder.inexact, work.hits, work.sure
    for attribute in range(attributes):
        slack = np.uint16(inexact[attribute] != 0 and codes[attribute] != 0)
        work.below[attribute] = codes[attribute] - slack
        work.above[attribute] = codes[attribute] + slack
    row, low, high = codes.ctypes.data, work.below.ctypes.data, work.above.ctypes.data
    _test_blocks(address, stride, nodes, count, row, row, attributes, hits.ctypes.data)
    _test_blocks(address, stride, nodes, count, low, high, attributes, sure.ctypes.data)
    for k in range(count):
        base, lanes = leaves[k] * LANES, hits[k]
        doubtful = lanes & ~sure[k]
        while doubtful != 0:
            lane = _first_bit(doubtful)
            if not _confirm(inexact, tree.exact[tree.lane_slots[base + lane]], codes, keys):
                lanes &= ~(np.uint32(1) << np.uint32(lane))
            doubtful &= doubtful - np.uint32(1)
        while lanes != 0:
            out[end] = tree.lane_ids[base + _first_bit(lanes)]
            end += 1
            lanes &= lanes - np.uint32(1)
    return end


@kernel
def match_rows(
    tree: Tree,
    codes: Codes,
    keys: Keys,
    order: Integers,
    first: Int,
    out: Ids,
    spans: Integers,
    work: Work,
    start: Int,
) -> tuple[Int, Int]:
    """Match rows in the given order from its `first` entry, writing sorted ids to `out` from `start`.

    `spans[row]` becomes (start, end) in `out`. Stops early when `out` is short; returns the next entry and the end.
    """
    recheck = tree.coder.inexact.any()
    repeats = tree.state[REPEATED] > 0
    for k in range(first, len(order)):
        row = order[k]
        address = codes.ctypes.data + row * codes.strides[0]
        count, leaves = _leaves(tree.blocks, tree.levels, address, work)
        if start + count * LANES > len(out):
            return k, start
        if recheck:
            end = _rechecked(tree, leaves, count, codes[row], keys[row], work, out, start)
        else:
            end = _collect(tree.blocks, leaves, count, address, tree.lane_ids, work.hits, out, start)
        if end - start > 1:
            sort_ids(out[start:end], work.spare, work.heads, tree.state[TOP_ID], repeats)
            if repeats:
                end = start + drop_repeats(out[start:end])
        spans[row, 0] = start
        spans[row, 1] = end
        start = end
    return len(order), start


@kernel
def match_one(tree: Tree, keys: Keys, valid: Flags, out: Ids, work: Work) -> Int:
    """Match one row given by its keys into `out`; returns how many ids it has, or -1 if `out` may be short."""
    codes = work.codes
    for attribute in range(len(codes)):
        codes[attribute] = 0
        if valid[attribute]:
            codes[attribute] = 1 + below(tree.coder, attribute, keys[attribute])
    count, leaves = _leaves(tree.blocks, tree.levels, codes.ctypes.data, work)
    if count * LANES > len(out):
        return -1
    if tree.coder.inexact.any():
        end = _rechecked(tree, leaves, count, codes, keys, work, out, 0)
    else:
        end = _collect(tree.blocks, leaves, count, codes.ctypes.data, tree.lane_ids, work.hits, out, 0)
    repeats = tree.state[REPEATED] > 0
    if end > 1:
        sort_ids(out[:end], work.spare, work.heads, tree.state[TOP_ID], repeats)
        if repeats:
            end = drop_repeats(out[:end])
    return end


@kernel
def float_row_keys(values: npt.NDArray[np.float64], keys: Keys) -> None:
    """Keys of a row of floats, as `keys.float_keys` gives them."""
    for k in range(len(values)):
        size = np.float64(abs(values[k])).view(np.int64)
        if np.isnan(values[k]):
            size = np.int64(0x7FF0000000000001)
        keys[k] = -size if values[k] < 0 else size


@kernel
def gather(sources: Ids, spans: Integers, rows: Integers, offsets: Integers, ids: Ids) -> None:
    """Copy the spans of rows to where the rows' lists belong."""
    for k in range(len(rows)):
        row = rows[k]
        place = offsets[row]
        for j in range(spans[row, 0], spans[row, 1]):
            ids[place] = sources[j]
            place += 1
