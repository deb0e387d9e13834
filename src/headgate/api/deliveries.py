"""Deliveries as JSON: the same documents for events, web sockets and answers, written once for all who get them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import pyarrow as pa

from headgate.client import Delivery
from headgate.wire.message import json_text

KEPT_BYTES: Final = 16 << 20
"""What texts of rows take that are kept for readers that get the same ones, at most."""
_EACH_BYTES: Final = 4 << 10
"""What is kept beside a text, about."""


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


class RowTexts:
    """Rows as JSON text, made once for all readers that get the same ones: from one message, by one projection."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[int, int, int], tuple[pa.RecordBatch, str]] = OrderedDict()

    def of(self, delivery: Delivery) -> str | None:
        """The document of the rows of a delivery, None where there are none."""
        key = id(delivery.rows), delivery.after, delivery.upto  # the batch is kept, so its id stays its own
        found = self._kept.get(key)
        if found is not None:
            return found[1]
        document = rows(delivery)
        if document is None:
            return None
        text = json_text(document)
        self._kept[key] = delivery.rows, text
        self._bytes += len(text) + _EACH_BYTES
        while self._bytes > self._max_bytes:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= len(gone) + _EACH_BYTES
        return text

    def events(self, delivery: Delivery) -> list[tuple[str, str]]:
        """The events that a delivery consists of, in order: what was given up, then its rows; none for a bare range."""
        lost, found = given_up(delivery), self.of(delivery)
        return [
            *([] if lost is None else [("given-up", json_text(lost))]),
            *([] if found is None else [("rows", found)]),
        ]
