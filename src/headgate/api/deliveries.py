"""Deliveries as JSON: the same documents for events, web sockets and answers."""

from __future__ import annotations

from typing import Any

from headgate.client import Delivery


def given_up(delivery: Delivery) -> dict[str, Any] | None:
    """What was given up in the range of a delivery, None where nothing was."""
    found: dict[str, Any] = {
        "given_up": dict(delivery.given_up),
        "digest": dict(delivery.digest),
        "shed": delivery.shed,
        "unevaluated": delivery.unevaluated,
        "unsent": dict(delivery.unsent),
        "unsent_digest": dict(delivery.unsent_digest),
    }
    found = {key: value for key, value in found.items() if value}
    return {"after": delivery.after, "upto": delivery.upto, **found} if found else None


def rows(delivery: Delivery) -> dict[str, Any] | None:
    """The rows of a delivery, each with its sequence number as `_seq`; None where there are none."""
    if not len(delivery):
        return None
    found = [{"_seq": seq, **row} for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True)]
    return {"after": delivery.after, "upto": delivery.upto, "rows": found}


def events(delivery: Delivery) -> list[tuple[str, dict[str, Any]]]:
    """The events that a delivery consists of, in order: what was given up, then its rows; none for a bare range."""
    found = [("given-up", given_up(delivery)), ("rows", rows(delivery))]
    return [(name, document) for name, document in found if document is not None]
