"""Asking other sites about a range of a stream (`RangeRequest`): for its rows, or where in it something begins.

A relay that dies while it answers never does, so an asker waits a little at first, and longer after some tries.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.protocol.port import FabricError, LogPort
from headgate.protocol.records import Owed, Past, RangeRequest
from headgate.wire.frame import WireError

_TIMEOUT_S: Final = 20.0
_FIRST_TIMEOUT_S: Final = 3.0
_PATIENT: Final = 3


async def ask_blocks(port: LogPort, site: str, request: RangeRequest, tries: int = _PATIENT) -> list[Any]:
    """The messages with which a site answers, from the start of the range on; none where it has nothing of it.

    A site that cannot answer now, as it does not reach what it would have to read, is an error.
    """
    answer = await port.request(port.logs.repair(site), request.encode(), _timeout_s(tries))
    if answer == b"":
        raise FabricError(f"{site} cannot say what it has of {request.stream!r} in ({request.after}, {request.upto}]")
    return port.codec.split(answer)


async def fetch_blocks(port: LogPort, site: str, request: RangeRequest, tries: int = 0) -> list[Any]:
    """As `ask_blocks`; a site that has nothing of the range is an error, so that another one is asked."""
    found = await ask_blocks(port, site, request, tries)
    if not found:
        raise FabricError(f"{site} has nothing of {request.stream!r} in ({request.after}, {request.upto}]")
    return found


def _timeout_s(tries: int) -> float:
    return min(_FIRST_TIMEOUT_S * float(1 << min(tries, _PATIENT)), _TIMEOUT_S)


async def ask_owed(port: LogPort, root: str, request: RangeRequest, tries: int = _PATIENT) -> Owed:
    """Which rows of the range are the first that are `owed` to a site, or were `served` to an earlier stay."""
    answer = await port.request(port.logs.repair(root), request.encode(), _timeout_s(tries))
    if not answer:
        raise FabricError(f"{root} cannot say what of {request.stream!r} in ({request.after}, {request.upto}] is owed")
    return Owed.decode(answer)


async def ask_sent(port: LogPort, site: str, request: RangeRequest) -> int:
    """How far a site has `sent` the range to a child; the start of the range where it has sent nothing of it."""
    answer = await port.request(port.logs.repair(site), request.encode(), _FIRST_TIMEOUT_S)
    if not answer:
        raise FabricError(f"{site} cannot say what of {request.stream!r} in ({request.after}, {request.upto}] it sent")
    return int(answer)


async def forgotten_past(port: LogPort, stream: str) -> int:
    """Up to where a root log was forgotten, as all sites had passed it on; 0 where it was not, or nobody knows."""
    stored = await port.last(port.logs.state, port.logs.past(stream))
    try:
        return 0 if stored is None else Past.decode(stored.data).upto
    except WireError:
        return 0
