"""Acknowledgements: what a subscriber has counted and is done with, as it lies in the state log."""

from __future__ import annotations

from headgate.protocol.port import LogPort
from headgate.wire.ledger import Tally


async def read_tally(port: LogPort, subscription: int) -> Tally:
    """What a subscriber has acknowledged last; nothing where there is none, or where it cannot be read."""
    stored = await port.last(port.logs.state, port.logs.ack(subscription))
    return (Tally.read(stored.data) if stored is not None else None) or Tally(subscription)
