"""Control under overload (Fischer and Kossmann, section 4): what is matched, in which order, and what is shed.

Methods are pure: waiting events, the time and believed costs in, steps out. `headgate_studies.models.replay` runs one
against an engine by the paper's rule for time; `BatchGate` is the same control for the Spark job, which sees whole
micro-batches.
"""

from headgate.matching.admission.batching import ORDERS, Batching
from headgate.matching.admission.costs import Costs, LearnedCosts, believed
from headgate.matching.admission.estimate import ErrorEstimate, compare_lists, estimate_crossed, estimate_errors
from headgate.matching.admission.frontend import METHODS, PRESETS, Requirement, choose, make_method, requirement_of
from headgate.matching.admission.gate import GATES, BatchGate, Gated, Powers
from headgate.matching.admission.hybrid import Hybrid
from headgate.matching.admission.method import AdmissionStep, Method, WaitingEvents
from headgate.matching.admission.shed_both import ShedBoth
from headgate.matching.admission.shed_messages import ShedMessages
from headgate.matching.admission.shed_updates import ShedUpdates
from headgate.matching.admission.shedding import Shedder, Worth, victims_first
from headgate.matching.admission.tolerance import (
    ALL,
    LEVELS,
    ToleranceLevel,
    levels_of,
    tolerance_of,
    wants_true_state,
)
from headgate.matching.admission.traditional_adaptive import TraditionalAdaptive
from headgate.matching.admission.traditional_eager import TraditionalEager
from headgate.matching.admission.updates import Expected, UpdatePlan, plan_updates
from headgate.matching.admission.victims import UpdateVictims, update_schema

__all__ = [
    "ALL",
    "GATES",
    "LEVELS",
    "METHODS",
    "ORDERS",
    "PRESETS",
    "AdmissionStep",
    "BatchGate",
    "Batching",
    "Costs",
    "ErrorEstimate",
    "Expected",
    "Gated",
    "Hybrid",
    "LearnedCosts",
    "Method",
    "Powers",
    "Requirement",
    "ShedBoth",
    "ShedMessages",
    "ShedUpdates",
    "Shedder",
    "ToleranceLevel",
    "TraditionalAdaptive",
    "TraditionalEager",
    "UpdatePlan",
    "UpdateVictims",
    "WaitingEvents",
    "Worth",
    "believed",
    "choose",
    "compare_lists",
    "estimate_crossed",
    "estimate_errors",
    "levels_of",
    "make_method",
    "plan_updates",
    "requirement_of",
    "tolerance_of",
    "update_schema",
    "victims_first",
    "wants_true_state",
]
