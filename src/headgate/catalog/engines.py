"""Documents and texts that engines read themselves: grids, regions, admission, resolutions, policies, objectives.

An engine is imported where a deployment has something for it to read, so that the others cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.filters import FilterError, parse_filter
from headgate.model import Stream, Subscription
from headgate.model.stream import DERIVE, DERIVE_STATE
from headgate.wire import codec


@dataclass(frozen=True, slots=True)
class BoundGrid:
    """Region and resolution in canonical text, and the values of the context that the region refers to."""

    text: str
    context: Mapping[str, Any]


def check_grid(stream: Stream) -> None:
    """Refuse a `grid:` or a `gridding:` that does not fit the stream's columns."""
    if "grid" in stream.options or "gridding" in stream.options:
        from headgate.grid import layout_of
        from headgate.grid.gridding_document import gridding_of

        layout_of(stream)
        gridding_of(stream)


def check_tile(subscription: Subscription, stream: Stream) -> None:
    """Refuse a part to serve that is no box along the cells of the stream's grid."""
    from headgate.grid import GridError, layout_of
    from headgate.grid.serving.served_grid import ServedGrid

    layout = layout_of(stream)
    if layout is None:
        raise GridError(f"stream {stream.name!r} has no grid to serve parts of", hint="give the stream a `grid:`")
    ServedGrid(layout).tile(subscription.region)


def check_derived(stream: Stream) -> None:
    """Refuse derived columns that cannot be read, and a key or an event time that is one."""
    if DERIVE not in stream.options and DERIVE_STATE not in stream.options:
        return
    from headgate.deriving import derivation_of

    derivation_of(stream)


def check_admission(stream: Stream) -> None:
    """Refuse a control method without what it needs, and options that it does not have."""
    admission = stream.admission
    if not admission.options and admission.method == "traditional" and admission.require is None:
        return
    from headgate.matching import MatchingError
    from headgate.matching.admission import BatchGate

    gate = BatchGate.of(admission.method, admission.bound_s, admission.options, admission.require)
    if gate.victims is not None:
        try:
            parse_filter(gate.victims, stream.schema)
        except FilterError as error:
            raise MatchingError(error.message, where="admission.options.victims", hint=error.hint) from None
    arrived = gate.arrived
    times = [column.name for column in stream.schema.columns if pa.types.is_timestamp(column.type)]
    if arrived is not None and arrived not in times:
        raise MatchingError(
            f"rows cannot have arrived by {arrived!r}",
            where="admission.options.arrived",
            hint="timestamp columns are " + (", ".join(times) or "none"),
        )


def check_update_victims(stream: Stream, subscriptions: Iterable[Subscription]) -> None:
    """Refuse a choice of updates to shed that the contexts of the stream's subscriptions have no values for."""
    text = stream.admission.options.get("update_victims")
    if text is not None:
        from headgate.matching.admission import UpdateVictims

        UpdateVictims.parse(str(text), (each.context for each in subscriptions if each.stream == stream.name))


def misses_at_most(subscription: Subscription, stream: Stream) -> float | None:
    """The share that a subscription's own requirement lets it miss, None where that is as for the whole stream."""
    if subscription.require is None:
        return None
    from headgate.matching.admission import tolerance_of

    mine, others = tolerance_of(subscription.require), tolerance_of(stream.admission.require)
    return None if mine == others else mine


def check_regions(regions: Mapping[str, Mapping[str, Any]], stream: Stream) -> None:
    """Refuse regions of roots that overlap or leave out a part of the stream's grid."""
    from headgate.grid.roots import check_roots

    check_roots(regions, stream)


def spread_subscription(subscription: Subscription, members: Mapping[str, Stream]) -> list[Subscription]:
    """A subscription as one for each root of its stream that may have rows of it."""
    from headgate.grid.roots import spread

    return spread(subscription, members)


def read_grid(subscription: Subscription, stream: Stream) -> BoundGrid | None:
    """The region and the resolution of a subscription, None when it has neither; wrong ones are refused."""
    if subscription.region is None and subscription.resolution is None:
        return None
    from headgate.grid import grid_predicate

    found = grid_predicate(subscription, stream)
    assert found is not None
    context = {name: subscription.context.get(name) for name in sorted(found.parameters)}
    region = None if subscription.region is None else codec.dumps(subscription.region)
    return BoundGrid(f"{found.resolution.text}, region {region}", context)


def check_policy(subscription: Subscription, stream: Stream) -> None:
    """Refuse a policy that does not fit the columns that the subscription selects: queues hold no others."""
    if subscription.policy is not None:
        from headgate.reduction import parse_policy

        selected = stream.schema.names if subscription.select is None else subscription.select
        schema = stream.schema.select([name for name in stream.schema.names if name in selected])
        parse_policy(subscription.policy, schema, "policy")


def read_objective(text: str) -> None:
    """Refuse an objective that cannot be read."""
    from headgate.tuning.language import Vocabulary, parse_objective

    parse_objective(text, Vocabulary.installed())


def read_constraint(text: str) -> None:
    """Refuse a constraint that cannot be read."""
    from headgate.tuning.language import Vocabulary, parse_constraint

    parse_constraint(text, Vocabulary.installed())
