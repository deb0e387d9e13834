"""Derived columns: what a row says about the rows of its key before it, such as `previous(speed)`.

A definition is read by `reading`, what is remembered of each key is a `History`, and `derive` adds the columns to rows.
Nothing here knows Spark, logs or clocks: time is that of the rows. Imports `headgate.filters` and `headgate.model`.
"""

from headgate.deriving.definition import (
    Derivation,
    DerivedColumn,
    DeriveError,
    StateLimits,
    derivation_of,
    with_derived,
)
from headgate.deriving.derive import Derived, add_columns, derive
from headgate.deriving.history import History, NewRows

__all__ = [
    "Derivation",
    "DeriveError",
    "Derived",
    "DerivedColumn",
    "History",
    "NewRows",
    "StateLimits",
    "add_columns",
    "derivation_of",
    "derive",
    "with_derived",
]
