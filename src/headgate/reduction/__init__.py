"""Reduction: what to give up when it does not fit, and a digest of what was given up (PACK).

Policies, reduction filters, digesters, controllers, queues and fair draining, without input or output
and without a clock: time and capacity come in as arguments. May import `model`, `filters` and `grid`.
"""

from headgate.reduction.digest import Digest, merged
from headgate.reduction.drain import FairDrain
from headgate.reduction.errors import PolicyError
from headgate.reduction.filters import Moment, ReductionFilter
from headgate.reduction.parse import parse_policy
from headgate.reduction.policy import Level, Policy, default_policy
from headgate.reduction.queue import ReductionQueue, Taken
from headgate.reduction.shares import max_min
from headgate.reduction.xml_form import parse_policy_xml

__all__ = [
    "Digest",
    "FairDrain",
    "Level",
    "Moment",
    "Policy",
    "PolicyError",
    "ReductionFilter",
    "ReductionQueue",
    "Taken",
    "default_policy",
    "max_min",
    "merged",
    "parse_policy",
    "parse_policy_xml",
]
