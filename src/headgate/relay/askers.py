"""What a site may ask another one about a range: for itself, and for subscriptions whose rows pass it."""

from __future__ import annotations

from headgate.protocol.records import RangeRequest
from headgate.wire.snapshot import Snapshot


def may_ask(request: RangeRequest, asker: str, snapshot: Snapshot) -> bool:
    """Whether a site may have the answer to a request.

    Rows as the site below is sent them are for that site alone. Those of a subscription are for the site that it is at,
    and for the sites between the root and there; those of a delivery class for sites with a subscription of the class.
    """
    if request.child not in ("", asker) or request.owed not in (None, asker):
        return False
    if request.subscription:
        named = [name for name, number in snapshot.subscription_ids.items() if number == request.subscription]
        return any(_passes(asker, name, snapshot) for name in named)
    if request.class_id is not None:
        subscriptions = snapshot.deployment.subscriptions
        wanted = [name for name, number in snapshot.class_ids.items() if number == request.class_id]
        return any(subscriptions[name].site == asker for name in wanted)
    return True


def _passes(site: str, name: str, snapshot: Snapshot) -> bool:
    """Whether the rows of a subscription pass a site under the plan."""
    subscription = snapshot.deployment.subscriptions[name]
    tree = snapshot.plan.trees.get(subscription.stream) if snapshot.plan else None
    place: str | None = subscription.site
    while place is not None and place != site:
        place = tree.parents.get(place) if tree else None
    return place == site
