"""What the live tuner reports: its cost over time, and its transformations."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


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
