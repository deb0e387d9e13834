"""The truth about a run of `headgate bench admission`: what its batches should have been matched to, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.fabric import SyncFabric
from headgate.matching import ClassLists
from headgate.matching.admission import compare_lists
from headgate.model import Schema
from headgate.pipeline.classes import index_of
from headgate.pipeline.sources import generate
from headgate.pipeline.states import read_snapshot
from headgate.wire.context import decode_context
from headgate.wire.manifest import decode_manifest
from headgate.wire.part import decode_part
from headgate_studies.bench.admission_load import Load


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed micro-batch: the rows that were matched with the classes that they got, and what it was pinned to.

    The source gave it `rows` rows from its row `start` on; its row 0 was at `origin_us`.
    """

    number: int
    version: int
    head: int
    table: pa.RecordBatch
    lists: ClassLists
    start: int
    rows: int
    origin_us: int
    oldest_s: float
    shed: int
    shed_updates: int


def read_batches(
    fabric: SyncFabric, stream: str, schema: Schema, heads: Mapping[int, int], first: int
) -> list[CommittedBatch]:
    """The batches from a number on. One subscription takes every row, so that all rows that were matched are there."""
    logs, place, start, origin_us = fabric.logs, 0, 0, 0
    found: list[CommittedBatch] = []
    while stored := fabric.read(logs.root(stream), logs.commit(stream), place):
        place = stored[-1].sequence
        for each in stored:
            manifest = decode_manifest(each.data)
            start, after = start + manifest.rows_in, start
            if not manifest.rows_in or (origin_us and (manifest.batch < first or manifest.batch not in heads)):
                continue
            parts = []
            for ref in manifest.parts:
                data = fabric.get(logs.root(stream), ref.log_sequence) if ref.log_sequence else None
                if data is not None:
                    parts.append(decode_part(data.data, schema.arrow))
            table = pa.Table.from_batches([part.rows for part in parts], schema.arrow).combine_chunks()
            times = table.column("at").cast(pa.int64()).to_numpy()
            if not origin_us:  # nothing is shed in the first batch: no costs are known
                origin_us = int(times.min())
                continue
            found.append(
                CommittedBatch(
                    manifest.batch,
                    manifest.version,
                    heads[manifest.batch],
                    table.to_batches()[0],
                    ClassLists.concat([part.classes for part in parts]),
                    after,
                    manifest.rows_in,
                    origin_us,
                    manifest.time_ms / 1e3 - float(times.min()) / 1e6,
                    manifest.shed,
                    manifest.shed_updates,
                )
            )
    return found


def exact_errors(fabric: SyncFabric, stream: str, batches: Sequence[CommittedBatch], load: Load) -> tuple[int, int]:
    """Matches missed and matches wrong, by matching every row that the source gave in order, shed ones included.

    The state is built up from the first version and every update of the log, none left out.
    """
    index = index_of(read_snapshot(fabric, batches[0].version), stream)
    logs, place, missed, wrong = fabric.logs, 0, 0, 0
    for batch in batches:
        contexts: dict[int, Mapping[str, Any]] = {}
        while place < batch.head and (stored := fabric.read(logs.root(stream), logs.context(stream), place)):
            for each in stored:
                if each.sequence <= batch.head:
                    contexts.update({k: now for k, (_, now) in decode_context(each.data).items()})
            place = min(batch.head, stored[-1].sequence)
        if contexts:
            index.bind(contexts)
        stop = batch.start + batch.rows
        rows = generate("fleet", load.seed, batch.start, stop, rate=load.rows, origin_us=batch.origin_us)
        fewer, more = compare_lists(index.match(rows), _given(batch, rows))
        missed, wrong = missed + int(np.sum(fewer)), wrong + int(np.sum(more))
    return missed, wrong


def _given(batch: CommittedBatch, rows: pa.RecordBatch) -> ClassLists:
    """The classes that each of the source's rows got, none where it was shed."""
    known = {key: number for number, key in enumerate(_keys(batch.table))}
    places = np.array([known.pop(key, batch.lists.rows) for key in _keys(rows)])
    if known:
        raise AssertionError(f"{len(known)} rows were matched that the source did not give")
    offsets = np.append(batch.lists.offsets, batch.lists.offsets[-1])
    return ClassLists(offsets, batch.lists.ids).take(places)


def _keys(rows: pa.RecordBatch) -> list[tuple[str, int]]:
    times = rows.column("at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return list(zip(rows.column("vehicle").to_pylist(), times.to_pylist(), strict=True))
