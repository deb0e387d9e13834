"""Finding one row in what was committed, or in dead letters."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.filters import parse_filter
from headgate.model import Stream
from headgate.pipeline.sources.declarations import GAP
from headgate.relay.root import readable
from headgate.service.dead_letters import read_letters
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest
from headgate.wire.message import from_json, json_text

SEARCH_S: Final = 20.0
"""How long rows are searched for, newest first, in all places together."""

Choose = Callable[[pa.RecordBatch], Any]
"""Says of each row of a batch whether it is one that is asked for."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Which rows are searched for, and until when."""

    choose: Choose
    deadline_s: float

    @classmethod
    def now(cls, choose: Choose) -> Sought:
        """For as long as a search may take, from now on."""
        return cls(choose, time.monotonic() + SEARCH_S)

    @property
    def is_over(self) -> bool:
        """Whether the time has come to stop."""
        return time.monotonic() > self.deadline_s

    async def places(self, rows: pa.RecordBatch) -> Any:
        """Where in a batch there are such rows; a thread evaluates the filter."""
        return np.flatnonzero(await asyncio.to_thread(self.choose, rows))


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """A row that was committed; `row` is None where nobody wanted it, or where its part is gone."""

    manifest: Manifest
    seq: int
    row: pa.RecordBatch | None = None
    classes: frozenset[int] = frozenset()
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Searched:
    """Where a search ended: the row that it found, how many fit, and how far back it could look."""

    found: CommittedRow | None
    count: int
    oldest: int
    whole: bool


def chooser(stream: Stream, where: str | None, key: str | None) -> Choose:
    """What chooses rows by a filter, or by the values of the stream's key, written with commas between them."""
    if where is not None:
        return parse_filter(where, stream.schema).evaluate
    names, values = stream.key, (key or "").split(",")
    if not names:
        raise HeadgateError(f"the stream {stream.name!r} has no key", hint="ask by --where, or by --seq")
    if len(values) != len(names):
        raise HeadgateError(
            f"the key of {stream.name!r} is {', '.join(names)}", hint="give a value for each, with commas"
        )

    def chosen(batch: pa.RecordBatch) -> Any:
        masks = [[_plain(each) == value.strip() for each in batch.column(name).to_pylist()]
                 for name, value in zip(names, values, strict=True)]  # fmt: skip
        return np.logical_and.reduce(masks) if batch.num_rows else np.zeros(0, dtype=bool)

    return chosen


def _plain(value: Any) -> str:
    """A value of a key as a person writes it."""
    return value if isinstance(value, str) else json_text(value).strip('"')


async def read_manifests(fabric: Fabric, stream: str) -> list[Manifest]:
    """Every manifest that the root log still holds, oldest first."""
    logs, found, place = fabric.logs, [], 0
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        found += [manifest for _, manifest in readable(fabric, batch)]
    return found


async def row_at(fabric: Fabric, stream: Stream, manifest: Manifest, seq: int) -> CommittedRow:
    """The row of a sequence number that a manifest covers."""
    for base, part in zip(manifest.bases(), manifest.parts, strict=True):
        if not base < seq <= base + part.evaluated:
            continue
        if not part.log_sequence:
            return CommittedRow(manifest, seq)
        found = await _part(fabric, stream, part.log_sequence)
        if found is None:
            return CommittedRow(manifest, seq, kept=False)
        place = int(np.searchsorted(found.positions, seq - base - 1))
        if place >= len(found.positions) or int(found.positions[place]) != seq - base - 1:
            return CommittedRow(manifest, seq)
        return CommittedRow(manifest, seq, found.rows.slice(place, 1), frozenset(found.classes.row(place).tolist()))
    return CommittedRow(manifest, seq, kept=False)


async def _part(fabric: Fabric, stream: Stream, place: int) -> Any:
    stored = await fabric.get(fabric.logs.root(stream.name), place)
    try:
        return None if stored is None else fabric.codec.part(stored.data, stream.schema.arrow)
    except WireError:
        return None


async def search(fabric: Fabric, stream: Stream, manifests: Sequence[Manifest], sought: Sought) -> Searched:
    """The newest row that is chosen, of those that anybody wanted and that are still kept."""
    newest: tuple[Manifest, int] | None = None
    count, oldest = 0, manifests[-1].upto if manifests else 0
    for manifest in reversed(manifests):
        if sought.is_over:
            return Searched(await _found(fabric, stream, newest), count, oldest, whole=False)
        pairs = list(zip(manifest.bases(), manifest.parts, strict=True))
        for base, part in reversed(pairs):
            found = await _part(fabric, stream, part.log_sequence) if part.log_sequence else None
            if found is None:
                continue
            chosen = await sought.places(found.rows)
            count += len(chosen)
            if len(chosen) and newest is None:
                newest = manifest, base + 1 + int(found.positions[chosen[-1]])
        oldest = manifest.after
    return Searched(await _found(fabric, stream, newest), count, oldest, whole=True)


async def _found(fabric: Fabric, stream: Stream, newest: tuple[Manifest, int] | None) -> CommittedRow | None:
    return None if newest is None else await row_at(fabric, stream, *newest)


@dataclass(frozen=True, slots=True)
class DeclaredGap:
    """A gap of a source: which messages were gone before they were read, and when that was declared."""

    reason: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class LetterSearch:
    """The newest dead letter that is chosen, as far as its values can be told, and gaps that were declared after it."""

    letter: Mapping[str, Any] | None
    gaps: tuple[DeclaredGap, ...] = ()
    whole: bool = True


async def search_dead(fabric: Fabric, stream: Stream, manifests: Sequence[Manifest], sought: Sought) -> LetterSearch:
    """Look through the dead letters of manifests, newest first, up to one that is chosen."""
    log = fabric.logs.root(stream.name)
    gaps: list[DeclaredGap] = []
    for manifest in reversed(manifests):
        for part in reversed(manifest.dead_parts):
            if sought.is_over:
                return LetterSearch(None, tuple(gaps), whole=False)
            stored = await fabric.get(log, part.log_sequence)
            lines = None if stored is None else fabric.quarantine.take(log, stored, read_letters)
            letters = [json.loads(line) for line in reversed(lines or [])]
            letter = await asyncio.to_thread(_first_chosen, letters, stream, sought.choose)
            newer = letters if letter is None else letters[: letters.index(letter)]
            gaps += [DeclaredGap(each["reason"], manifest.time_ms) for each in newer if _is_gap(each)]
            if letter is not None:
                return LetterSearch(letter, tuple(gaps))
    return LetterSearch(None, tuple(gaps))


def _first_chosen(letters: Sequence[Mapping[str, Any]], stream: Stream, choose: Choose) -> Mapping[str, Any] | None:
    for letter in letters:
        readings = () if _is_gap(letter) else _readings(letter)
        if any(bool(choose(typed([row], stream))[0]) for row in readings):
            return letter
    return None


def _is_gap(letter: Mapping[str, Any]) -> bool:
    return str(letter["reason"]).startswith(GAP)


def _readings(letter: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rows that a dead letter may stand for: its columns, and its raw text where that is JSON."""
    if isinstance(letter.get("row"), dict):
        yield letter["row"]
    try:
        raw = json.loads(letter.get("raw") or "null")
    except ValueError:
        return
    if isinstance(raw, dict):
        yield raw


def typed(rows: Sequence[Mapping[str, Any]], stream: Stream) -> pa.RecordBatch:
    """Rows in the stream's types; a value that does not fit is null."""
    columns = [[_fitted(row.get(field.name), field.type) for row in rows] for field in stream.schema.arrow]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, stream.schema.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=stream.schema.arrow)


def _fitted(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(from_json(value, kind), kind).as_py()
    except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError):
        return None
