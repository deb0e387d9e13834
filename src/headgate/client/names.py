"""Names of subscriptions and streams as people give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.client.errors import ClientError
from headgate.errors import nearest
from headgate.model.roots import members_named
from headgate.wire.snapshot import Snapshot


def known_names(name: str, snapshot: Snapshot) -> list[str]:
    """The subscription of a name, or those at each root of its stream."""
    if name in snapshot.subscription_ids:
        return [name]
    members = members_named(snapshot.deployment.streams, snapshot.subscription_ids, name)
    if not members:
        hint = suggest(name, snapshot.subscription_ids)
        raise ClientError(f"no subscription {name!r}", hint=hint, kind="unknown")
    return members


def suggest(name: str, known: Mapping[str, Any]) -> str:
    """What somebody may have meant by a name that is not known."""
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else f"there are {', '.join(sorted(known)) or 'none'}"
