"""What control points keep while members join: loads and depths of their trees, slack, and an index of candidates.

A requester's candidates are found by filter and slack: members of a tree are listed by their distinct filters, so only
filters that cover the requester's are looked at, and a member whose site has no slack left is struck off its list when
it is next met (slack never grows again). Sums behind the variances of UNFA follow every join by what it changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headgate.planning.jit import jit
from headgate.planning.net import F8, I4, I8, OUTS, RESOURCES, U1, Net

COUNT, LOAD, LOAD_SQUARES, DEPTH, DEPTH_SQUARES = range(5)  # places in `Book.sums`
TIE = 1e-9  # qualities closer than this are equal; shedding below this is none; slack short by this part is enough


class Book(NamedTuple):
    """The arrays of all control points: `T` tables, one per source, or one for all; `C` distinct filters."""

    table: I4  # (S,) the table of the control point of each stream
    slack: F8  # (T, n) bytes per second that a site is thought to have left
    hops: F8  # (T, n) links that a site serves, and the sum of their delays
    hop_sum: F8
    load: F8  # (T, n) bytes per second that a site forwards in the trees of the table, without drops
    member: U1  # (T, n) whether a site is in a tree of the table
    sums: F8  # (S, 5) over a tree's members, the source among them
    kind: I4  # (N,) which of the distinct filters a node has
    kinds: I8  # (S + 1,) the distinct filters of each stream
    sample: I4  # (C,) a node with each filter
    start: I8  # (C + 1,) where the list of a filter begins in `listed`
    live: I8  # (C,) how long it is
    listed: I4  # (N,) candidates by filter
    joined: I4  # (N,) members of each tree in the order of joining, from `flow.first - S` on
    rank: I4  # (N,) place in that order
    shedding: I4  # (n + 1,) sites that were seen to shed, their number last
    seen: U1  # (n,) whether a site is among them
    width: U1  # (B,) room for one bit set


def open_book(net: Net, by_source: bool) -> Book:
    """A book for a graph without members yet."""
    n, streams, nodes = len(net.place), len(net.flow), len(net.node)
    sites = net.node["site"][:streams]
    table = np.unique(sites, return_inverse=True)[1] if by_source else np.zeros(streams, np.int64)
    tables = int(table.max()) + 1 if streams else 1
    # Distinct (stream, filter) pairs, in the order of streams; sources have no list.
    texts = np.column_stack([net.node["stream"].astype(">u4").view(np.uint8).reshape(nodes, 4), net.own])[streams:]
    _, sample, kind, size = np.unique(texts, axis=0, return_index=True, return_inverse=True, return_counts=True)
    stream_of = net.node["stream"][streams:][sample]
    book = Book(
        table.astype(np.int32),
        np.full((tables, n), np.inf),
        np.zeros((tables, n)),
        np.zeros((tables, n)),
        np.zeros((tables, n)),
        np.zeros((tables, n), np.uint8),
        np.zeros((streams, 5)),
        np.append(np.full(streams, -1), kind.reshape(-1)).astype(np.int32),
        np.searchsorted(stream_of, np.arange(streams + 1)).astype(np.int64),
        (sample + streams).astype(np.int32),
        np.append(0, np.cumsum(size)).astype(np.int64),
        np.zeros(len(size), np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(n + 1, np.int32),
        np.zeros(n, np.uint8),
        np.zeros(net.own.shape[1], np.uint8),
    )
    book.sums[:, COUNT] = 1.0
    book.member[table, sites] = 1
    return book


@jit
def enrol(net: Net, book: Book, node: int) -> None:
    """Take over a join that was just kept: what its trial changed in loads and shedding, and the new member."""
    for at in range(net.counter[0].noted_outs):
        record = net.node[net.work[OUTS, at]]
        add_load(net, book, book.table[record.stream], record.site, record.out - record.old_out, node)
    record = net.node[node]
    table, sums = book.table[record.stream], book.sums[record.stream]
    load = book.load[table, record.site]
    book.rank[node] = int(sums[COUNT])
    book.joined[net.flow[record.stream].first - net.flow.shape[0] + book.rank[node] - 1] = node
    sums[COUNT] += 1.0
    sums[LOAD] += load
    sums[LOAD_SQUARES] += load * load
    sums[DEPTH] += record.depth
    sums[DEPTH_SQUARES] += record.depth * record.depth
    book.member[table, record.site] = 1
    kind = book.kind[node]
    book.listed[book.start[kind] + book.live[kind]] = node
    book.live[kind] += 1
    n = net.place.shape[0]
    for at in range(net.counter[0].noted_resources):
        site = net.work[RESOURCES, at]
        if site < n and not book.seen[site] and net.resource[site].permeable < 1.0 - TIE:
            book.seen[site] = 1
            book.shedding[book.shedding[n]] = site
            book.shedding[n] += 1


@jit
def add_load(net: Net, book: Book, table: int, site: int, change: float, joining: int) -> None:
    """A site forwards more or less in the trees of a table: in the sums of every such tree that it is in."""
    before = book.load[table, site]
    for at in range(net.place[site].first, net.place[site].last):
        node = net.site_nodes[at]
        stream = net.node[node].stream
        if node == joining or book.table[stream] != table or (node != stream and net.node[node].parent < 0):
            continue
        book.sums[stream, LOAD] += change
        book.sums[stream, LOAD_SQUARES] += change * (2.0 * before + change)
    book.load[table, site] = before + change


@jit
def strike_off(net: Net, book: Book, kind: int, slack: Any) -> None:
    """Take members whose sites have no slack left off the list of a filter."""
    at, first = 0, book.start[kind]
    while at < book.live[kind]:
        if slack[net.node[book.listed[first + at]].site] > 0.0:
            at += 1
        else:
            book.live[kind] -= 1
            book.listed[first + at] = book.listed[first + book.live[kind]]


@jit
def exhaust(net: Net, book: Book, table: int) -> None:
    """After best effort: sites that shed have no slack, as far as the control point knows them."""
    n, at = net.place.shape[0], 0
    while at < book.shedding[n]:
        site = book.shedding[at]
        if net.resource[site].permeable >= 1.0 - TIE:
            book.seen[site] = 0
            book.shedding[n] -= 1
            book.shedding[at] = book.shedding[book.shedding[n]]
            continue
        if book.member[table, site]:
            book.slack[table, site] = 0.0
        at += 1
