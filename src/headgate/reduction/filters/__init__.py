"""The reduction filters, one a file, in the order of the reference: the paper's first, then ours."""

from __future__ import annotations

from headgate.reduction.filters.aggregate import Aggregate
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.conflate import Conflate
from headgate.reduction.filters.contain import Contain
from headgate.reduction.filters.delta import DeltaFilter
from headgate.reduction.filters.eq import Equal
from headgate.reduction.filters.every import Every
from headgate.reduction.filters.extremes import Extremes
from headgate.reduction.filters.first import First
from headgate.reduction.filters.ge import GreaterEqual
from headgate.reduction.filters.gt import Greater
from headgate.reduction.filters.guniq import GlobalUniq
from headgate.reduction.filters.in_set import InSet
from headgate.reduction.filters.last import LastOfKey
from headgate.reduction.filters.latest import Latest
from headgate.reduction.filters.le import LessEqual
from headgate.reduction.filters.lt import Less
from headgate.reduction.filters.match import Match
from headgate.reduction.filters.max_age import MaxAge
from headgate.reduction.filters.ne import NotEqual
from headgate.reduction.filters.priority import Priority
from headgate.reduction.filters.random import Random
from headgate.reduction.filters.subset import Subset
from headgate.reduction.filters.supset import Supset
from headgate.reduction.filters.tail import Tail
from headgate.reduction.filters.thin_space import ThinSpace
from headgate.reduction.filters.thin_time import ThinTime
from headgate.reduction.filters.uniq import Uniq
from headgate.reduction.filters.where import DropWhere, KeepWhere
from headgate.reduction.filters.within import Within

FILTERS: tuple[type[ReductionFilter], ...] = (
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Match,
    Within,
    InSet,
    Contain,
    Subset,
    Supset,
    First,
    LastOfKey,
    Uniq,
    GlobalUniq,
    DeltaFilter,
    Latest,
    Every,
    Random,
    Conflate,
    ThinTime,
    Extremes,
    ThinSpace,
    MaxAge,
    Priority,
    Tail,
    Aggregate,
    DropWhere,
    KeepWhere,
)

__all__ = ["FILTERS", "Moment", "ReductionFilter"]
