"""Splitting a block over the outputs of a site: by distinct sets of classes, one take of the rows, then slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.matching import ClassLists
from headgate.reduction.rows import among
from headgate.relay.routes import Child, Receiver, Routes
from headgate.wire.block import Block, Declared, renamed
from headgate.wire.patch import Patch


def split(block: Block, routes: Routes) -> Iterator[tuple[Child | Receiver, Block]]:
    """The block of each output, in the order of the routes. Every output gets one, even if it is empty."""
    for child in routes.children:
        yield child, for_child(block, child)
    yield from for_local(block, routes.inboxes)


def for_child(block: Block, child: Child) -> Block:
    """What goes down a link: rows that somebody below wants, their classes below, and the values needed there."""
    assert block.classes is not None
    lists = block.classes.restrict(child.class_ids)
    rows = lists.rows_matched()
    declared = _declared_to(block.declared, child)
    patches = _patches_to(block, child)
    commits = block.meant_for(child.receiver_ids)
    values = block.rows.select(child.schema.names)
    wanted = replace(block, commits=commits, rows=values, classes=lists, declared=declared, patches=patches)
    if patches:
        wanted = without_unwanted(wanted, child)
        assert wanted.classes is not None
        rows = wanted.classes.rows_matched()
    if len(rows) < len(block.seqs):
        wanted = wanted.take(rows)
    return replace(wanted, rows=_masked(wanted, child))


def _masked(block: Block, child: Child) -> pa.RecordBatch:
    """The rows with nulls for values that no receiver of the row asked for.

    One receiver may want two columns of every row and another all columns of a few: without this the link would carry
    all columns of every row. Whoever gets the row has its own columns in full.
    """
    lists = block.classes
    if not len(block.seqs) or lists is None:
        return block.rows
    columns = []
    for name, column in zip(block.rows.schema.names, block.rows.columns, strict=True):
        needing = child.needing[name]
        needed = np.ones(1, dtype=np.bool_)
        if len(needing) < len(child.class_ids):
            needed = lists.restrict(needing).counts() > 0
        nothing = pa.scalar(None, column.type)
        columns.append(column if needed.all() else pc.if_else(pa.array(needed), column, nothing))
    return pa.RecordBatch.from_arrays(columns, schema=block.rows.schema)


def _patches_to(block: Block, child: Child) -> dict[int, Patch]:
    """The patches of the receivers below a link, with the values needed there."""
    if not block.patches:
        return {}
    made: dict[int, Patch] = {}
    for patch in block.patches.values():
        values = patch.values
        if values is not None:
            values = values.select([name for name in values.schema.names if name in child.schema.names])
        made[id(patch)] = Patch(patch.without, patch.changed, values)
    below = child.receiver_ids
    return {receiver: made[id(patch)] for receiver, patch in block.patches.items() if receiver in below}


def without_unwanted(block: Block, child: Child) -> Block:
    """The block without the classes of rows that no receiver of the class below the link gets any more.

    Rows that are left without any class stay, for the caller to take out.
    """
    assert block.classes is not None
    lists, patches = block.classes.plain(), dict(block.patches)
    stays = np.ones(len(lists.ids), dtype=np.bool_)
    for class_id in {receiver.class_id for receiver in child.receivers if receiver.id in patches}:
        members = child.receivers_of[class_id]
        if not all(receiver in patches for receiver in members):
            continue
        nobody = patches[members[0]].without
        for receiver in members[1:]:
            nobody = np.intersect1d(nobody, patches[receiver].without, assume_unique=True)
        mine = np.flatnonzero(lists.ids == class_id)
        stays[mine[among(block.seqs[lists.row_of_id()[mine]], nobody)]] = False
        rest = {
            id(patch): Patch(np.setdiff1d(patch.without, nobody, assume_unique=True), patch.changed, patch.values)
            for patch in {id(patches[receiver]): patches[receiver] for receiver in members}.values()
        }
        patches.update({receiver: rest[id(patches[receiver])] for receiver in members})
    if stays.all():
        return block
    kept = np.concatenate([[0], np.cumsum(stays)])
    left = {receiver: patch for receiver, patch in patches.items() if patch}
    return replace(block, classes=ClassLists(kept[lists.offsets], lists.ids[stays]), patches=left)


def _declared_to(declared: Declared, child: Child) -> Declared:
    if not declared:
        return {}
    below = child.receiver_ids
    return {receiver: reasons for receiver, reasons in declared.items() if receiver in below}


def for_local(block: Block, receivers: tuple[Receiver, ...]) -> Iterator[tuple[Receiver, Block]]:
    """What goes into the inboxes. Receivers of one class and projection share the same rows."""
    if not receivers:
        return
    assert block.classes is not None
    groups = _group_by_class(block.classes, receivers)
    distinct = {id(rows): rows for rows in groups.values()}
    order = np.concatenate(list(distinct.values())) if distinct else np.zeros(0, dtype=np.int64)
    seqs = block.seqs[order]
    names = {name for receiver in receivers for name in receiver.schema.names}
    taken = block.rows.select([name for name in block.rows.schema.names if name in names])
    if len(distinct) != 1 or len(order) < len(block.seqs):  # else it is every row, in order
        taken = taken.take(pa.array(order))
    starts: dict[int, tuple[int, int]] = {}
    position = 0
    for number, rows in distinct.items():
        starts[number] = (position, len(rows))
        position += len(rows)
    shared: dict[tuple[int, tuple[str, ...]], Block] = {}
    for receiver in receivers:
        # Classes of the same rows share a block, as do all that have none.
        number = id(groups[receiver.class_id]) if receiver.class_id in groups else -1
        start, count = starts.get(number, (0, 0))
        key = (number, tuple(receiver.schema.names))
        mine = shared.get(key)
        if mine is None:
            rows = taken.slice(start, count).select(receiver.schema.names)
            mine = replace(block, seqs=seqs[start : start + count], rows=rows, classes=None, declared={}, patches={})
            shared[key] = mine
        told = receiver.readers[0][0]  # who share an inbox are told the same
        patch = block.patches.get(told)
        if patch is not None:
            own_seqs, own_rows = patch.apply(mine.seqs, mine.rows)
            mine = replace(mine, seqs=own_seqs, rows=own_rows)
        commits = block.meant_for((told,))
        if commits is not block.commits:
            mine = replace(mine, commits=commits)
        reasons = block.declared.get(told)
        if reasons:
            mine = replace(mine, declared={told: reasons})
        # Blocks without anything of their own stay the same object for all who get them.
        apart = told != receiver.id and (mine.declared or mine.digests or commits is not block.commits)
        yield receiver, renamed(mine, told, receiver.id) if apart else mine


def _group_by_class(lists: ClassLists, receivers: tuple[Receiver, ...]) -> dict[int, npt.NDArray[np.int64]]:
    """For each class with rows, the rows in order; classes of the same rows share one array."""
    wanted = np.unique(np.array([receiver.class_id for receiver in receivers], dtype=np.uint32))
    return lists.restrict(wanted).rows_by_class()
