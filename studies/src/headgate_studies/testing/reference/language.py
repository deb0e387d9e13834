"""The page of the filter language, from its table of functions and its limits."""

from __future__ import annotations

from dataclasses import fields

from headgate.filters import DEFAULT_LIMITS
from headgate.filters.cost import ROW_US
from headgate.filters.functions import TABLE
from headgate_studies.testing.reference.tables import table


def language_page() -> str:
    """Every function of the filter language, and the limits of a filter."""
    lines = [
        "# The filter language",
        "",
        "The `where` of a subscription is a boolean expression in Spark's SQL; an error in a row is NULL, and only",
        "TRUE matches. `$name` is a value of the subscriber's context.",
        "",
        "## Functions",
        "",
    ]
    rows = [
        [f"`{found.signature}`", found.about, ", ".join(f"`{name}`" for name in found.names[1:])] for found in TABLE
    ]
    lines += [*table(["function", "meaning", "also written"], rows), ""]
    lines += [
        "## Limits",
        "",
        "A filter past a limit is refused before the work is done; [filters](../filters.md#limits) says more.",
        f"Evaluating it may take {ROW_US:g} us a row unless the deployment's `filter_row_cost` says otherwise.",
        "",
    ]
    limits = [
        [field.name, f"{getattr(DEFAULT_LIMITS, field.name):,}", field.metadata["about"]]
        for field in fields(DEFAULT_LIMITS)
    ]
    return "\n".join(lines + table(["limit", "most", "of what"], limits))
