"""What relays, jobs and the service report about themselves (`stats.<about>.<name>` in the state log), as records."""

from __future__ import annotations

import msgspec

from headgate.protocol.records import Record
from headgate.wire.record import Count


class Report(Record, frozen=True, kw_only=True):
    """A record under `stats`; the kind of each is what it is about and the word report."""

    @classmethod
    def about(cls) -> str:
        """What it is about, as its subject names it."""
        return cls.kind_name.removesuffix("-report")


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


class RelayReport(Report, frozen=True, kw_only=True):
    """What a relay has done since it started, and how far it has settled each stream.

    `settled` has, by stream, the end of what all outputs have passed and the version that it was routed under; what
    comes later was routed under that version or a newer one. It holds for the incarnations that are named beside it: in
    another one the same numbers mean other rows. It counts decisions that are in the site log and not yet sent: these
    are `recorded`, by output, with their ends. `taken` has, by parent, what was seen of the link from it, and
    `bounds`, by child, how many bytes a second may go there as the child has measured no more. `stopped` names streams
    that cannot go on, and why. `standbys` has, by stream, who serves the site in place of a silent parent. Links
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
    ahead: dict[str, list[Count]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse links that are none."""
        if any(":" not in link for link in self.link_bytes) or self.link_bytes.keys() - self.link_messages.keys():
            raise ValueError("'link_bytes' and 'link_messages' do not name the same links")


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


class JobReport(Report, frozen=True, kw_only=True, omit_defaults=True):
    """The Spark job as a whole (`_`), or the query of one stream after a micro-batch.

    `shares` and `served` are there while a stream is behind: what identities need and get of its matching, the largest
    needs first, and by class the part of the rows that it is evaluated on in the next micro-batch.
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


class PlannedStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as the planner assumed and as it measured it."""

    rate_assumed: float | None
    rate: float
    row_bytes_assumed: float
    row_bytes: float


class PlannedSite(msgspec.Struct, frozen=True, kw_only=True):
    """The upload of a site as it was measured, and the part that it sheds."""

    upload_bytes_per_s: float | None
    shed: float


class PlannedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as the planner assumed, predicted and measured it."""

    selectivity_assumed: float
    selectivity: float | None
    drop_predicted: float | None
    drop: float | None
    delay_predicted_s: float | None
    delay_s: float | None
    quality_predicted: float | None
    quality: float | None
    rows: Count


class PlannerReport(Report, frozen=True, kw_only=True):
    """The plan in force by what was measured, and the best that was found."""

    kind_name = "planner-report"
    time_ms: Count
    revision: Count
    window_s: float
    state: str
    fixed: bool
    quality: float | None
    quality_zeros: Count
    quality_of: Count
    quality_predicted: float
    quality_reachable: float
    quality_anew: float | None
    gain: float | None
    moves: Count
    gain_per_move: float | None
    streams: dict[str, PlannedStream]
    sites: dict[str, PlannedSite]
    subscriptions: dict[str, PlannedSubscription]
    objective: str | None
    constraints_missed: list[str]
    changes: Count = 0


class ProposalReport(Report, frozen=True, kw_only=True):
    """The last plan that was proposed: `pending`, `approved` or `rejected`; by whom, and for which revision.

    `plan` has the root and the parents of each stream, `steps` what relays would do.
    """

    kind_name = "proposal-report"
    id: str
    time_ms: Count
    state: str
    by: str
    revision: Count
    plan: dict[str, dict[str, str | dict[str, str]]]
    steps: list[str]
    moves: Count
    quality: float | None = None
    quality_proposed: float | None = None
    gain: float | None = None


class CostPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the tuner's objective costs at a time, as the judge knows it from messages; constraints that are missed."""

    time_ms: Count
    at_s: float
    period: Count
    cost: float | None
    missed: dict[str, float] = msgspec.field(default_factory=dict)
    sites: Count = 0


class TunedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A transformation of the live tuner: `in force` since a revision, or `refused`.

    `predicted` and `measured` are how much better the objective becomes; the first as its owner priced it, the second
    as the judge saw it one period later (with all transformations of the same period).
    """

    run: Count
    time_ms: Count
    at_s: float
    period: Count
    stream: str
    transformation: str
    owner: str
    moves: dict[str, str]
    revision: Count
    state: str
    why: str = ""
    random: bool = False
    relief: float = 0.0
    cost_before: float | None = None
    predicted: float | None = None
    predicted_cost: float | None = None
    measured: float | None = None
    measured_cost: float | None = None


class TuningReport(Report, frozen=True, kw_only=True):
    """The live tuner: `off`, `running` or `settled`; its cost over time and what it has done."""

    kind_name = "tuning-report"
    time_ms: Count
    state: str
    run: Count = 0
    began_ms: Count = 0
    objective: str | None = None
    constraints: list[str] = msgspec.field(default_factory=list)
    modes: list[str] = msgspec.field(default_factory=list)
    every_s: float = 0.0
    maintenance_s: float = 0.0
    cost: float | None = None
    costs: list[CostPoint] = msgspec.field(default_factory=list)
    steps: list[TunedStep] = msgspec.field(default_factory=list)
    trees: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class ProcessReport(Report, frozen=True, kw_only=True):
    """What a process takes of its machine since its start; `late_s` is the longest its event loop was late of late."""

    kind_name = "process-report"
    process: str
    pid: Count
    time_ms: Count
    cpu_s: float
    memory_bytes: Count
    late_s: float = 0.0


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


class DeviceDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Rows on their way to devices: the reader's position after them, for which sessions they are kept, and where.

    `places` has the place of each message in the server's log, by its row's sequence number; `last` is the largest.
    """

    position: str
    sessions: list[str]
    last: Count
    places: dict[str, Count]


class DevicesReport(Report, frozen=True, kw_only=True):
    """What is on its way to the devices that listen to one subscription, so that a restart sends nothing twice."""

    kind_name = "devices-report"
    sent: list[DeviceDelivery]


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


class ServiceReport(Report, frozen=True, kw_only=True):
    """The last word of a service: that it runs, or that it stops."""

    kind_name = "service-report"
    state: str
    time_ms: Count
