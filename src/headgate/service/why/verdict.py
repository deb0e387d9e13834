"""Whether a row is a subscription's, and if not, which part of what it asks for is false, with the row's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.fabric import Fabric
from headgate.filters import context_types
from headgate.filters.expr import And, ColumnRef, Expr, Parameter, walk
from headgate.filters.filter import Filter
from headgate.filters.profiles import profile_type, relational
from headgate.grid.predicate import grid_predicate
from headgate.grid.resolution import Resolution
from headgate.model import Stream, Subscription
from headgate.wire.context import decode_context
from headgate.wire.manifest import Manifest
from headgate.wire.message import json_text
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FalsePart:
    """A part of a filter that is not true for a row, and what it reads of the row and of the context."""

    text: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name} is {json_text(value)}" for name, value in self.values.items())
        return f"`{self.text}` is not true" + (f" ({shown})" if shown else "")


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """What a subscription asks for that a row is not: parts of the filter, its region, its resolution."""

    false: tuple[FalsePart, ...] = ()
    outside: str | None = None
    thinned: str | None = None

    @property
    def matches(self) -> bool:
        """Whether the row is all that was asked for."""
        return not self.false and self.outside is None and self.thinned is None


def judge(subscription: Subscription, stream: Stream, row: pa.RecordBatch, context: Mapping[str, Any]) -> FilterVerdict:
    """Judge one row by a subscription as it was, with the context values that held."""
    profile = profile_type(subscription.profile).compile(subscription.where, stream.schema, context_types(context))
    false: tuple[FalsePart, ...] = ()
    if not bool(profile.evaluate(row, context)[0]):
        where = relational(profile)
        expr = None if where is None else where.expr
        false = (FalsePart(profile.text, {}),) if expr is None else tuple(_false(expr, row, context))
    outside = thinned = None
    grid = grid_predicate(subscription, stream)
    if grid is not None and not bool(grid.evaluate(row, context)[0]):
        whole = replace(grid, resolution=Resolution())
        if bool(whole.evaluate(row, context)[0]):
            thinned = grid.resolution.text
        else:
            outside = f"region {dict(subscription.region or {})}"
    return FilterVerdict(false, outside, thinned)


def _false(expr: Expr, row: pa.RecordBatch, context: Mapping[str, Any]) -> list[FalsePart]:
    """The smallest parts, joined by AND, that are not true."""
    part = Filter.of(expr)
    if bool(part.evaluate(row, context)[0]):
        return []
    if isinstance(expr, And):
        return [found for item in expr.items for found in _false(item, row, context)]
    values: dict[str, Any] = {}
    for node in walk(expr):
        if isinstance(node, ColumnRef) and node.name not in values:
            values[node.name] = row.column(node.name)[0].as_py()
        elif isinstance(node, Parameter):
            values[f"${node.name}"] = context.get(node.name)
    return [FalsePart(part.text, values)]


async def context_at(fabric: Fabric, snapshot: Snapshot, name: str, manifest: Manifest) -> dict[str, Any]:
    """The context of a subscription with which the rows of a manifest were matched.

    The catalog has the values up to a place in the root log; updates after it are in the log, but for those that were
    shed. Of updates that were shed in part it is assumed that this one was not.
    """
    subscription = snapshot.deployment.subscriptions[name]
    values = dict(subscription.context)
    if not values:
        return values
    logs, identity = fabric.logs, snapshot.class_ids[name]
    place, skipped = snapshot.contexts.get(subscription.stream, 0), set(manifest.skipped.tolist())
    log, subject = logs.root(subscription.stream), logs.context(subscription.stream)
    while batch := await fabric.read(log, subject, place):
        for stored in batch:
            if stored.sequence > manifest.context:
                return values
            changes = fabric.quarantine.take(log, stored, decode_context)
            if changes and identity in changes and stored.sequence not in skipped:
                values = dict(changes[identity][1])
        place = batch[-1].sequence
    return values
