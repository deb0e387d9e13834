"""Subscriptions that want the same rows share an inbox: which may, which do, and how one begins another stay.

An inbox belongs to the subscription that came first; others of its site and delivery class read it too
([decision 101](../decisions/101-subscriptions-share-an-inbox.md)). Their rows are stored once. Each has its own
acknowledgement, and what nobody needs any more is purged. Whoever wants something else from now on, or must not be held
up by the others, begins another stay in another inbox, as if it had moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from headgate.model.start import NOW
from headgate.model.subscription import Subscription

Inhabitant = tuple[int, int, Subscription]
"""A subscription with its id and its delivery class."""
_ALIKE: Final = (
    "stream",
    "site",
    "select",
    "format",
    "policy",
    "priority",
    "every_s",
    "at_most_rows_per_s",
    "average_s",
)


def can_share(subscription: Subscription) -> bool:
    """Whether nothing of what a subscription is sent is for it alone.

    The past is sent to each on its own, rows expire by the absence of one reader, context values change the rows of one
    subscription at a time, and a user reads what its grant allows.
    """
    plain = subscription.start == NOW and subscription.expires_s is None and not subscription.owner
    return plain and not subscription.context and subscription.context_from is None


def wants_same(one: Subscription, other: Subscription) -> bool:
    """Whether two subscriptions of one delivery class are sent the same messages."""
    return all(getattr(one, name) == getattr(other, name) for name in _ALIKE)


def find_inbox(wanted: Subscription, class_id: int, others: Iterable[Inhabitant]) -> tuple[int, int] | None:
    """The inbox of the first of others that is sent what a subscription wants, None where there is none."""
    if not can_share(wanted):
        return None
    for identity, found, other in others:
        if found == class_id and other.name != wanted.name and can_share(other) and wants_same(wanted, other):
            return other.present.inbox_of(identity)
    return None


def next_stay(before: Subscription, now: Subscription, reading: int = 0) -> Subscription:
    """What a subscription is from now on, in an inbox of its own; `reading` is the stay that its reader has come to."""
    left = tuple(stay for stay in before.stays if stay.number >= reading)
    return replace(now, stay=before.stay + 1, left=left, shared=None)
