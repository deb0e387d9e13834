"""What a subscription would match before a user makes it: of rows that were drawn at random before matching.

A user is told nothing that it could not find out by making the subscription. The wish is read, checked and narrowed by
the user's grant as one that is made; the rows are those of the stream, whoever wants them, so that the share says
nothing about what others subscribe to. What links would carry is an operator's to know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.catalog import parse_subscription
from headgate.catalog.granting import GrantError, narrow, stream_for
from headgate.catalog.profiles import row_limit_us
from headgate.fabric import Fabric
from headgate.fabric.registry import User, UserError
from headgate.model import Stream, Subscription
from headgate.protocol.reports import SampleReport
from headgate.service.describing import filter_document, subscription_document
from headgate.service.grants import deployment_for, grant_of
from headgate.service.previewing import matching
from headgate.service.rights import admitted
from headgate.wire.frame import WireError
from headgate.wire.row_sample import RowSample, decode_sample
from headgate.wire.snapshot import Snapshot

_SURE: Final = 1.96  # standard deviations of a 95 % interval


@dataclass(frozen=True, slots=True)
class WishedPart:
    """A part of a subscription that a user wishes for: as it was asked for, and as the grant leaves it."""

    asked: Subscription
    narrowed: Subscription


def wished(snapshot: Snapshot, user: User, name: str, document: Mapping[str, Any]) -> list[WishedPart]:
    """The subscription that a user would make; what would be refused is refused with the same words."""
    request = admitted(user, "subscribe", {"name": name, "subscription": dict(document)})
    streams, limit_us = snapshot.deployment.streams, row_limit_us(snapshot.deployment.options)
    try:
        return [
            WishedPart(each, narrow(each, streams[each.stream], grant_of(user, streams[each.stream]), limit_us))
            for each in parse_subscription(name, request["subscription"], deployment_for(snapshot.deployment, user))
        ]
    except GrantError as error:
        raise UserError(error.message, hint=error.hint) from None


async def read_sample(fabric: Fabric, stream: Stream) -> RowSample | None:
    """The newest rows that were drawn from a stream; none before its first batch, or where they have other columns."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.stats("sample", stream.name))
    found = None if stored is None else fabric.quarantine.take(fabric.logs.state, stored, SampleReport.decode, "none")
    try:
        sample = None if found is None else decode_sample(found.data)
    except WireError:
        return None
    return sample if sample is not None and sample.rows.schema.equals(stream.schema.arrow) else None


def wish_document(part: WishedPart, user: User, stream: Stream) -> dict[str, Any]:
    """What is said of the wish itself: as it was asked for, and what its filter means by the columns of the user."""
    seen = stream_for(stream, grant_of(user, stream))
    return {"subscription": subscription_document(part.asked), "filter": filter_document(part.asked, seen)}


def share_document(
    part: WishedPart, stream: Stream, sample: RowSample | None, rate_rows_per_s: float | None
) -> dict[str, Any]:
    """Which share of the stream's rows would match, as a 95 % interval by the sample; null where nothing was drawn."""
    document: dict[str, Any] = {"stream": stream.name, "path": [], "hops": []}
    if sample is None or not sample.rows.num_rows:
        return {**document, "matched": 0, "looked_at": 0, "evaluated": 0, **dict.fromkeys(_UNKNOWN)}
    mask = matching(part.narrowed, stream, sample.rows)
    share = float(sample.weights[mask].sum() / sample.weights.sum())
    # Rows that stand for more of the stream than others make a sample worth fewer rows.
    worth = float(sample.weights.sum() ** 2 / (sample.weights**2).sum())
    least, most = interval(share, worth)
    return {
        **document,
        "matched": int(np.count_nonzero(mask)),
        "looked_at": sample.rows.num_rows,
        "evaluated": sample.rows.num_rows,
        "share_at_least": least,
        "share_at_most": most,
        "rows_per_s": None if rate_rows_per_s is None else rate_rows_per_s * share,
    }


_UNKNOWN: Final = ("share_at_least", "share_at_most", "rows_per_s")


def interval(share: float, rows: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was seen among so many sampled rows.

    >>> [round(each, 3) for each in interval(0.5, 100)]
    [0.404, 0.596]
    >>> interval(0.0, 100)[0], interval(1.0, 100)[1]
    (0.0, 1.0)
    """
    spread = _SURE**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half = _SURE / (1 + spread) * math.sqrt(share * (1 - share) / rows + spread / (4 * rows))
    return max(0.0, middle - half if share else 0.0), min(1.0, middle + half if share < 1 else 1.0)
