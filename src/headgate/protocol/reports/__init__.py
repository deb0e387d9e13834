"""What relays, jobs and the service report about themselves (`stats.<about>.<name>` in the state log), as records.

Each module has the reports of one of them; it imports nothing but `report` and the records of `headgate.wire`.
"""

from headgate.protocol.reports.grids import (
    GridReport,
    HeldCount,
    HeldReplica,
    ServedStreamReport,
)
from headgate.protocol.reports.jobs import (
    ErrorsReport,
    IdentityShare,
    JobReport,
    RememberedRows,
    SampleReport,
    SlowClass,
)
from headgate.protocol.reports.planner import (
    ForeseenChange,
    MovedMember,
    PlanChangesReport,
    PlannedSite,
    PlannedStream,
    PlannedSubscription,
    PlannerReport,
    ProposalReport,
)
from headgate.protocol.reports.readers import (
    DeviceDelivery,
    DevicesReport,
    GroupsReport,
    MemberReport,
)
from headgate.protocol.reports.relays import (
    ArrivalReport,
    LinksReport,
    LinkUp,
    OutboxReport,
    OutputReport,
    PeerFigures,
    RelayReport,
    Reordering,
    UpwardReport,
)
from headgate.protocol.reports.report import Report
from headgate.protocol.reports.service import (
    AlertReport,
    AlertsReport,
    CollectorReport,
    Join,
    JoinsReport,
    MachineReport,
    ProcessReport,
    ServerProcess,
    ServiceReport,
    StandingOutput,
    StandingReport,
    TablesReport,
)
from headgate.protocol.reports.tuning import (
    CostPoint,
    TunedStep,
    TuningReport,
)

__all__ = [
    "AlertReport",
    "AlertsReport",
    "ArrivalReport",
    "CollectorReport",
    "CostPoint",
    "DeviceDelivery",
    "DevicesReport",
    "ErrorsReport",
    "ForeseenChange",
    "GridReport",
    "GroupsReport",
    "HeldCount",
    "HeldReplica",
    "IdentityShare",
    "JobReport",
    "Join",
    "JoinsReport",
    "LinkUp",
    "LinksReport",
    "MachineReport",
    "MemberReport",
    "MovedMember",
    "OutboxReport",
    "OutputReport",
    "PeerFigures",
    "PlanChangesReport",
    "PlannedSite",
    "PlannedStream",
    "PlannedSubscription",
    "PlannerReport",
    "ProcessReport",
    "ProposalReport",
    "RelayReport",
    "RememberedRows",
    "Reordering",
    "Report",
    "SampleReport",
    "ServedStreamReport",
    "ServerProcess",
    "ServiceReport",
    "SlowClass",
    "StandingOutput",
    "StandingReport",
    "TablesReport",
    "TunedStep",
    "TuningReport",
    "UpwardReport",
]
