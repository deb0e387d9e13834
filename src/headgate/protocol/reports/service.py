"""What the service reports: that it runs, its machine and processes, tables, joins, alerts, and outputs that stand."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


class ServiceReport(Report, frozen=True, kw_only=True):
    """The last word of a service: that it runs, or that it stops."""

    kind_name = "service-report"
    state: str
    time_ms: Count


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The embedded NATS server."""

    port: Count
    pid: Count | None


class MachineReport(Report, frozen=True, kw_only=True):
    """The machine under a deployment: room on its disk, and the embedded server."""

    kind_name = "machine-report"
    time_ms: Count
    directory: str
    free_bytes: Count
    reserve_bytes: Count
    paused_ms: Count | None
    failing: str | None
    server: ServerProcess | None
    restarts: Count


class ProcessReport(Report, frozen=True, kw_only=True):
    """What a process takes of its machine since its start; `late_s` is the longest its event loop was late of late."""

    kind_name = "process-report"
    process: str
    pid: Count
    time_ms: Count
    cpu_s: float
    memory_bytes: Count
    late_s: float = 0.0


class CollectorReport(Report, frozen=True, kw_only=True, omit_defaults=True):
    """How collecting the messages of a stream's broker is going, since the service was started.

    `since_ms` is when it was connected, or when the connection ended; `breaks` is how often one did.
    """

    kind_name = "collector-report"
    state: str
    place: str
    time_ms: Count
    since_ms: Count
    stored: Count = 0
    dropped: Count = 0
    waiting: Count = 0
    breaks: Count = 0
    error: str | None = None


class TablesReport(Report, frozen=True, kw_only=True):
    """How full the log of tables is, what was deleted, and what holds the oldest version."""

    kind_name = "tables-report"
    time_ms: Count
    bytes: Count
    limit_bytes: Count
    versions: Count
    oldest: Count | None
    newest: Count | None
    revision_bytes: Count | None
    held_by: str | None
    fix: str | None
    purged: Count
    squeezed: dict[str, Count]
    full: bool


class Join(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """A member that has joined again: its parent before and after, tries, parents that were refused, the new hop."""

    time_ms: Count
    stream: str
    site: str
    before: str
    after: str
    rounds: Count
    refused: list[str]
    hop_s: float


class JoinsReport(Report, frozen=True, kw_only=True):
    """The last members that have joined again."""

    kind_name = "joins-report"
    joins: list[Join]


class StandingOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An output of a relay that stands still while rows wait."""

    site: str
    output: str
    rows: Count
    since_ms: Count


class StandingReport(Report, frozen=True, kw_only=True):
    """The outputs that stand still."""

    kind_name = "standing-report"
    time_ms: Count
    outputs: list[StandingOutput]


class AlertReport(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: what is wrong since when, when somebody was told, and when it was over, if it is."""

    kind: str
    subject: str
    text: str
    since_ms: Count
    raised_ms: Count
    cleared_ms: Count | None = None


class AlertsReport(Report, frozen=True, kw_only=True):
    """The alerts that hold and the last that are over; by webhook or command, why it could not be told."""

    kind_name = "alerts-report"
    time_ms: Count
    alerts: list[AlertReport]
    failures: dict[str, str] = msgspec.field(default_factory=dict)
