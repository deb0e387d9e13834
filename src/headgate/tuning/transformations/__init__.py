"""Local transformations (XPORT, Table 2): two primitives, four composites written with them, and the user's own.

A transformation is a generator of primitive steps on a `Workbench`; the workbench applies them to the unit's parents
and refuses what would leave the unit. The benefit is priced from where the steps end, so a composite needs no
equation of its own.
"""

from headgate.tuning.transformations.composites import (
    deep_demotion,
    deep_promotion,
    parent_child_swap,
    sibling_swap,
    subtree_migration,
    subtree_promotion,
)
from headgate.tuning.transformations.primitives import child_demotion, child_promotion
from headgate.tuning.transformations.registry import (
    STANDARD,
    WIDE,
    Candidate,
    Transformation,
    candidates,
    installed,
    named,
)
from headgate.tuning.transformations.workbench import Refused, Workbench

__all__ = [
    "STANDARD",
    "WIDE",
    "Candidate",
    "Refused",
    "Transformation",
    "Workbench",
    "candidates",
    "child_demotion",
    "child_promotion",
    "deep_demotion",
    "deep_promotion",
    "installed",
    "named",
    "parent_child_swap",
    "sibling_swap",
    "subtree_migration",
    "subtree_promotion",
]
