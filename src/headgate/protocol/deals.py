"""What a member of a group and its dealer tell each other: questions for rows, with acknowledgements, and rows.

A question is a record in JSON. An answer is a frame (`headgate.wire.frame`) of kind `d`: the sequence numbers of the
rows, and the rows as an Arrow stream with their schema, as a member knows no version of the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.wire.frame import WireError, decode_frame, encode_frame
from headgate.wire.record import Count

KIND: Final = "d"
MOST_ROOM: Final = 10_000
"""Rows that one member may hold."""
LONGEST_WAIT_S: Final = 20.0


class MemberCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a member asks for: the rows of its next `turn`, at most so many that it holds no more than `room`.

    `session` tells one run of a member from the next: what the one before held is dealt again. A question that is
    repeated with the same turn gets the same rows. `done` are the rows that the member is done with. `context` are its
    values by name. It waits for the first row for at most `wait_s`. With `leave` it gets nothing, and what it holds
    goes to others.
    """

    name: Annotated[str, msgspec.Meta(max_length=256)]
    member: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    session: Annotated[str, msgspec.Meta(max_length=64)]
    turn: Count
    room: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROOM)] = 256
    done: list[Count] = []
    context: dict[str, Any] = {}
    wait_s: float = 5.0
    leave: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a question; what is none is a `WireError`."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise WireError(f"this is no question of a group's member: {error}") from error

    def encode(self) -> bytes:
        """The question as bytes."""
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What was given up of the group's rows in a range (after, upto], by reason."""

    after: int
    upto: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows for one member. `stored` says that all its acknowledgements are: these rows are never dealt again.

    `lost` are rows that it said to be done with and that were not its own any more: another member has them. `notes`
    say what was given up of the group's rows; one member hears of it. The rows are the member's for `lease_s`.
    """

    turn: int
    seqs: npt.NDArray[np.uint64]
    rows: pa.RecordBatch | None
    stored: bool = True
    lost: tuple[int, ...] = ()
    notes: tuple[GivenUp, ...] = ()
    lease_s: float = 0.0
    error: str = ""
    hint: str | None = None
    kind: str = ""
    members: int = 1

    def encode(self) -> bytes:
        """The answer as bytes."""
        header = {
            "turn": self.turn,
            "stored": self.stored,
            "lost": list(self.lost),
            "notes": [[note.after, note.upto, note.reasons] for note in self.notes],
            "lease_s": self.lease_s,
            "error": self.error,
            "hint": self.hint,
            "kind": self.kind,
            "members": self.members,
        }
        if self.rows is None:
            return encode_frame(KIND, header)
        sink = pa.BufferOutputStream()
        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.rows.schema, options=packed) as writer:
            writer.write_batch(self.rows)
        return encode_frame(KIND, header, [self.seqs.astype("<u8").tobytes(), memoryview(sink.getvalue())])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read an answer; what is none is a `WireError`."""
        frame = decode_frame(data, KIND)
        try:
            header = dict(frame.header)
            header["lost"] = tuple(header["lost"])
            header["notes"] = tuple(GivenUp(*note) for note in header["notes"])
            if not frame.sections:
                return cls(seqs=np.zeros(0, dtype=np.uint64), rows=None, **header)
            numbers, stream = frame.sections
            seqs = np.frombuffer(numbers, dtype="<u8").astype(np.uint64)
            rows = pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()
            return cls(seqs=seqs, rows=rows, **header)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise WireError(f"this is no answer to a group's member: {error!r}") from error
