"""Parcels: messages that were published at a site, on their way up to the root of their stream.

A site numbers what is published there by the places in its outbox. A parcel covers (after, upto] of these places, as a
block covers a range of the root's sequence on its way down: who has taken everything up to a place drops what it has,
and asks for what is missing. What the root has taken is stored in the input log of the stream in the same form, with
the places that it has reached of all sites (`taken`): the last such message says where each site goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from headgate.wire.frame import Frame, WireError, decode_frame, encode_frame

KIND: Final = "u"
ROWS: Final = "rows"
UNSENT: Final = "unsent"
LARGE: Final = "large"
"""A message that no parcel can hold: only its size travels, and the root makes a dead letter of it."""
_KINDS: Final = (ROWS, UNSENT, LARGE)
_PACKED: Final = 256
_MOST_BYTES: Final = 64 << 20


class ParcelItem(NamedTuple):
    """One published message: its place in the outbox, what it is, the id that its sender gave it, and its bytes."""

    sequence: int
    kind: str
    identity: str
    data: bytes


class SiteIntake(NamedTuple):
    """What a root has taken of a site: up to which place, how many messages, and how many of them it had already."""

    upto: int = 0
    messages: int = 0
    repeated: int = 0


@dataclass(frozen=True)
class Parcel:
    """Messages of one site for one stream. Without messages, and with `after` and `upto` the same, it is a question."""

    stream: str
    origin: str
    after: int
    upto: int
    items: Sequence[ParcelItem] = ()
    taken: Mapping[str, SiteIntake] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of its messages."""
        return sum(len(item.data) for item in self.items)

    def encode(self) -> bytes:
        """The stored form."""
        data = b"".join(item.data for item in self.items)
        packed: bytes = pa.compress(data, codec="zstd", asbytes=True) if len(data) > _PACKED else data
        is_packed = len(packed) < len(data)
        header = {
            "stream": self.stream,
            "origin": self.origin,
            "after": self.after,
            "upto": self.upto,
            "size": len(data) if is_packed else None,
            "items": [[each.sequence, _KINDS.index(each.kind), each.identity, len(each.data)] for each in self.items],
            "taken": {site: list(each) for site, each in self.taken.items()},
        }
        return encode_frame(KIND, header, [packed if is_packed else data])

    @classmethod
    def decode(cls, data: bytes) -> Parcel:
        """Read the stored form; anything else is a `WireError`."""
        frame = decode_frame(data, KIND)
        try:
            return _read(frame)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, OSError) as error:
            raise WireError(f"this is no parcel: {error!r}") from error


def _read(frame: Frame) -> Parcel:
    head = frame.header
    body, size = bytes(frame.sections[0]), head["size"]
    if size is not None:
        if not 0 <= size <= _MOST_BYTES:
            raise ValueError(f"it would take {size} bytes")
        body = pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=True)
    items, place = [], 0
    for sequence, kind, identity, length in head["items"]:
        items.append(ParcelItem(int(sequence), _KINDS[kind], str(identity), body[place : place + length]))
        place += length
    if place != len(body):
        raise ValueError("the lengths of its messages do not add up")
    taken = {str(site): SiteIntake(*map(int, each)) for site, each in head["taken"].items()}
    return Parcel(str(head["stream"]), str(head["origin"]), int(head["after"]), int(head["upto"]), items, taken)
