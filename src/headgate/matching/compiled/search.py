"""Kernels that walk the tree for rows and write the places of the boxes that contain them.

The tree is blocks of 32 lanes in struct-of-arrays order: for each attribute 32 lower and 32 upper codes of 16 bits, so
one block tests 32 boxes against a row with two saturating subtractions an attribute and no branch. The same block form
serves leaves (lanes are boxes) and inner nodes (lanes are bounding boxes of children). The vector type is 32 x i16 in
LLVM's terms: one register with AVX-512, two with AVX2, four with SSE2 or NEON, from the same source.

A walk meets leaves in ascending order and lanes within them, so the places that a row gets ascend by themselves and
nothing is sorted here. Who needs ids translates places by `BoxTree.lane_ids` (see `headgate.matching.lists`).
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
from headgate.matching.compiled.jit import Int, bare_shared, inner, kernel
from headgate.matching.compiled.ordering import BUCKET_BITS, sorted_ids
from headgate.matching.compiled.packing import Integers
from headgate.matching.compiled.tree import LANES, BoxTree
from headgate.matching.lists import Ids

# Up to how many attributes a row stays in registers while blocks are tested.
UNROLLED = 12


# Row b lists the set bits of the byte b, ascending: eight lanes are written at once, and as many counted as there are.
_LANES_OF_BYTE = np.array(
    [([bit for bit in range(8) if byte >> bit & 1] + [0] * 8)[:8] for byte in range(256)], np.uint8
)


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
    lanes: npt.NDArray[np.uint8]


def make_work(tree: BoxTree) -> Work:
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
        _LANES_OF_BYTE,
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


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def _put_byte(typing_context: Any, table: Any, byte: Any, base: Any, target: Any) -> Any:
    """Write eight places to the address `target`: `base` plus the lanes that a byte of hits names in the table.

    Returns how many of them are hits; what is behind those is overwritten by the next ones.
    """
    del typing_context, table, byte, base, target

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        table, byte, base, target = arguments
        i64, i32 = ir.IntType(64), ir.IntType(32)
        narrow, wide = ir.VectorType(ir.IntType(8), 8), ir.VectorType(i32, 8)
        wanted = builder.inttoptr(builder.add(table, builder.shl(byte, i64(3))), ir.PointerType(narrow))
        lanes = builder.load(wanted)
        lanes.align = 1
        one = builder.insert_element(ir.Constant(wide, ir.Undefined), builder.trunc(base, i32), i32(0))
        bases = builder.shuffle_vector(one, ir.Constant(wide, ir.Undefined), ir.Constant(wide, [0] * 8))
        stored = builder.store(
            builder.add(builder.zext(lanes, wide), bases), builder.inttoptr(target, ir.PointerType(wide))
        )
        stored.align = 4
        return builder.ctpop(byte)

    return types.intp(types.intp, types.intp, types.intp, types.intp), codegen


@bare_shared
def _tested(
    blocks: Int, stride: Int, nodes: Int, count: Int, below: Int, above: Int, attributes: Int, hits: Int
) -> None:
    """`_test_blocks` as one function that all kernels call: it is long, and compiled once."""
    _test_blocks(blocks, stride, nodes, count, below, above, attributes, hits)


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
        _tested(first, stride, here.ctypes.data, count, row, row, attributes, hits.ctypes.data)
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
def _confirm(inexact: Flags, exact: Keys, codes: Codes, keys: Keys) -> bool:
    """Whether a box contains a row by the keys of the attributes whose codes do not say it all."""
    for attribute in range(len(codes)):
        if inexact[attribute] and codes[attribute] != 0:
            key = keys[attribute]
            if key < exact[attribute, 0] or key > exact[attribute, 1]:
                return False
    return True


@inner
def _recheck(tree: BoxTree, leaves: Integers, count: Int, codes: Codes, keys: Keys, work: Work) -> None:
    """Take back hits that only the codes say, comparing keys.

    A box is in doubt where one of its bounds has the same inexact code as the row. A second test, with the row a code
    wider on both sides, finds those among the leaves that were hit.
    """
    attributes, inexact, hits, sure = len(codes), tree.coder.inexact, work.hits, work.sure
    for attribute in range(attributes):
        slack = np.uint16(inexact[attribute] != 0 and codes[attribute] != 0)
        work.below[attribute] = codes[attribute] - slack
        work.above[attribute] = codes[attribute] + slack
    low, high = work.below.ctypes.data, work.above.ctypes.data
    address, stride = tree.blocks.ctypes.data, tree.blocks.strides[0]
    _tested(address, stride, leaves.ctypes.data, count, low, high, attributes, sure.ctypes.data)
    for k in range(count):
        doubtful = hits[k] & ~sure[k]
        while doubtful != 0:
            lane = _first_bit(doubtful)
            if not _confirm(inexact, tree.exact[tree.lane_slots[leaves[k] * LANES + lane]], codes, keys):
                hits[k] &= ~(np.uint32(1) << np.uint32(lane))
            doubtful &= doubtful - np.uint32(1)


@inner
def _collect(tree: BoxTree, codes: Codes, keys: Keys, recheck: Any, work: Work, out: Ids, end: Int) -> Int:
    """Append the places of the boxes that contain a row, ascending; returns the new end of `out`, -1 if it is short."""
    blocks, row, hits = tree.blocks, codes.ctypes.data, work.hits
    count, leaves = _leaves(blocks, tree.levels, row, work)
    if end + (count + 1) * LANES > len(out):
        return -1
    if count == 0:
        return end
    attributes, nodes = blocks.shape[1] // 2, leaves.ctypes.data
    _tested(blocks.ctypes.data, blocks.strides[0], nodes, count, row, row, attributes, hits.ctypes.data)
    hit: Int = 0
    for k in range(count):  # which leaf is hit cannot be predicted, so there is no branch on it
        leaves[hit], hits[hit] = leaves[k], hits[k]
        hit += np.int64(hits[hit] != 0)
    if recheck and hit > 0:
        _recheck(tree, leaves, hit, codes, keys, work)
    table, target = work.lanes.ctypes.data, out.ctypes.data + 4 * end
    for k in range(hit):
        base, lanes = leaves[k] * LANES, np.int64(hits[k])
        for shift in range(0, LANES, 8):
            target += 4 * _put_byte(table, (lanes >> shift) & 255, base + shift, target)
    return (target - out.ctypes.data) >> 2


@kernel
def match_rows(
    tree: BoxTree, codes: Codes, keys: Keys, order: Integers, first: Int, out: Ids, starts: Integers, work: Work
) -> Int:
    """Match rows in the given order from its `first` entry, writing the places of their boxes to `out`.

    Those of entry k come to lie from `starts[k]` to `starts[k + 1]`. Stops early when `out` is short; returns the next
    entry.
    """
    recheck = tree.coder.inexact.any()
    for k in range(first, len(order)):
        row = order[k]
        end = _collect(tree, codes[row], keys[row], recheck, work, out, starts[k])
        if end < 0:
            return k
        starts[k + 1] = end
    return len(order)


@kernel
def match_one(tree: BoxTree, keys: Keys, valid: Flags, out: Ids, work: Work) -> Int:
    """Match one row given by its keys into `out`; returns how many ids it has, or -1 if `out` may be short."""
    codes = work.codes
    for attribute in range(len(codes)):
        codes[attribute] = 0
        if valid[attribute]:
            codes[attribute] = 1 + below(tree.coder, attribute, keys[attribute])
    end = _collect(tree, codes, keys, tree.coder.inexact.any(), work, out, 0)
    return end if end <= 0 else sorted_ids(tree, out[:end], out, work.spare, work.heads)


@kernel
def float_row_keys(values: npt.NDArray[np.float64], keys: Keys) -> None:
    """Keys of a row of floats, as `keys.float_keys` gives them."""
    for k in range(len(values)):
        size = np.float64(abs(values[k])).view(np.int64)
        if np.isnan(values[k]):
            size = np.int64(0x7FF0000000000001)
        keys[k] = -size if values[k] < 0 else size
