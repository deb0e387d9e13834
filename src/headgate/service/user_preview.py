"""What a subscription would match before a user makes it: of rows that were drawn at random before matching.

A user is told nothing that it could not find out by making the subscription. The wish is read, checked and narrowed by
the user's grant as one that is made; the rows are those of the stream, whoever wants them, so that the share says
nothing about what others subscribe to. What links would carry is an operator's to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.catalog import parse_subscription
from headgate.catalog.granting import GrantError, narrow, stream_for
from headgate.catalog.profiles import row_limit_us
from headgate.fabric.registry import User, UserError
from headgate.model import Stream, Subscription
from headgate.service.describing import filter_document, subscription_document
from headgate.service.grants import deployment_for, grant_of
from headgate.service.rights import admitted
from headgate.service.sampled_share import sampled_share
from headgate.wire.row_sample import RowSample
from headgate.wire.snapshot import Snapshot


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


def wish_document(part: WishedPart, user: User, stream: Stream) -> dict[str, Any]:
    """What is said of the wish itself: as it was asked for, and what its filter means by the columns of the user."""
    seen = stream_for(stream, grant_of(user, stream))
    return {"subscription": subscription_document(part.asked), "filter": filter_document(part.asked, seen)}


def share_document(
    part: WishedPart, stream: Stream, sample: RowSample | None, rate_rows_per_s: float | None
) -> dict[str, Any]:
    """Which share of the stream's rows would match, as a 95 % interval by the sample; null where nothing was drawn."""
    document: dict[str, Any] = {"stream": stream.name, "path": [], "hops": []}
    found = sampled_share(part.narrowed, stream, sample)
    if found is None:
        return {**document, "matched": 0, "looked_at": 0, "evaluated": 0, **dict.fromkeys(_UNKNOWN)}
    return {
        **document,
        "matched": found.matched,
        "looked_at": found.rows,
        "evaluated": found.rows,
        "share_at_least": found.at_least,
        "share_at_most": found.at_most,
        "rows_per_s": None if rate_rows_per_s is None else rate_rows_per_s * found.share,
    }


_UNKNOWN: Final = ("share_at_least", "share_at_most", "rows_per_s")
