"""What relays report: links, outputs, what is settled, and what is published at their sites."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


class Reordering(msgspec.Struct, frozen=True, kw_only=True):
    """A change by `levels: auto`: when, for which subscriptions, the levels before and after, what each would drop."""

    time_s: float
    receivers: list[int]
    before: list[str]
    after: list[str]
    fractions: list[float]


class OutputReport(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a relay as it stands."""

    rows: Count = 0
    bytes: Count = 0
    age_s: float = 0.0
    classes: dict[str, tuple[Count, Count, float]] | None = {}
    not_for: dict[str, Count] = {}
    coverage: Count | None = None
    stalled: bool = False
    came: Count = 0
    reduced: Count = 0
    reasons: dict[str, Count] = {}
    level: Count = 0
    packs: Count = 0
    reorderings: list[Reordering] = []


class ArrivalReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the receiver of a link has seen of it.

    Bytes that came in all, how many came a second lately, how many a second the link can carry, and how long the last
    message waited for it. With `busy` the rate was seen while rows waited for the link; else it carries at least that.
    """

    bytes: Count = 0
    used_bytes_per_s: float = 0.0
    rate_bytes_per_s: float = 0.0
    queue_s: float = 0.0
    busy: bool = False


class LinkUp(msgspec.Struct, frozen=True, kw_only=True):
    """A link into a site, as its receiver sees the connection: where its end is, its round trip, and how it is idle.

    `probes` counts questions that were asked as nothing came for long, `unanswered` those without an answer.
    """

    address: str = ""
    round_trip_s: float | None = None
    least_round_trip_s: float | None = None
    idle_s: float = 0.0
    probes: Count = 0
    unanswered: Count = 0


class PeerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A connection to a site's server, as the sender sees it: its round trip, and the share that was sent again."""

    round_trip_s: float
    least_round_trip_s: float
    resent: float | None = None
    bytes: Count = 0


class LinksReport(Report, frozen=True, kw_only=True):
    """What the kernel knows of a site's links.

    `above` has those into it by the site of the server that they come from, which is empty for home. `below` has the
    connections to its own server by the address of their other end.
    """

    kind_name = "links-report"
    site: str
    time_ms: Count
    above: dict[str, LinkUp] = msgspec.field(default_factory=dict)
    below: dict[str, PeerFigures] = msgspec.field(default_factory=dict)


class RelayReport(Report, frozen=True, kw_only=True):
    """What a relay has done since it started, and how far it has settled each stream.

    `settled` has, by stream, the end of what all outputs have passed and the version that it was routed under; what
    comes later was routed under that version or a newer one. It holds for the incarnations that are named beside it: in
    another one the same numbers mean other rows. It counts decisions that are in the site log and not yet sent: these
    are `recorded`, by output, with their ends. `taken` has, by parent, what was seen of the link from it, and
    `bounds`, by child, how many bytes a second may go there as the child has measured no more. `stopped` names streams
    that cannot go on, and why. `standbys` has, by stream, who serves the site in place of a silent parent,
    and `seconds` who serves it besides its parent, for subscriptions that ask for two paths. Links
    are named by stream and child. `outputs` has all links, and the inboxes where something waits, was given up, or
    stands; `inboxes` counts them all, and `passed` is how far the best of a stream's outputs has got. `ahead` has, by
    inbox that several subscriptions share and that is half full, those who are ahead of others in it.
    """

    kind_name = "relay-report"
    site: str
    time_ms: Count
    messages: Count = 0
    rows: Count = 0
    link_bytes: dict[str, Count] = msgspec.field(default_factory=dict)
    link_messages: dict[str, Count] = msgspec.field(default_factory=dict)
    link_rows: dict[str, Count] = msgspec.field(default_factory=dict)
    inbox_bytes: Count = 0
    inbox_messages: Count = 0
    repairs: Count = 0
    refused: Count = 0
    oversize: Count = 0
    failures: Count = 0
    blocks: Count = 0
    cpu_s: float = 0.0
    sent_s: dict[str, float] = msgspec.field(default_factory=dict)
    arrived_s: dict[str, float] = msgspec.field(default_factory=dict)
    taken: dict[str, ArrivalReport] = msgspec.field(default_factory=dict)
    bounds: dict[str, float] = msgspec.field(default_factory=dict)
    settled: dict[str, tuple[Count, Count]] = msgspec.field(default_factory=dict)
    recorded: dict[str, Count] = msgspec.field(default_factory=dict)
    incarnations: dict[str, str] = msgspec.field(default_factory=dict)
    outputs: dict[str, OutputReport] = msgspec.field(default_factory=dict)
    inboxes: Count = 0
    passed: dict[str, Count] = msgspec.field(default_factory=dict)
    stopped: dict[str, str] = msgspec.field(default_factory=dict)
    standbys: dict[str, str] = msgspec.field(default_factory=dict)
    seconds: dict[str, str] = msgspec.field(default_factory=dict)
    ahead: dict[str, list[Count]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse links that are none."""
        if any(":" not in link for link in self.link_bytes) or self.link_bytes.keys() - self.link_messages.keys():
            raise ValueError("'link_bytes' and 'link_messages' do not name the same links")


class OutboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was published at a site into one stream: messages that wait, and all messages that ever were.

    `published` is None until the root has answered; `first` is the oldest place that waited before it had. `problem`
    says why nothing goes up at the moment.
    """

    waiting: Count = 0
    published: Count | None = None
    first: Count = 0
    oldest_ms: Count | None = None
    problem: str = ""


class UpwardReport(Report, frozen=True, kw_only=True):
    """What a site has to do with rows that are published at sites: its own outbox by stream, and what it passes on.

    `sent` has, by the next site on the way up, the bytes that went there.
    """

    kind_name = "upward-report"
    site: str
    time_ms: Count
    outbox: dict[str, OutboxReport] = msgspec.field(default_factory=dict)
    outbox_bytes: Count = 0
    sent: dict[str, Count] = msgspec.field(default_factory=dict)
