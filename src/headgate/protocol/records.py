"""Every small document in a log, as one typed record each, with one encoder and one decoder (`headgate.wire.record`).

Acknowledgements and the sums of the ledger are records too and stand beside their arithmetic (`headgate.wire.ledger`).
Blocks, manifests and parts are frames (`headgate.wire.frame`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import msgspec

from headgate.matching.skipped import Skipped
from headgate.wire.record import Count, read_record, write_record

HexText = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})*$")]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a log; subclasses name their `kind`."""

    kind_name: ClassVar[str]

    def encode(self) -> bytes:
        """The stored form."""
        return write_record(self.kind_name, self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the stored form; anything else is a `WireError`."""
        return read_record(cls.kind_name, cls, data)


class RelayMark(Record, frozen=True, kw_only=True):
    """How far a root's relay has passed on everything: a restart need not read the root log before it."""

    kind_name = "relay-mark"
    upto: int


class Holds(Record, frozen=True, kw_only=True):
    """Versions of ranges that a relay has in memory only: by stream and version, the end of the range."""

    kind_name = "holds"
    versions: dict[str, dict[int, int]] = {}


class Pin(Record, frozen=True):
    """What a micro-batch is matched with (contract 8): a version of the catalog, and a place in the context log.

    `before` is the place of the batch before it: the updates in (before, context] arrived between the two. Under
    overload the pin may lag behind `head`, the last update there was, and names what was shed since the version began:
    updates at the places `skipped`, and of those in `partly` the changes whose bits are set, as hexadecimal text. This
    batch has shed `shed_updates` values.
    """

    kind_name = "pin"
    version: Count
    context: Count = 0
    before: Count = 0
    head: Count = 0
    skipped: tuple[Count, ...] = ()
    shed_updates: Count = 0
    partly: tuple[tuple[Count, HexText], ...] = ()
    batch: Count = 0

    @property
    def left_out(self) -> Skipped:
        """The updates that are not applied."""
        return Skipped(frozenset(self.skipped), {place: bytes.fromhex(bits) for place, bits in self.partly})

    def without(self, left_out: Skipped, shed_updates: int = 0) -> Pin:
        """The pin with those updates left out."""
        partly = tuple((place, left_out.partly[place].hex()) for place in sorted(left_out.partly))
        skipped = tuple(sorted(left_out.whole))
        return msgspec.structs.replace(self, skipped=skipped, partly=partly, shed_updates=shed_updates)


class Purging(Record, frozen=True, kw_only=True):
    """The versions of the catalog that are about to be deleted."""

    kind_name = "purging"
    versions: list[int]


class Oldest(Record, frozen=True, kw_only=True):
    """By stream, the place in its root log before which nothing need be kept, as the tables have no room for it.

    `passed` has, by stream whose root log is nearly full, the sequence number up to which every site has passed on all
    that it was to get.
    """

    kind_name = "oldest"
    time_ms: int
    places: dict[str, int]
    passed: dict[str, int] = {}


class RangeRequest(Record, frozen=True, kw_only=True):
    """What a site is asked about the range (after, upto] of a stream.

    Its rows are wanted as the site would send them to a `child` or to a `subscription`, or those of one delivery class
    in some `columns`, from the commit on that a subscription's `start` takes first. With `past` a root says only how
    far it has forgotten the range, with `owed` which rows are the first that are owed to that site, with `served` which
    were for a stay of that subscription before `stay` (`Owed`). With `sent` a site says only how far it has sent the
    range to the child. With `beat` it gives a sign of life and says how far it has come, whatever the range. With
    `serve` the child may be further below, as its parent is dead: its rows are wanted all the same, with `beat` as they
    come, for the next seconds. With `pace` a child says with its question what it has measured of the link from this
    site: bytes a second that the link delivers while it is busy, that came lately, and for how long messages wait.
    """

    kind_name = "range-request"
    stream: str
    after: Count
    upto: Count
    child: str = ""
    subscription: Count = 0
    class_id: int | None = None
    columns: list[str] = []
    start: str = "earliest"
    past: bool = False
    owed: str | None = None
    served: Count | None = None
    stay: Count = 0
    sent: bool = False
    beat: bool = False
    serve: bool = False
    pace: tuple[float, float, float] | None = None


class HostedLogs(Record, frozen=True, kw_only=True):
    """What home asks the relay of a site about a log of the site's own server.

    `do` is `read` (after `after`, at most `limit` messages), `lasts` (the last message of each of `subjects`),
    `counts` (the subjects that fit `subjects[0]`, and how many messages each holds), `names` (the logs that take
    messages of `subjects[0]`) or `usage`.
    """

    kind_name = "hosted-logs"
    do: str
    log: str = ""
    subjects: list[str] = []
    after: Count = 0
    limit: Count = 256


class EntryRequest(Record, frozen=True, kw_only=True):
    """A site asks another one to be let in to its server, with a key of its own; only the public part is sent.

    Once it is in, it asks in the same way for a consumer that gives it its link's messages `after` a sequence. With
    `grid` it wants to read parts of gridded streams that the site serves.
    """

    kind_name = "entry"
    key: str = ""
    after: Count | None = None
    grid: bool = False


class Entered(Record, frozen=True, kw_only=True):
    """The answer: what lets the holder of the key in, and the certificate's fingerprint where there is TLS.

    `reader` is the name of the consumer that was asked for.
    """

    kind_name = "entered"
    statement: str = ""
    reader: str = ""
    fingerprint: str = ""


class HostList(Record, frozen=True, kw_only=True):
    """The sites that have a server of their own; `out` has those whose host was put out, and up to which second.

    What let such a host in at the server of another site until then counts for nothing any more.
    """

    kind_name = "hosts"
    sites: list[str]
    out: dict[str, Count] = {}


class ParcelAnswer(Record, frozen=True, kw_only=True):
    """The answer to a parcel: how far the root has taken what was published at that site, and how many messages.

    With `error` the parcel did not get to the root, and the rest says nothing.
    """

    kind_name = "parcel-answer"
    upto: Count = 0
    messages: Count = 0
    error: str = ""


class DoorIds(Record, frozen=True, kw_only=True):
    """Ids of messages that a root has taken from sites: by what the ids begin with, the ranges of their numbers.

    `number` counts such records; one replaces the oldest. `taken` is what was taken of each site when it was written.
    """

    kind_name = "door-ids"
    number: Count
    ids: dict[str, list[tuple[int, int]]]
    taken: dict[str, tuple[Count, Count, Count]]


class Owed(Record, frozen=True, kw_only=True):
    """Where in a range the first rows lie that are owed to somebody: they come after `begins`, under a version.

    The commits of that version go on up to `ends`, or the range ends there. Where nothing is owed, `begins` and `ends`
    are the end of the range and `version` is 0.
    """

    kind_name = "owed"
    begins: Count
    ends: Count
    version: Count = 0


class Past(Record, frozen=True, kw_only=True):
    """Up to where a root log was forgotten."""

    kind_name = "past"
    upto: int
