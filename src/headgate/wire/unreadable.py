"""Messages that cannot be read: one error that says which message it was, raised by one helper that decodes.

A log may hold bytes that no Headgate wrote, or that were changed on the way. A reader decodes a stored message with
`decode_message`, so that whatever goes wrong inside a decoder becomes an `UnreadableError` with the log, the subject
and the sequence. The reader then goes on without that message; no process ends because of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from headgate.wire.frame import WireError

T = TypeVar("T")
_LONGEST: Final = 300


class Message(Protocol):
    """A message as it was read from a log (`headgate.fabric.Stored` is one)."""

    @property
    def sequence(self) -> int:
        """Its place in the log."""

    @property
    def subject(self) -> str:
        """The subject that it was published on."""

    @property
    def data(self) -> bytes:
        """Its payload."""


class UnreadableError(WireError):
    """A message in a log that cannot be decoded: which one it is, and what is wrong with it."""

    def __init__(self, log: str, subject: str, sequence: int, cause: str) -> None:
        self.log = log
        self.subject = subject
        self.sequence = sequence
        self.cause = cause[:_LONGEST]
        super().__init__(
            f"message {sequence} of log {log} ({subject}) cannot be read: {self.cause}",
            hint=f"`headgate unreadable` shows it, `headgate unreadable --drop {log}:{sequence}` takes it out",
        )


def decode_message(log: str, message: Message, reader: Callable[[bytes], T]) -> T:
    """What `reader` makes of a message's bytes; `UnreadableError` when it cannot make anything of them.

    `reader` must depend on the bytes alone, as every error that it raises is taken for a fault of the message.
    """
    try:
        return reader(message.data)
    except UnreadableError:
        raise
    except WireError as error:
        raise UnreadableError(log, message.subject, message.sequence, str(error)) from error
    except Exception as error:  # a decoder may fail in any way on bytes that it was not made for
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise UnreadableError(log, message.subject, message.sequence, cause) from error
