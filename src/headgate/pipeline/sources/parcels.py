"""What was published at sites, as a source reads it: the messages of parcels, as if they had been published at home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headgate.pipeline.sources.payloads import dead_row
from headgate.protocol.port import Stored
from headgate.wire.frame import WireError
from headgate.wire.parcel import LARGE, UNSENT, Parcel


@dataclass
class OpenedParcels:
    """Messages in the log's order, and rows for those that cannot be had, each with its reason."""

    messages: list[Stored] = field(default_factory=list)
    misfits: list[pa.RecordBatch] = field(default_factory=list)


def open_parcels(found: Sequence[Stored], carried: str | None, schema: pa.Schema) -> OpenedParcels:
    """Put the messages of parcels in their places; other messages stay as they are."""
    opened = OpenedParcels()
    for stored in found:
        if stored.subject != carried:
            opened.messages.append(stored)
            continue
        try:
            parcel = Parcel.decode(stored.data)
        except WireError as error:
            opened.misfits.append(dead_row(None, f"message {stored.sequence}: {error.message}", schema))
            continue
        published = stored.subject.rpartition(".")[0]
        for item in parcel.items:
            if item.kind == LARGE:
                reason = f"a message of {item.data.decode()} bytes, published at {parcel.origin}, fits no parcel"
                opened.misfits.append(dead_row(None, reason, schema))
                continue
            subject = f"{published}.{UNSENT}" if item.kind == UNSENT else published
            opened.messages.append(replace(stored, subject=subject, data=item.data))
    return opened
