"""Splitting a block over the outputs of a site: one sort of the class ids, one take of the rows, then slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.matching import ClassLists
from headgate.relay.routes import Child, Receiver, Routes
from headgate.wire.block import Block, Declared


def split(block: Block, routes: Routes) -> Iterator[tuple[Child | Receiver, Block]]:
    """The block of each output, in the order of the routes. Every output gets one, even if it is empty."""
    for child in routes.children:
        yield child, for_child(block, child)
    yield from for_local(block, routes.local)


def for_child(block: Block, child: Child) -> Block:
    """What goes down a link: rows that somebody below wants, their classes below, and the values needed there."""
    assert block.classes is not None
    lists = block.classes.restrict(child.class_ids)
    rows = lists.rows_matched()
    declared = _declared_to(block.declared, child)
    wanted = replace(block, rows=block.rows.select(child.schema.names), classes=lists, declared=declared)
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
            needed = np.logical_or.reduceat(np.isin(lists.ids, needing), lists.offsets[:-1])
        nothing = pa.scalar(None, column.type)
        columns.append(column if needed.all() else pc.if_else(pa.array(needed), column, nothing))
    return pa.RecordBatch.from_arrays(columns, schema=block.rows.schema)


def _declared_to(declared: Declared, child: Child) -> Declared:
    if not declared:
        return {}
    below = {receiver.id for receiver in child.receivers}
    return {receiver: reasons for receiver, reasons in declared.items() if receiver in below}


def for_local(block: Block, receivers: tuple[Receiver, ...]) -> Iterator[tuple[Receiver, Block]]:
    """What goes into the inboxes. Receivers of one class and projection share the same rows."""
    if not receivers:
        return
    assert block.classes is not None
    groups = _group_by_class(block.classes, receivers)
    order = np.concatenate(list(groups.values())) if groups else np.zeros(0, dtype=np.int64)
    seqs = block.seqs[order]
    names = {name for receiver in receivers for name in receiver.schema.names}
    taken = block.rows.select([name for name in block.rows.schema.names if name in names]).take(pa.array(order))
    starts: dict[int, tuple[int, int]] = {}
    position = 0
    for class_id, rows in groups.items():
        starts[class_id] = (position, len(rows))
        position += len(rows)
    shared: dict[tuple[int, tuple[str, ...]], Block] = {}
    for receiver in receivers:
        key = (receiver.class_id, tuple(receiver.schema.names))
        mine = shared.get(key)
        if mine is None:
            start, count = starts.get(receiver.class_id, (0, 0))
            rows = taken.slice(start, count).select(receiver.schema.names)
            mine = replace(block, seqs=seqs[start : start + count], rows=rows, classes=None, declared={})
            shared[key] = mine
        reasons = block.declared.get(receiver.id)
        yield receiver, replace(mine, declared={receiver.id: reasons}) if reasons else mine


def _group_by_class(lists: ClassLists, receivers: tuple[Receiver, ...]) -> dict[int, npt.NDArray[np.int64]]:
    """For each class with rows, the rows in order."""
    wanted = np.unique(np.array([receiver.class_id for receiver in receivers], dtype=np.uint32))
    mine = lists.restrict(wanted)
    order = np.argsort(mine.ids, kind="stable")
    ids, starts = np.unique(mine.ids[order], return_index=True)
    rows = mine.row_of_id()[order]
    return dict(zip(ids.tolist(), np.split(rows, starts[1:]) if len(ids) else [], strict=True))
