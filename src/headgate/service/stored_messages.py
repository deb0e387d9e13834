"""Every kind of message in a deployment's logs, and how one is told from a damaged one.

The subjects are those of `headgate.wire.logs.Logs`; a test walks all of them, so that a new one is not forgotten here.
Whether a message is whole is read from its checksum alone, not from what it says: what an older program has stored is
not damaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from headgate.wire.frame import WireError, decode_frame
from headgate.wire.ledger import Tally
from headgate.wire.packing import is_packed, unpack_text
from headgate.wire.sealed import is_sealed, unseal
from headgate.wire.sums import MOST_SUMS

Check = Callable[[bytes], object]
"""Raises where a message is not whole."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One kind of message: a name for people, the pattern of its subjects behind the namespace, and its check.

    `check` is None for what has no checksum of ours: rows as publishers wrote them. The NATS server has one of its own.
    """

    name: str
    subject: str
    check: Check | None


def _frame(kind: str) -> Check:
    """A frame of a kind; the kind is not under the checksum, so the subject has to say which it is."""
    return partial(decode_frame, expected=kind)


def _sealed(data: bytes) -> None:
    """A text under a checksum, packed where it is large."""
    try:
        text = unpack_text(data, MOST_SUMS) if is_packed(data) else data
    except ValueError as error:
        raise WireError(f"it cannot be unpacked: {error}") from None
    if not is_sealed(text):
        raise WireError("it has no checksum before it", hint="is another program publishing here?")
    unseal(text)


def _delivered(data: bytes) -> None:
    """A block, as a frame or as the JSON that its reader asked for."""
    if data.startswith(b"{"):
        json.loads(data)
    else:
        decode_frame(data, "b")


STORED_MESSAGES: Final = (
    StoredMessage("staged rows", "root.*.part", _frame("p")),
    StoredMessage("a manifest", "root.*.commit", _frame("m")),
    StoredMessage("dead letters", "root.*.dead", _frame("x")),
    StoredMessage("a list of files", "root.*.files", _frame("f")),
    StoredMessage("a memory of derived columns", "root.*.memory", _frame("d")),
    StoredMessage("updates of contexts", "root.*.context", _frame("c")),
    StoredMessage("published rows", "in.*", None),
    StoredMessage("what a sender gave up", "in.*.unsent", None),
    StoredMessage("a parcel", "in.*.carried", _frame("u")),
    StoredMessage("rows published at a site", "outbox.*.*.rows", None),
    StoredMessage("what a sender at a site gave up", "outbox.*.*.unsent", None),
    StoredMessage("a block of a link", "site.*.in.*.*", _frame("b")),
    StoredMessage("a decision that is held", "site.*.held.*", _frame("b")),
    StoredMessage("a delivery", "inbox.*.*", _delivered),
    StoredMessage("a revision of the catalog", "tables.*", None),  # read as a whole: `headgate.service.verifying`
    StoredMessage("a value of the catalog", "catalog.*", _sealed),
    StoredMessage("what was forgotten of a root log", "catalog.past.*", _sealed),
    StoredMessage("a pin", "pin.*", _sealed),
    StoredMessage("an acknowledgement", "ack.*", Tally.decode),  # clients in other languages need not seal them
    StoredMessage("a report", "stats.*.*", _sealed),
    StoredMessage("sums of the ledger", "ledger.*", _sealed),
    StoredMessage("a mark", "mark.*.*", _sealed),
    StoredMessage("what a relay holds", "hold.*", _sealed),
    StoredMessage("what was set aside", "quarantine.*", _sealed),
    StoredMessage("ids of messages from sites", "door.*.*", _sealed),
)
"""No subject fits two of them."""


@cache
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("."))


def message_kind(subject: str) -> StoredMessage | None:
    """The kind of a stored message, by its subject; None for one that nobody has thought of.

    >>> message_kind("hg.root.readings.commit").name, message_kind("hg.outbox.oslo.notes.rows").name
    ('a manifest', 'rows published at a site')
    >>> message_kind("hg.something")
    """
    parts = subject.split(".")[1:]
    for kind in STORED_MESSAGES:
        wanted = _parts(kind.subject)
        if len(wanted) == len(parts) and all(one in ("*", other) for one, other in zip(wanted, parts, strict=True)):
            return kind
    return None


def check_message(subject: str, data: bytes) -> None:
    """Refuse a stored message that does not fit its checksum, or has none although it should.

    >>> check_message("hg.in.notes", b"anything at all")
    >>> check_message("hg.pin.notes", b"HGS3f39b042 17")
    >>> check_message("hg.root.s.part", b"x" * 20)
    Traceback (most recent call last):
    headgate.wire.frame.WireError: a message does not start with the letters HG (is another program publishing here?)
    """
    kind = message_kind(subject)
    if kind is None:
        raise WireError("no message of Headgate has such a subject", hint="is another program publishing here?")
    if kind.check is not None:
        kind.check(data)
