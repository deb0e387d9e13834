"""What sites that serve parts of a gridded stream and their readers say to each other, and these messages as bytes.

A reader asks any site (`AskParts`), which has its query placed by the engine of `headgate.grid.serving`, and follows
there who serves which parts (`LookParts`). Rows it takes from those sites themselves (`TakeRows`), each part behind the
number up to which it has it. A site that holds a replica takes its rows in the same way. Messages of the engine travel
between sites as letters, in order, each taken once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.grid.serving import messages
from headgate.grid.space import Ints
from headgate.protocol.tagged import TaggedCodec
from headgate.wire.frame import WireError

READERS: Final = "readers"
"""Who asks, where that is no site."""
_COMPRESSED_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class ServingLetter:
    """A message of a site's engine to another's, or to the site where a reader asked; `number` counts from 1."""

    stream: str
    generation: int
    sender: str
    number: int
    to: int | None
    message: Any


@dataclass(frozen=True, slots=True)
class LetterTaken:
    """Whether a letter was taken: not while the receiver knows of other parts than the sender."""

    taken: bool


@dataclass(frozen=True, slots=True)
class AskParts:
    """A reader wants a box of cells, from now on."""

    stream: str
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LookParts:
    """Who serves the query of a token? The answer comes when that is other than `seen`, and after `wait_s` anyway."""

    stream: str
    token: str
    seen: int = -1
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EndParts:
    """The reader wants no more."""

    stream: str
    token: str


@dataclass(frozen=True, slots=True, eq=False)
class PlacedParts:
    """Who serves which parts of a query: by site, their codes and lengths. `seen` grows with every change.

    A query that no site could take is `refused`; `error` says why there is no such query.
    """

    token: str = ""
    demand: int = -1
    seen: int = 0
    sites: dict[str, tuple[Ints, Ints]] = field(default_factory=dict)
    refused: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class TakeRows:
    """The rows of parts, each behind a number; for a reader's query, or for a site that replicates a region."""

    stream: str
    demand: int
    codes: Ints
    lengths: Ints
    after: Ints
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class TakenRows:
    """Rows of some of the parts, one part after the other, each with how many and with the range that it covers.

    `moved` says that the query is not served here, `again_s` that this site sends as much as it may for so long.
    """

    codes: Ints
    lengths: Ints
    after: Ints
    upto: Ints
    counts: Ints
    seqs: Ints
    rows: bytes = b""
    raw_bytes: int = 0
    moved: bool = False
    again_s: float = 0.0


_CODEC: Final = TaggedCodec(
    (
        ServingLetter, LetterTaken, AskParts, LookParts, EndParts, PlacedParts, TakeRows, TakenRows,
        messages.Demand, messages.Parts, messages.Query, messages.ServedRegion, messages.ServingOffer,
        messages.ServingAnswer, messages.Replica, messages.Release, messages.Reparent, messages.Revoke,
        messages.Expect, messages.Cancel, messages.Announce, messages.ServedParts, messages.Left,
        messages.ServingRefused,
    ),
    "message about parts of a grid",
)  # fmt: skip


def encode_serving(value: Any) -> bytes:
    """A message as bytes.

    >>> decode_serving(encode_serving(LookParts("wind", "t", 3)))
    LookParts(stream='wind', token='t', seen=3, wait_s=0.0)
    """
    return _CODEC.encode(value)


def decode_serving(data: bytes, expected: type[Any] | tuple[type[Any], ...] = object) -> Any:
    """Read it again; what is no such message, or not of the expected types, is a `WireError`."""
    return _CODEC.decode(data, expected)


def nothing_taken(*, moved: bool = False, again_s: float = 0.0) -> TakenRows:
    """An answer without rows."""
    none = np.empty(0, dtype=np.int64)
    return TakenRows(none, none, none, none, none, none, moved=moved, again_s=again_s)


def pack_rows(rows: pa.RecordBatch) -> tuple[bytes, int]:
    """Rows as bytes, and their size before they were compressed; 0 where they were not."""
    data = rows.serialize()
    if data.size < _COMPRESSED_BYTES:
        return data.to_pybytes(), 0
    return pa.Codec("zstd").compress(data, asbytes=True), data.size


def unpack_rows(data: bytes, raw_bytes: int, schema: pa.Schema) -> pa.RecordBatch:
    """The rows again."""
    try:
        plain = pa.Codec("zstd").decompress(data, raw_bytes) if raw_bytes else pa.py_buffer(data)
        return pa.ipc.read_record_batch(plain, schema)
    except (pa.ArrowException, OSError) as error:
        raise WireError(f"rows of a part cannot be read: {error}") from error
