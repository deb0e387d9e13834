"""A subscription of a gridded stream as a field that fills in while rows arrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.model.roots import members_named
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from headgate.grid import Field


def empty_field(snapshot: Snapshot, names: Iterable[str], values: tuple[str, ...] | None, steps: int) -> Field:
    """The field of subscriptions to one gridded stream; by default it keeps every number that is neither axis nor time.

    Subscriptions that leave out an axis or one of the values are refused.
    """
    from headgate.grid import Field, layout_of

    deployment, layouts, kept = snapshot.deployment, [], values
    for name in names:
        own = [name] if name in snapshot.subscription_ids else None
        for each in own or members_named(deployment.streams, snapshot.subscription_ids, name):
            subscription = deployment.subscriptions[each]
            stream = deployment.streams[subscription.stream]
            layout = layout_of(stream)
            if layout is None:
                raise ClientError(f"stream {stream.name!r} has no grid", hint="give it a `grid:`, or read its rows")
            schema = stream.schema.select(subscription.select)
            axes = {layout.x.column, layout.y.column}
            if kept is None:
                numbers = [
                    c.name for c in schema.columns if pa.types.is_floating(c.type) or pa.types.is_integer(c.type)
                ]
                time = layout.time.column if layout.time else None
                kept = tuple(number for number in numbers if number not in axes and number != time)
            missing = (axes | set(kept)) - set(schema.names)
            if missing or not kept:
                what = min(missing) if missing else "every value"
                raise ClientError(f"the subscription {each!r} leaves out {what!r}", hint="select it to have a field")
            layouts.append(layout)
    if not layouts or any(
        (each.x, each.y, each.time) != (layouts[0].x, layouts[0].y, layouts[0].time) for each in layouts
    ):
        raise ClientError("a field is made of subscriptions to one grid", hint="read those of another grid apart")
    assert kept is not None
    return Field(layouts[0], kept, steps=steps)
