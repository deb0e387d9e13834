"""How long an asker waits for a site that does not answer."""

from __future__ import annotations

import asyncio

from headgate.protocol.codec import WireCodec
from headgate.protocol.records import RangeRequest
from headgate.relay.asking import ask_blocks
from headgate.wire.logs import Logs


class Silence:
    """A port on which everybody answers with nothing."""

    logs, codec = Logs(), WireCodec()

    def __init__(self) -> None:
        self.timeouts_s: list[float] = []

    async def request(self, _: str, __: bytes, timeout_s: float) -> bytes:
        self.timeouts_s.append(timeout_s)
        return b""


def test_patience_grows_and_ends_however_often_is_asked() -> None:
    port, request = Silence(), RangeRequest(stream="s", after=0, upto=1)
    for tries in (0, 1, 2, 3, 4, 5000):
        assert asyncio.run(ask_blocks(port, "a", request, tries)) == []
    assert port.timeouts_s == [3.0, 6.0, 12.0, 20.0, 20.0, 20.0]
