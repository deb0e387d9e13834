"""The filter language, its algebra and the profile types: what a subscriber wants, as values that can be computed with.

Runs on NumPy, PyArrow, re2 and sqlglot's tokenizer alone; imports only `headgate.model` and `headgate.errors`. No text
of a user ever reaches `eval`, Spark SQL or a database.
"""

from headgate.filters.algebra import (
    Box,
    Cover,
    Domain,
    NormalForm,
    bind,
    covers,
    intersection,
    intersects,
    merge,
    merge_cover,
    normal_form,
    simplify,
)
from headgate.filters.cost import FilterCost, filter_cost
from headgate.filters.errors import FilterError
from headgate.filters.filter import Filter, context_types, parse_filter, parse_placed
from headgate.filters.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "DEFAULT_LIMITS",
    "Box",
    "Cover",
    "Domain",
    "Filter",
    "FilterCost",
    "FilterError",
    "Limits",
    "NormalForm",
    "bind",
    "context_types",
    "covers",
    "filter_cost",
    "intersection",
    "intersects",
    "merge",
    "merge_cover",
    "normal_form",
    "parse_filter",
    "parse_placed",
    "simplify",
]
