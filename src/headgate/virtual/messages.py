"""A message in a simulated log, and how many bytes JetStream counts for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# "NATS/1.0\r\n" and the empty line after the last header.
_BLOCK: Final = 12
_EXPECTED: Final = len("Nats-Expected-Last-Subject-Sequence: \r\n")
_ID: Final = len("Nats-Msg-Id: \r\n")
_ROLLUP: Final = len("Nats-Rollup: sub\r\n")
# A record of the file store: length 4, sequence 8, time 8, length of the subject 2, checksum 8.
RECORD_BYTES: Final = 30
# The length of the headers, when there are any.
HEADERS_RECORD_BYTES: Final = 4


class VirtualMessage(NamedTuple):
    """A stored message: the attributes of `headgate.fabric.Stored`, with any object as data.

    `size` is what the message takes on its way (payload, headers and subject), `time_s` the virtual time at which it
    was stored.
    """

    sequence: int
    subject: str
    data: Any
    time_s: float
    header_bytes: int
    size: int
    message_id: str | None

    @property
    def came_s(self) -> float:
        """When it came over a link: here a message comes when it is read."""
        return 0.0

    @property
    def identity(self) -> str:
        """The id that its publisher gave it."""
        return self.message_id or ""

    @property
    def stored_bytes(self) -> int:
        """What the message counts towards `Log.max_bytes`."""
        return self.size + RECORD_BYTES + (HEADERS_RECORD_BYTES if self.header_bytes else 0)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The data of a message whose stored bytes were damaged. `data` is what was there before: for checks only."""

    data: Any


def header_bytes(expect: int | None, replace: bool, message_id: str | None) -> int:
    """The length of the headers that a publish sends along.

    >>> header_bytes(None, False, None), header_bytes(12, False, None), header_bytes(None, True, "a")
    (0, 53, 46)
    """
    if expect is None and not replace and message_id is None:
        return 0
    found = _BLOCK
    if expect is not None:
        found += _EXPECTED + len(str(expect))
    if replace:
        found += _ROLLUP
    if message_id is not None:
        found += _ID + len(message_id)
    return found
