"""Every small document in a log, as one typed record each, with one encoder and one decoder.

A record is stored as JSON with its kind and format, under a checksum, so that a reader who gets something else is told
so instead of taking it for what it is not. Blocks, manifests and parts are frames (`headgate.wire.frame`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import msgspec

from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

FORMAT: Final = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a log; subclasses name their `kind`."""

    kind_name: ClassVar[str]

    def encode(self) -> bytes:
        """The stored form."""
        document = {"kind": self.kind_name, "format": FORMAT, **msgspec.structs.asdict(self)}
        return seal(msgspec.json.encode(document))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the stored form; anything else is a `WireError`."""
        try:
            document: dict[str, Any] = msgspec.json.decode(unseal(data))
            kind, number = document.pop("kind"), document.pop("format")
            if (kind, number) != (cls.kind_name, FORMAT):
                raise ValueError(f"it is a {kind!r} of format {number!r}")  # noqa: TRY301 # told as one below
            return msgspec.convert(document, cls, strict=False)
        except Exception as error:
            raise WireError(f"this is no {cls.kind_name}: {error}") from error


class RelayMark(Record, frozen=True, kw_only=True):
    """How far a root's relay has passed on everything: a restart need not read the root log before it."""

    kind_name = "relay-mark"
    upto: int


class Holds(Record, frozen=True, kw_only=True):
    """Versions of ranges that a relay has in memory only: by stream and version, the end of the range."""

    kind_name = "holds"
    versions: dict[str, dict[int, int]] = {}


class Purging(Record, frozen=True, kw_only=True):
    """The versions of the catalog that are about to be deleted."""

    kind_name = "purging"
    versions: list[int]


class Oldest(Record, frozen=True, kw_only=True):
    """By stream, the place in its root log before which nothing need be kept, as the tables have no room for it."""

    kind_name = "oldest"
    time_ms: int
    places: dict[str, int]


class Past(Record, frozen=True, kw_only=True):
    """Up to where a root log was forgotten."""

    kind_name = "past"
    upto: int


class OutputReport(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a relay as it stands."""

    rows: int = 0
    bytes: int = 0
    age_s: float = 0.0
    classes: dict[str, list[float]] | None = {}
    not_for: dict[str, int] = {}
    coverage: int | None = None
    stalled: bool = False
    came: int = 0
    reduced: int = 0
    reasons: dict[str, int] = {}
    level: int = 0
    packs: int = 0
    reorderings: list[dict[str, Any]] = []


class RelayReport(Record, frozen=True, kw_only=True):
    """What a relay has done since it started, and how far it has settled each stream.

    `settled` has, by stream, the end of what all outputs have passed and the version that it was routed under; what
    comes later was routed under that version or a newer one. It holds for the incarnations that are named beside it: in
    another one the same numbers mean other rows. `stopped` names streams that cannot go on, and why.
    """

    kind_name = "relay-report"
    site: str
    time_ms: int
    messages: int = 0
    rows: int = 0
    link_bytes: dict[str, int] = {}
    link_messages: dict[str, int] = {}
    link_rows: dict[str, int] = {}
    inbox_bytes: int = 0
    inbox_messages: int = 0
    repairs: int = 0
    refused: int = 0
    oversize: int = 0
    failures: int = 0
    blocks: int = 0
    cpu_s: float = 0.0
    sent_s: dict[str, float] = {}
    arrived_s: dict[str, float] = {}
    settled: dict[str, tuple[int, int]] = {}
    incarnations: dict[str, str] = {}
    outputs: dict[str, OutputReport] = {}
    stopped: dict[str, str] = {}
