"""Memory per key: the last value of each group that a filter has seen, bounded in the number of groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.reduction.rows import Ints, codes, column, order_of

MAX_KEYS = 100_000


@dataclass(frozen=True, slots=True)
class LastPerKey:
    """Keys (one array a key column) with the last value of each, oldest first; at most `MAX_KEYS` are remembered."""

    keys: tuple[pa.Array, ...]
    values: pa.Array


@dataclass(frozen=True, slots=True)
class Grouped:
    """The remembered values and a batch in one numbering of groups: entries of the memory come first."""

    codes: Ints
    groups: int
    remembered: int
    values: pa.Array


def group(rows: pa.RecordBatch, key: tuple[str, ...], values: pa.Array, state: LastPerKey | None) -> Grouped:
    """Number the groups of the rows, preceded by those of the memory."""
    keys = tuple(column(rows, name) for name in key)
    remembered = 0
    if state is not None:
        remembered = len(state.values)
        keys = tuple(pa.concat_arrays([old, new]) for old, new in zip(state.keys, keys, strict=True))
        values = pa.concat_arrays([state.values, values])
    found, groups = codes(keys, len(values))
    return Grouped(found, groups, remembered, values)


def remember(
    rows: pa.RecordBatch, key: tuple[str, ...], values: pa.Array, state: LastPerKey | None, *, nulls: bool = False
) -> LastPerKey:
    """The memory after these rows, NULL left out unless asked for; keys seen longest ago are forgotten first."""
    grouped = group(rows, key, values, state)
    valid = np.arange(len(grouped.values))
    if not nulls:
        valid = valid[np.asarray(grouped.values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)]
    last = np.full(grouped.groups, -1, dtype=np.int64)
    last[grouped.codes[valid]] = valid  # the last of equal indices stays
    picked = pa.array(np.sort(last[last >= 0])[-MAX_KEYS:])
    keys = tuple(column(rows, name) for name in key)
    if state is not None:
        keys = tuple(pa.concat_arrays([old, new]) for old, new in zip(state.keys, keys, strict=True))
    return LastPerKey(tuple(values.take(picked) for values in keys), grouped.values.take(picked))


def previous(grouped: Grouped) -> Ints:
    """For each element, the index of the one before it in its group, or -1."""
    order = order_of(grouped.codes, grouped.groups)
    sorted_codes = grouped.codes[order]
    before = np.full(len(order), -1, dtype=np.int64)
    same = sorted_codes[1:] == sorted_codes[:-1]
    before[order[1:][same]] = order[:-1][same]
    return before
