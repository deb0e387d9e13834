"""Which classes a row satisfies: the compiled index, context state, and admission control under overload.

Built from Fischer and Kossmann, "Quality of Service in Stateful Information Filters". Imports `model` and `filters`;
runs on NumPy, Numba and PyArrow, reads no clock and opens no socket.
"""

from headgate.matching.build import build_index
from headgate.matching.context import ContextState, ContextUpdate
from headgate.matching.index import ClassSpec, Index, MatchingError, RowFilter
from headgate.matching.lists import ClassLists
from headgate.matching.scan import ScanIndex
from headgate.matching.warm import warm_up

__all__ = [
    "ClassLists",
    "ClassSpec",
    "ContextState",
    "ContextUpdate",
    "Index",
    "MatchingError",
    "RowFilter",
    "ScanIndex",
    "build_index",
    "warm_up",
]
