"""Derived columns of new rows, and what is remembered after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.deriving.definition import Derivation, DerivedColumn
from headgate.deriving.history import Flags, History, Ints, Merged, NewRows
from headgate.deriving.windows import aggregate


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived columns of rows, in the order of the rows, and how many rows have one that cannot be known.

    `history` is what is remembered after them.
    """

    columns: dict[str, pa.Array]
    unknown: int
    history: History


def new_rows(derivation: Derivation, batch: pa.RecordBatch, clock: int) -> NewRows:
    """What is remembered of rows that are in the order in which they are committed."""
    terms = {}
    for name, each in derivation.terms.items():
        if each.first is not None:
            terms[name] = pa.array(each.first.evaluate(batch))
        else:
            terms[name] = batch.column(each.column or "")
    keys = {name: batch.column(name) for name in derivation.by}
    return NewRows(
        pa.table(keys, pa.schema(list(derivation.key_types.items()))),
        times_of(derivation, batch, clock),
        pa.table(terms, pa.schema(list(derivation.term_types.items()))),
    )


def times_of(derivation: Derivation, batch: pa.RecordBatch, clock: int) -> Ints:
    """The times of rows in microseconds; without an event time, the numbers in which they came."""
    if derivation.event_time is None:
        return np.arange(clock, clock + batch.num_rows, dtype=np.int64)
    times = batch.column(derivation.event_time).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False), np.int64)


def derive(derivation: Derivation, history: History, batch: pa.RecordBatch, rows: NewRows | None = None) -> Derived:
    """The derived columns of rows that are in the order in which they are committed, which is that of their times."""
    rows = rows or new_rows(derivation, batch, history.clock)
    merged = Merged.of(history, rows)
    late = rows.time < np.maximum(merged.newest, np.iinfo(np.int64).min + derivation.late_us) - derivation.late_us
    unknown: Flags = np.zeros(len(rows), bool)
    columns: dict[str, pa.Array] = {}
    for each in derivation.columns:
        found, doubtful = _column(each, derivation, merged, late, batch)
        columns[each.name] = found
        unknown |= doubtful
    return Derived(columns, int(unknown.sum()), merged.remembered(derivation))


def add_columns(derivation: Derivation, history: History, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, History]:
    """Rows in the order of their times with their derived columns, and what is remembered after them."""
    order = np.argsort(times_of(derivation, batch, history.clock), kind="stable")
    batch = batch.take(pa.array(order))
    found = derive(derivation, history, batch)
    names = [*batch.schema.names, *found.columns]
    return pa.RecordBatch.from_arrays([*batch.columns, *found.columns.values()], names=names), found.history


def _column(
    each: DerivedColumn, derivation: Derivation, merged: Merged, late: Flags, batch: pa.RecordBatch
) -> tuple[pa.Array, Flags]:
    """A derived column of the new rows, and where it cannot be known, which is null."""
    if each.kind in ("previous", "changed"):
        before = merged.place - 1
        none = late | (before < merged.start[merged.place])
        found = _term(each, merged).take(pa.array(before, mask=none))
        if each.kind == "changed":
            found = _null_where(_differs(batch.column(each.column or ""), found), none)
        return found, late
    assert each.within_s is not None
    within_us = round(each.within_s * 1e6)
    time = merged.time[merged.place]
    if each.kind == "then":
        return _then(each, merged, late, batch, merged.first_after(time - within_us - 1), derivation.limits.rows)
    first = merged.first_after(time - within_us)
    unknown = late | _too_many(merged, first, derivation.limits.rows)
    column = pa.nulls(len(merged.key), pa.bool_()).fill_null(True) if each.term is None else _term(each, merged)
    made, none = aggregate(each.kind, column, first, merged.place + 1, each.type)
    return _null_where(made, none | unknown), unknown


def _then(
    each: DerivedColumn, merged: Merged, late: Flags, batch: pa.RecordBatch, first: Ints, most: int
) -> tuple[pa.Array, Flags]:
    assert each.second is not None
    held = np.asarray(_term(each, merged).to_numpy(zero_copy_only=False), bool)
    newest = np.maximum.accumulate(np.where(held, np.arange(len(held)), -1))
    before = merged.place - 1
    found = (before >= merged.start[merged.place]) & (newest[before] >= first)
    now = each.second.evaluate(batch)
    unknown = now & (late | _too_many(merged, first, most))
    return _null_where(pa.array(now & found), unknown), unknown


def _too_many(merged: Merged, first: Ints, most: int) -> Flags:
    """Whether more rows of a key came up to each row, from the first that counts on, than are remembered."""
    known = np.append(0, np.cumsum(~merged.fresh))
    ends = np.append(np.flatnonzero(merged.start == np.arange(len(merged.start)))[1:], len(merged.start))
    segment = np.cumsum(merged.start == np.arange(len(merged.start))) - 1
    end = ends[segment[merged.place]] if len(merged.start) else first
    later = known[end] - known[merged.place + 1]
    return np.asarray(merged.place + 1 - first + later > most, bool)


def _term(each: DerivedColumn, merged: Merged) -> pa.Array:
    column = merged.terms.column(each.term or "").combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _differs(one: pa.Array, other: pa.Array) -> pa.Array:
    """Whether values are others; nulls are equal to each other, and so are NaNs."""
    differs = pc.fill_null(pc.not_equal(one, other), True)
    same = pc.and_(one.is_null(), other.is_null())
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return pc.and_(differs, pc.invert(same))


def _null_where(values: pa.Array, none: npt.NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(none), pa.scalar(None, values.type), values)
