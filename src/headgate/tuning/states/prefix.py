"""Aggregates from the root down to a site, one (value, links counted) pair for each path term of an objective."""

from __future__ import annotations

import math
from typing import TypeAlias

from headgate.tuning.compile import Compiled

Prefix: TypeAlias = tuple[tuple[float, int], ...]


def start(compiled: Compiled) -> Prefix:
    """The prefix above the root: nothing aggregated yet."""
    return tuple((0.0, 0) for term in compiled.terms if term.kind == "path")


def advance(compiled: Compiled, prefix: Prefix, local: tuple[float, ...]) -> Prefix:
    """One site further down; a local value that is NaN (the root has no link) adds nothing."""
    path = [term for term in compiled.terms if term.kind == "path"]
    return tuple(step(term.function, above, value) for term, above, value in zip(path, prefix, local, strict=True))


def step(function: str, above: tuple[float, int], value: float) -> tuple[float, int]:
    """One aggregate with one more value."""
    total, count = above
    if value != value:
        return above
    if count == 0:
        return value, 1
    if function in ("sum", "average"):
        return total + value, count + 1
    return (min if function == "min" else max)(total, value), count + 1


def reading(function: str, prefix: tuple[float, int]) -> float:
    """The term's value at the end of a prefix. Of no links, as at the root, a sum is 0 and the others have no value."""
    total, count = prefix
    if count == 0:
        return 0.0 if function == "sum" else math.nan
    return total / count if function == "average" else total
