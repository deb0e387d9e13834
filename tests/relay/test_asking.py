"""Asking a site for a range: how long an asker waits, and what an answer without messages means."""

from __future__ import annotations

import asyncio

import pytest

from headgate.protocol.codec import WireCodec
from headgate.protocol.port import FabricError
from headgate.protocol.records import RangeRequest
from headgate.relay.asking import ask_blocks
from headgate.wire.logs import Logs

REQUEST = RangeRequest(stream="s", after=0, upto=1)


class Answers:
    """A port on which everybody gives the same answer."""

    logs, codec = Logs(), WireCodec()

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.timeouts_s: list[float] = []

    async def request(self, _: str, __: bytes, timeout_s: float) -> bytes:
        self.timeouts_s.append(timeout_s)
        return self.answer


def test_patience_grows_and_ends_however_often_is_asked() -> None:
    port = Answers(WireCodec().join([]))
    for tries in (0, 1, 2, 3, 4, 5000):
        assert asyncio.run(ask_blocks(port, "a", REQUEST, tries)) == []
    assert port.timeouts_s == [3.0, 6.0, 12.0, 20.0, 20.0, 20.0]


def test_a_site_that_cannot_answer_is_not_one_that_has_nothing() -> None:
    with pytest.raises(FabricError, match="a cannot say what it has"):
        asyncio.run(ask_blocks(Answers(b""), "a", REQUEST))
    assert asyncio.run(ask_blocks(Answers(WireCodec().join([b"one", b""])), "a", REQUEST)) == [b"one", b""]
