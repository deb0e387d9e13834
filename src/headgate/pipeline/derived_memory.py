"""What derived columns remember, kept in the root log and named by manifests.

The rows of a stream with derived columns are partitioned by key, and each partition has a memory of its own. A task
stages what its rows add to it (`root.STREAM.memory`), as it stages parts, and nothing of that counts until a manifest
names it: rows and memory are committed together, so a micro-batch that is run again begins with the memory that the
last committed one has left. A message names the one before it. Once in a while one is the whole memory, so that older
messages can go.

A process keeps the memories of the partitions that it was given. Where its own is behind, as another process had the
partition meanwhile, it reads what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from headgate.deriving import Derivation, History, NewRows
from headgate.deriving.history import Merged
from headgate.protocol.commits import LineageError
from headgate.protocol.port import Stored
from headgate.wire.frame import Frame, decode_frame, encode_frame
from headgate.wire.logs import Log, Logs

_ROOM: Final = 0.5
"""How much of the server's largest message a message of memory takes at most, before it is compressed."""
WHOLE_EVERY: Final = 256
"""After so many messages the whole memory is written, however little was added by them."""


class MemoryPort(Protocol):
    """The log that memories are in."""

    @property
    def logs(self) -> Logs:
        """The names of its subjects."""
        ...

    @property
    def max_payload(self) -> int:
        """How many bytes a message may have."""
        ...

    def get(self, log: Log, sequence: int) -> Stored | None:
        """The message at a place, None where it is gone."""
        ...

    def publish_all(self, subject: str, messages: list[bytes]) -> list[int]:
        """Append messages; returns their places."""
        ...


class MemoryGoneError(LineageError):
    """A message of memory that a manifest leads to is gone from the root log."""


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """The memory of a partition up to a message, where its whole begins, and what was added since."""

    place: int
    whole: int
    messages: int
    rows: int
    history: History


class DerivedMemory:
    """The memories of a stream in one process, by partition."""

    def __init__(self, port: MemoryPort, stream: str) -> None:
        self._port = port
        self._stream = stream
        self._kept: dict[int, tuple[str, KeptMemory]] = {}

    def load(self, derivation: Derivation, partition: int, place: int) -> KeptMemory:
        """The memory of a partition up to a message; nothing where the message is of other derived columns."""
        spec, kept = self._kept.get(partition, ("", KeptMemory(0, 0, 0, 0, History.empty(derivation))))
        if spec == derivation.fingerprint and kept.place == place and place:
            return kept
        frames: list[tuple[int, Frame]] = []
        at = place
        while at and not (spec == derivation.fingerprint and at == kept.place):
            frame = self._frame(at)
            if frame.header["spec"] != derivation.fingerprint:
                frames = []
                break
            frames.append((at, frame))
            if frame.header["whole"] and frame.header["first"]:
                break
            at = int(frame.header["before"])
        if spec != derivation.fingerprint or at != kept.place or not at:
            kept = KeptMemory(0, 0, 0, 0, History.empty(derivation))
        for version in _versions(list(reversed(frames))):
            kept = _applied(derivation, kept, version)
        self._kept[partition] = (derivation.fingerprint, kept)
        return kept

    def stage(
        self, derivation: Derivation, partition: int, kept: KeptMemory, rows: NewRows, after: History, *, renew: bool
    ) -> KeptMemory:
        """Stage what rows have added to a memory, or all of it, and keep it."""
        added, messages = kept.rows + len(rows), kept.messages + 1
        whole = renew or not kept.place or messages >= WHOLE_EVERY or added > max(after.rows, 1)
        tables = _whole(after) if whole else {"rows": _added(rows)}
        header = {
            "spec": derivation.fingerprint,
            "whole": whole,
            "clock": after.clock,
            "forgotten": after.forgotten,
        }
        pieces = list(_pieces(tables, int(self._port.max_payload * _ROOM)))
        place, first = 0 if whole else kept.place, 0
        for number, (name, table) in enumerate(pieces):
            own = {"before": place, "holds": name, "first": number == 0, "last": number == len(pieces) - 1}
            message = encode_frame("d", {**header, **own}, [_packed(table)])
            place = self._port.publish_all(self._port.logs.memory(self._stream), [message])[0]
            first = first or place
        found = (
            KeptMemory(place, first, 0, 0, after) if whole else KeptMemory(place, kept.whole, messages, added, after)
        )
        self._kept[partition] = (derivation.fingerprint, found)
        return found

    def _frame(self, place: int) -> Frame:
        log = self._port.logs.root(self._stream)
        stored = self._port.get(log, place)
        if stored is None:
            raise MemoryGoneError(
                f"what the derived columns of stream {self._stream!r} remember is incomplete: message {place} of "
                f"{log.name} is gone",
                hint="restore the NATS store; or start with --new-lineage to begin with nothing remembered",
            )
        return decode_frame(stored.data, "d")


def _versions(frames: list[tuple[int, Frame]]) -> Iterator[list[tuple[int, Frame]]]:
    """Messages in their order, those that were staged together as one."""
    version: list[tuple[int, Frame]] = []
    for each in frames:
        version.append(each)
        if each[1].header["last"]:
            yield version
            version = []


def _applied(derivation: Derivation, kept: KeptMemory, version: list[tuple[int, Frame]]) -> KeptMemory:
    tables: dict[str, list[pa.Table]] = {}
    for _, frame in version:
        tables.setdefault(frame.header["holds"], []).append(_unpacked(frame))
    header: Mapping[str, Any] = version[-1][1].header
    place, rows = version[-1][0], pa.concat_tables(tables["rows"])
    time = rows.column("time").to_numpy()
    terms = _renamed(rows, "t", derivation.term_types)
    if header["whole"]:
        keys = pa.concat_tables(tables["keys"])
        known = _renamed(keys, "k", derivation.key_types)
        seen, key = keys.column("seen").to_numpy(), rows.column("key").to_numpy()
        history = History(known, seen, key, time, terms, header["clock"], header["forgotten"])
        return KeptMemory(place, version[0][0], 0, 0, history)
    new = NewRows(_renamed(rows, "k", derivation.key_types), time, terms)
    after = Merged.of(kept.history, new).remembered(derivation)
    return KeptMemory(place, kept.whole, kept.messages + 1, kept.rows + len(new), after)


def _added(rows: NewRows) -> pa.Table:
    return pa.table({**_numbered(rows.keys, "k"), **_numbered(rows.terms, "t"), "time": rows.time})


def _whole(history: History) -> dict[str, pa.Table]:
    return {
        "keys": pa.table({**_numbered(history.keys, "k"), "seen": history.seen}),
        "rows": pa.table({**_numbered(history.terms, "t"), "key": history.key, "time": history.time}),
    }


def _numbered(table: pa.Table, letter: str) -> dict[str, pa.ChunkedArray]:
    return {f"{letter}{number}": column for number, column in enumerate(table.columns)}


def _renamed(table: pa.Table, letter: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    columns = [table.column(f"{letter}{number}") for number in range(len(types))]
    return pa.table(columns, pa.schema(list(types.items()))).combine_chunks()


def _pieces(tables: Mapping[str, pa.Table], room: int) -> Iterator[tuple[str, pa.Table]]:
    """Tables in slices of at most so many bytes, at least one of each."""
    for name, table in tables.items():
        count = max(1, -(-table.nbytes // room))
        size = max(1, -(-table.num_rows // count))
        for start in range(0, max(table.num_rows, 1), size):
            yield name, table.slice(start, size)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(frame: Frame) -> pa.Table:
    with pa.ipc.open_stream(frame.sections[0]) as reader:
        return reader.read_all()
