"""Declarations on their way through a micro-batch: rows without values whose `_error` says what is not there.

A source gives rows, so what senders gave up travels as a row without values: like a dead letter, with a mark that no
dead letter's reason starts with. The match pass takes such rows out again, and the commit sums them up in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.sources.payloads import PayloadMessage, dead_row
from headgate.reduction import merged
from headgate.wire.frame import WireError
from headgate.wire.unsent import Unsent, decode_unsent

GAP = "source gap"
"""How the reason of a dead letter begins that stands for messages that were gone before they were read."""

UNSENT = "\0unsent"
"""How the reason of a row starts that declares what a sender gave up."""


def decode_declarations(messages: Iterable[PayloadMessage], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A row for each declaration; a message that is none is a dead letter."""
    for message in messages:
        try:
            declared = decode_unsent(message.data)
        except WireError as error:
            raw = f"{len(message.data)} bytes: {message.data[:48].hex(' ')}"
            yield dead_row(raw, f"message {message.sequence}: {error.message}", schema)
        else:
            yield dead_row(None, UNSENT + declared.to_bytes().decode(), schema)


def take_declarations(dead: pa.RecordBatch, reasons: str) -> tuple[pa.RecordBatch, Unsent | None]:
    """The dead letters among rows whose reason is in the column `reasons`, and what the others declare."""
    marked = pc.starts_with(dead.column(reasons), UNSENT)
    if not pc.any(marked).as_py():
        return dead, None
    unsent: Unsent | None = None
    for text in dead.column(reasons).filter(marked).to_pylist():
        unsent = merged(unsent, decode_unsent(text[len(UNSENT) :]))
    return dead.filter(pc.invert(marked)), unsent
