"""What a user sees of reports about the whole deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.wire.snapshot import Snapshot

_STREAM: Final = ("root", "state", "head")
# Counted of the subscription alone: what waits on links is counted together with what is others'.
_SUBSCRIPTION: Final = (
    "id", "stream", "site", "starts", "boundary", "matched", "delivered", "reduced", "expired", "in_flight",
    "difference", "oldest_ms", "reasons", "commit_delay_ms", "event_delay_ms", "level", "lost", "unevaluated",
    "suspended", "served", "errors",
)  # fmt: skip


def status_for(status: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """A status with what is a user's, whose view of the catalog the snapshot is."""
    mine, streams = snapshot.subscription_ids, snapshot.deployment.streams
    return {
        "revision": snapshot.revision,
        "deployment": status["deployment"],
        "time_ms": status["time_ms"],
        "service": {"state": status["service"]["state"]},
        "streams": {
            name: {key: each[key] for key in _STREAM if key in each}
            for name, each in status["streams"].items()
            if name in streams
        },
        "sites": {},
        "links": {},
        "subscriptions": {
            name: {key: each[key] for key in _SUBSCRIPTION if key in each}
            for name, each in status["subscriptions"].items()
            if name in mine
        },
        "findings": [each for each in status["findings"] if each["subject"].removeprefix("subscription ") in mine],
    }


def series_for(document: Mapping[str, Any]) -> dict[str, Any]:
    """The series of a subscription, without those that are counted together with what is others'."""
    return {**document, "series": {key: each for key, each in document["series"].items() if key in _SUBSCRIPTION}}
