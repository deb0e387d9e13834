"""How many bytes a message takes on its way: payload, headers and subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
"""The header that fences an append."""
_AROUND: Final = len("NATS/1.0\r\n\r\n")
# What the server adds to a message when it is read from a log.
_ADDED = frozenset({"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending",
                    "Nats-Last-Sequence"})  # fmt: skip


def header_bytes(headers: Mapping[str, str]) -> int:
    """The length of a message's headers, 0 when there are none.

    >>> header_bytes({}), header_bytes({"a": "bc"})
    (0, 19)
    """
    lines = sum(len(name) + len(value) + 4 for name, value in headers.items() if name not in _ADDED)
    return lines + _AROUND if lines else 0


def fenced_size(subject: str, payload_bytes: int, expect: int) -> int:
    """The bytes that a fenced message takes, as its reader will count them (`Stored.size`)."""
    return payload_bytes + len(subject) + header_bytes({EXPECTED: str(expect)})


USER_REQUEST_BYTES: Final = 1 << 20
"""How large a request of a user may be, packed or not: reading a larger one would hold up the service for everybody."""
