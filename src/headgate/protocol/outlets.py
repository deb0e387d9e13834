"""Whose the rows of an inbox are.

Subscriptions of a site that want the same rows share one inbox (`headgate.model.sharing`). A message of it is for those
whom its version serves there; what it says of the inbox's owner it says of each of them.
"""

from __future__ import annotations

from collections.abc import Collection

from headgate.wire.snapshot import Snapshot


def serves(snapshot: Snapshot, name: str, identity: int, stay: int) -> bool:
    """Whether messages of a version are for a subscription in a stay, given the snapshot of that version."""
    mine = snapshot.deployment.subscriptions.get(name)
    return mine is not None and snapshot.subscription_ids[name] == identity and mine.stay == stay


def inbox_numbers(snapshot: Snapshot, streams: Collection[str]) -> set[str]:
    """The ids, as they stand in subjects, of the inboxes that hold rows of some streams."""
    wanted = snapshot.deployment.subscriptions
    return {
        str(owner)
        for name, each in wanted.items()
        if each.stream in streams
        for identity in (snapshot.subscription_ids[name],)
        for owner in (identity, *(stay.inbox_of(identity)[0] for stay in each.stays))
    }
