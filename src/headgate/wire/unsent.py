"""What a sender gave up before it reached the stream, declared in the stream's input log.

A sender that is cut off reduces and expires rows under its policy. It publishes a digest of them on a subject of its
own in the input log, behind the rows that it sent before. The stream's job puts it into the manifest of the micro-batch
that reads it, and with the commit it reaches every subscriber at its place in the stream. The rows never had a sequence
number of the stream, so the numbers in such a digest are the sender's own and are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.reduction import Digest
from headgate.wire.frame import WireError

Unsent = Digest
"""A digest of rows that senders gave up: how many, by reason, and what the digesters of the senders' policies found."""


def encode_unsent(digest: Unsent) -> bytes:
    """The message that declares what a sender gave up."""
    return digest.to_bytes()


def decode_unsent(data: bytes | str) -> Unsent:
    """Read a declaration; anything else is refused, as anybody can publish into the input log."""
    try:
        digest = Digest.from_bytes(data.encode() if isinstance(data, str) else data)
        counts = [digest.count, digest.first, digest.last, *digest.reasons.values()]
        fits = all(type(count) is int and count >= 0 for count in counts) and digest.count == sum(
            digest.reasons.values()
        )
        digest.merge(digest).show()  # what cannot be merged and shown is not a digest
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise WireError(f"this is no declaration of a sender: {error}") from error
    if not fits:
        raise WireError("this is no declaration of a sender: its counts do not add up")
    return digest


def show_unsent(digest: Unsent | None) -> dict[str, Any]:
    """The digest as a person reads it, without the sender's own numbers; empty without one."""
    if digest is None:
        return {}
    return {label: found for label, found in digest.show().items() if label not in ("first", "last")}


def add_reasons(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts by reason to a total."""
    for reason, count in more.items():
        total[reason] = total.get(reason, 0) + count
