"""Where the rows of a subscription lie: the inboxes that it reads, one after the other, and what of them is its own.

Subscriptions of a site that want the same rows share one inbox (`headgate.model.sharing`). A message of it is for those
whom its version serves there; what it says of the inbox's owner it says of each of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headgate.model import Stay
from headgate.wire.block import Block, renamed
from headgate.wire.logs import Log, Logs
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class InboxStay:
    """One stay of a subscription: the subject that holds its rows, in which log, and by whose id messages speak of it.

    The first position of its reader is the first message that `serves` it; afterwards it is the acknowledged one
    (`Tally.place` of the stay). A message that ends at or below the reader's coverage is passed over.
    """

    subscription: int
    stay: Stay
    log: Log
    subject: str
    owner: int

    def own(self, block: Block) -> Block:
        """A message of the subject as this subscription is told it."""
        return renamed(block, self.owner, self.subscription)


def outlets_of(logs: Logs, snapshot: Snapshot, name: str) -> tuple[InboxStay, ...]:
    """The inboxes of a subscription in the order in which they are read; the last one is written to now.

    The first message of the next one that serves it begins where its rows of the one before end.
    """
    identity = snapshot.subscription_ids[name]
    found = []
    for stay in snapshot.deployment.subscriptions[name].stays:
        owner, number = stay.inbox_of(identity)
        found.append(InboxStay(identity, stay, logs.inbox(stay.site), logs.delivery(stay.site, owner, number), owner))
    return tuple(found)


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
