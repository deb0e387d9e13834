"""What a site reports of the gridded streams that it serves: its parts, its replicas, its readers and its load."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


class HeldCount(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a part that a site holds, and up to which row of the stream they are all there."""

    rows: Count
    upto: Count


class HeldReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica: from which site it is, which part of the site's capacity its readers take, and its rows."""

    origin: str = msgspec.field(name="from")
    load: float
    rows: Count
    upto: Count


class ServedStreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stream that a site serves: what it owns by subscription, and its replicas by region.

    `asked` counts queries that are open. `load` is the promised part of what the site can serve, which is
    `capacity_cells`, None as long as nothing was measured.
    """

    generation: Count
    owns: dict[str, HeldCount]
    replicas: dict[str, HeldReplica]
    sends_to: list[str]
    readers: Count
    asked: Count
    refused: Count
    bytes_per_s: Count
    bandwidth_bytes_per_s: Count
    load: float
    capacity_cells: float | None
    sent_bytes: Count
    replica_bytes: Count
    replicas_taken: Count
    letters: Count


class GridReport(Report, frozen=True, kw_only=True):
    """The gridded streams that a site serves, and those that it serves as before, with the reason."""

    kind_name = "grid-report"
    time_ms: Count
    streams: dict[str, ServedStreamReport] = msgspec.field(default_factory=dict)
    problems: dict[str, str] = msgspec.field(default_factory=dict)
