"""What the planner reports: the plan in force as it was measured, and the last plan that was proposed."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


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


class MovedMember(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """A site that gets another parent in the tree of a stream; None where it joins or leaves."""

    stream: str
    site: str
    before: str | None
    after: str | None


class ProposalReport(Report, frozen=True, kw_only=True):
    """The last plan that was proposed: `pending`, `approved` or `rejected`; by whom, and for which revision.

    `plan` has the root and the parents of each stream, `steps` what relays would do, `moved` who would get another
    parent.
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
    moved: list[MovedMember] = msgspec.field(default_factory=list)


class ForeseenChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was predicted of a change of the plan when it was decided: the quality with the plan before and after it."""

    revision: Count
    by: str
    quality_before: float | None
    quality_after: float | None


class PlanChangesReport(Report, frozen=True, kw_only=True):
    """The last changes of the plan of which something was predicted, oldest first."""

    kind_name = "plan-changes-report"
    time_ms: Count
    changes: list[ForeseenChange]
