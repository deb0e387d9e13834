"""Kernels of the GBD-tree over its arrays; `tree.GbdTree` owns the arrays and is the only caller.

The tree is path-compressed: a node exists where queries are stored or where two subtrees part, so there are at most
twice as many nodes as distinct regions, whatever the depth. `nodes` has one row per node, `queries` one per query
part, both of int64; `state` holds the free-list heads and the high-water marks. -1 stands for nothing.
"""

from __future__ import annotations

import numpy as np

from headgate.grid._jit import kernel
from headgate.grid.space import Ints

# Columns of a node: its region, its place in the tree, its own queries, and the sums over its subtree.
CODE, LENGTH, PARENT, LOW, HIGH, FIRST, OWN, WEIGHT, COUNT = range(9)
NODE_WIDTH = 9
# Columns of a query part: the node that stores it, its neighbours in that node's list, its weight and its owner's key.
NODE, NEXT, PREVIOUS, SIZE, KEY = range(5)
QUERY_WIDTH = 5
# Entries of the state.
NODE_TOP, NODE_FREE, QUERY_TOP, QUERY_FREE, NODES, QUERIES = range(6)


@kernel
def common_prefix(one: int, other: int, digits: int) -> int:
    """How many leading digits two codes share."""
    differ = one ^ other
    length = digits
    for step in (32, 16, 8, 4, 2, 1):
        if differ >> step:
            differ >>= step
            length -= step
    return length - 1 if differ else length


@kernel
def _new_node(nodes: Ints, state: Ints, code: int, length: int, parent: int) -> int:
    at = state[NODE_FREE]
    if at >= 0:
        state[NODE_FREE] = nodes[at, PARENT]
    else:
        at = state[NODE_TOP]
        state[NODE_TOP] += 1
    nodes[at, CODE] = code
    nodes[at, LENGTH] = length
    nodes[at, PARENT] = parent
    nodes[at, LOW] = -1
    nodes[at, HIGH] = -1
    nodes[at, FIRST] = -1
    nodes[at, OWN] = 0
    nodes[at, WEIGHT] = 0
    nodes[at, COUNT] = 0
    state[NODES] += 1
    return int(at)


@kernel
def _node_for(nodes: Ints, state: Ints, digits: int, code: int, length: int, weight: int) -> int:
    """The node of a region, made if need be; adds the weight of one query along the way."""
    at = 0
    while True:
        nodes[at, WEIGHT] += weight
        nodes[at, COUNT] += 1
        if nodes[at, LENGTH] == length:
            return at
        side = LOW + ((code >> (digits - 1 - nodes[at, LENGTH])) & 1)
        below = nodes[at, side]
        if below < 0:
            made = _new_node(nodes, state, code, length, at)
            nodes[at, side] = made
            nodes[made, WEIGHT] = weight
            nodes[made, COUNT] = 1
            return made
        shared = min(common_prefix(code, nodes[below, CODE], digits), length, nodes[below, LENGTH])
        if shared < nodes[below, LENGTH]:
            kept = (code >> (digits - shared)) << (digits - shared)
            made = _new_node(nodes, state, kept, shared, at)
            nodes[at, side] = made
            nodes[made, LOW + ((nodes[below, CODE] >> (digits - 1 - shared)) & 1)] = below
            nodes[below, PARENT] = made
            nodes[made, WEIGHT] = nodes[below, WEIGHT]
            nodes[made, COUNT] = nodes[below, COUNT]
            below = made
        at = below


@kernel
def insert(
    nodes: Ints, queries: Ints, state: Ints, digits: int, codes: Ints, lengths: Ints, sizes: Ints, keys: Ints, out: Ints
) -> None:
    """Store query parts; `out` gets the slot of each. The arrays must have room for two nodes a part."""
    for i in range(codes.shape[0]):
        node = _node_for(nodes, state, digits, codes[i], lengths[i], sizes[i])
        slot = state[QUERY_FREE]
        if slot >= 0:
            state[QUERY_FREE] = queries[slot, NEXT]
        else:
            slot = state[QUERY_TOP]
            state[QUERY_TOP] += 1
        first = nodes[node, FIRST]
        queries[slot, NODE] = node
        queries[slot, NEXT] = first
        queries[slot, PREVIOUS] = -1
        queries[slot, SIZE] = sizes[i]
        queries[slot, KEY] = keys[i]
        if first >= 0:
            queries[first, PREVIOUS] = slot
        nodes[node, FIRST] = slot
        nodes[node, OWN] += 1
        state[QUERIES] += 1
        out[i] = slot


@kernel
def _prune(nodes: Ints, state: Ints, at: int) -> None:
    """Drop a node that no longer stores or parts anything, and its parents as far as that makes them useless."""
    while at > 0 and nodes[at, OWN] == 0:
        low = nodes[at, LOW]
        high = nodes[at, HIGH]
        if low >= 0 and high >= 0:
            return
        parent = nodes[at, PARENT]
        below = low if low >= 0 else high
        side = LOW if nodes[parent, LOW] == at else HIGH
        nodes[parent, side] = below
        if below >= 0:
            nodes[below, PARENT] = parent
        nodes[at, PARENT] = state[NODE_FREE]
        nodes[at, LENGTH] = -1
        state[NODE_FREE] = at
        state[NODES] -= 1
        at = parent


@kernel
def remove(nodes: Ints, queries: Ints, state: Ints, slots: Ints) -> int:
    """Forget query parts by slot; returns how many there were (a slot that is not in use counts as none)."""
    gone = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot < 0 or slot >= state[QUERY_TOP] or queries[slot, NODE] < 0:
            continue
        node = queries[slot, NODE]
        after = queries[slot, NEXT]
        before = queries[slot, PREVIOUS]
        if before >= 0:
            queries[before, NEXT] = after
        else:
            nodes[node, FIRST] = after
        if after >= 0:
            queries[after, PREVIOUS] = before
        nodes[node, OWN] -= 1
        at = node
        while at >= 0:
            nodes[at, WEIGHT] -= queries[slot, SIZE]
            nodes[at, COUNT] -= 1
            at = nodes[at, PARENT]
        queries[slot, NODE] = -1
        queries[slot, NEXT] = state[QUERY_FREE]
        state[QUERY_FREE] = slot
        state[QUERIES] -= 1
        gone += 1
        _prune(nodes, state, node)
    return gone


@kernel
def _emit_gap(start: int, end: int, digits: int, codes: Ints, lengths: Ints, at: int, fill: bool) -> int:
    """Maximal expressions of the z-codes from start to end; returns how many."""
    count = 0
    while start < end:
        size = start & -start if start else int(np.int64(1) << digits)
        while size > end - start:
            size >>= 1
        if fill:
            codes[at + count] = start
            lengths[at + count] = digits - common_size(size)
        count += 1
        start += size
    return count


@kernel
def common_size(size: int) -> int:
    """The exponent of a power of two."""
    exponent = 0
    while size > 1:
        size >>= 1
        exponent += 1
    return exponent


@kernel
def enclosing(nodes: Ints, digits: int, code: int, length: int) -> tuple[int, bool]:
    """The topmost node inside a region (-1 for none), and whether a node that stores queries contains the region."""
    at = 0
    while True:
        if nodes[at, OWN] > 0 and nodes[at, LENGTH] <= length:
            return at, True
        if nodes[at, LENGTH] >= length:
            return at, False
        below = nodes[at, LOW + ((code >> (digits - 1 - nodes[at, LENGTH])) & 1)]
        if below < 0:
            return -1, False
        reach = min(length, nodes[below, LENGTH])
        if common_prefix(code, nodes[below, CODE], digits) < reach:
            return -1, False
        at = below


@kernel
def _serve_one(
    nodes: Ints,
    digits: int,
    code: int,
    length: int,
    stack: Ints,
    have_codes: Ints,
    have_lengths: Ints,
    have_at: int,
    miss_codes: Ints,
    miss_lengths: Ints,
    miss_at: int,
    fill: bool,
) -> tuple[int, int]:
    at, covered = enclosing(nodes, digits, code, length)
    if covered:
        if fill:
            have_codes[have_at] = code
            have_lengths[have_at] = length
        return 1, 0
    if at < 0:
        if fill:
            miss_codes[miss_at] = code
            miss_lengths[miss_at] = length
        return 0, 1
    have = 0
    miss = 0
    start = code
    stack[0] = at
    top = 1
    while top:
        top -= 1
        at = stack[top]
        if nodes[at, OWN] > 0:
            miss += _emit_gap(start, int(nodes[at, CODE]), digits, miss_codes, miss_lengths, miss_at + miss, fill)
            if fill:
                have_codes[have_at + have] = nodes[at, CODE]
                have_lengths[have_at + have] = nodes[at, LENGTH]
            have += 1
            start = int(nodes[at, CODE] + (np.int64(1) << (digits - nodes[at, LENGTH])))
            continue
        for side in (HIGH, LOW):
            if nodes[at, side] >= 0:
                stack[top] = nodes[at, side]
                top += 1
    end = int(code + (np.int64(1) << (digits - length)))
    miss += _emit_gap(start, end, digits, miss_codes, miss_lengths, miss_at + miss, fill)
    return have, miss


@kernel
def serve(
    nodes: Ints,
    digits: int,
    codes: Ints,
    lengths: Ints,
    have_offsets: Ints,
    have_codes: Ints,
    have_lengths: Ints,
    miss_offsets: Ints,
    miss_codes: Ints,
    miss_lengths: Ints,
    fill: bool,
) -> None:
    """Corrected Algorithm 1 for many expressions: what the tree's regions provide of each, and what they do not."""
    stack = np.empty(2 * digits + 4, dtype=np.int64)
    for i in range(codes.shape[0]):
        have, miss = _serve_one(
            nodes,
            digits,
            codes[i],
            lengths[i],
            stack,
            have_codes,
            have_lengths,
            have_offsets[i],
            miss_codes,
            miss_lengths,
            miss_offsets[i],
            fill,
        )
        if not fill:
            have_offsets[i + 1] = have_offsets[i] + have
            miss_offsets[i + 1] = miss_offsets[i] + miss


@kernel
def topmost(nodes: Ints, digits: int, code: int, length: int) -> int:
    """The topmost node inside a region, whose sums are the region's; -1 when it holds nothing."""
    at = 0
    while nodes[at, LENGTH] < length:
        at = nodes[at, LOW + ((code >> (digits - 1 - nodes[at, LENGTH])) & 1)]
        if at < 0 or common_prefix(code, nodes[at, CODE], digits) < min(length, nodes[at, LENGTH]):
            return -1
    return at


@kernel
def slots_inside(nodes: Ints, queries: Ints, digits: int, code: int, length: int, out: Ints) -> int:
    """Slots of every query part inside a region; counts all and writes as many as fit."""
    at = topmost(nodes, digits, code, length)
    if at < 0:
        return 0
    stack = np.empty(2 * digits + 4, dtype=np.int64)
    stack[0] = at
    top = 1
    count = 0
    while top:
        top -= 1
        at = stack[top]
        slot = nodes[at, FIRST]
        while slot >= 0:
            if count < out.shape[0]:
                out[count] = slot
            count += 1
            slot = queries[slot, NEXT]
        for side in (HIGH, LOW):
            if nodes[at, side] >= 0:
                stack[top] = nodes[at, side]
                top += 1
    return count


@kernel
def _is_within(within: Ints, start: int, end: int) -> bool:
    """Whether one of the sorted bounds contains the z-codes from start to end."""
    row = np.searchsorted(within[:, 0], start, side="right") - 1
    return bool(row >= 0 and within[row, 1] >= end)


@kernel
def slots_above(nodes: Ints, queries: Ints, digits: int, code: int, length: int, out: Ints) -> int:
    """Slots of every query part that contains a region and is larger; counts all and writes as many as fit."""
    at = 0
    count = 0
    while at >= 0 and nodes[at, LENGTH] < length:
        if common_prefix(code, nodes[at, CODE], digits) < nodes[at, LENGTH]:
            break
        slot = nodes[at, FIRST]
        while slot >= 0:
            if count < out.shape[0]:
                out[count] = slot
            count += 1
            slot = queries[slot, NEXT]
        at = nodes[at, LOW + ((code >> (digits - 1 - nodes[at, LENGTH])) & 1)]
    return count


@kernel
def find(nodes: Ints, digits: int, limit: int, within: Ints, nested: bool, larger: bool, out: Ints) -> int:
    """Corrected Algorithm 3: regions with more load than size, cut at a level limit, inside the given bounds.

    With `larger`, queries that contain a region count with their share of it. Writes rows (code, length, weight,
    count); returns how many, which may be more than fit.
    """
    stack = np.empty(2 * digits + 4, dtype=np.int64)
    above = np.zeros(2 * digits + 4, dtype=np.float64)
    stack[0] = 0
    top = 1
    count = 0
    while top:
        top -= 1
        at = stack[top]
        density = above[top]
        length = nodes[at, LENGTH]
        cut = length
        if length > limit:
            cut = limit
            start = (nodes[at, CODE] >> (digits - cut)) << (digits - cut)
            if not _is_within(within, start, start + (np.int64(1) << (digits - cut))):
                cut = length
        size = np.int64(1) << (digits - cut)
        start = (nodes[at, CODE] >> (digits - cut)) << (digits - cut)
        wanted = nodes[at, OWN] > 0 or cut >= limit
        taken = False
        weight = nodes[at, WEIGHT] + np.int64(density * size)
        if wanted and weight > size and _is_within(within, start, start + size):
            if count < out.shape[0]:
                out[count, 0] = start
                out[count, 1] = cut
                out[count, 2] = weight
                out[count, 3] = nodes[at, COUNT]
            count += 1
            taken = True
        if taken and (not nested or cut >= limit):
            continue
        if larger:
            own = nodes[at, WEIGHT]
            for side in (HIGH, LOW):
                if nodes[at, side] >= 0:
                    own -= nodes[nodes[at, side], WEIGHT]
            density += own / (np.int64(1) << (digits - length))
        for side in (HIGH, LOW):
            if nodes[at, side] >= 0:
                stack[top] = nodes[at, side]
                above[top] = density
                top += 1
    return count
