"""What the Spark job reports: its queries, what matching costs, what admission control costs, and sampled rows."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


class SlowClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class that takes far longer than was estimated: in so many micro-batches in a row, by the newest of them."""

    identity: Count
    batches: Count
    row_us: float
    limit_us: float


class IdentityShare(msgspec.Struct, frozen=True, kw_only=True):
    """What evaluating the filters of one identity takes for a row of a stream that is behind, and what it is given.

    The identity of subscriptions without an owner is empty.
    """

    identity: str
    needs_us: float
    gets_us: float


class RememberedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What the derived columns of a stream remember: keys and rows, as far as was told since the job began.

    `forgotten_keys` are those that there was no room for, since the memory began, and `unknown_rows` the rows since the
    job began of which a derived column is null as it cannot be known.
    """

    keys: Count
    rows: Count
    forgotten_keys: Count
    unknown_rows: Count


class JobReport(Report, frozen=True, kw_only=True, omit_defaults=True):
    """The Spark job as a whole (`_`), or the query of one stream after a micro-batch.

    `shares` and `served` are there while a stream is behind: what identities need and get of its matching, the largest
    needs first, and by class the part of the rows that it is evaluated on in the next micro-batch. `derived` is what
    derived columns remember.
    """

    kind_name = "job-report"
    state: str
    time_ms: Count
    stream: str | None = None
    pid: Count | None = None
    error: str | None = None
    stages: dict[str, float] | None = None
    batch: Count | None = None
    rows: Count | None = None
    batch_s: float | None = None
    work_s: float | None = None
    match_s: float | None = None
    class_s: float | None = None
    class_bytes: Count | None = None
    admission: str | None = None
    row_cost_s: float | None = None
    update_cost_s: float | None = None
    late_rows: Count | None = None
    latency_s: dict[str, float] | None = None
    slow: tuple[SlowClass, ...] = ()
    shares: tuple[IdentityShare, ...] = ()
    served: dict[str, float] = msgspec.field(default_factory=dict)
    derived: RememberedRows | None = None


class ErrorsReport(Report, frozen=True):
    """Sums of what admission control has cost in matches, by samples: missed and wrong ones, with their variances.

    `of_classes` has the same four figures of the classes with the most errors.
    """

    kind_name = "errors-report"
    missed: float = 0.0
    missed_var: float = 0.0
    wrong: float = 0.0
    wrong_var: float = 0.0
    sampled: Count = 0
    of_classes: dict[str, tuple[float, float, float, float]] = msgspec.field(default_factory=dict)


class SampleReport(Report, frozen=True, kw_only=True):
    """The newest rows of a stream that were drawn at random before matching, as `headgate.wire.row_sample` has them."""

    kind_name = "sample-report"
    time_ms: Count
    data: bytes
