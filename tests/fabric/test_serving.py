"""Answers to requests: every request gets one, and a slow one holds up no other."""

import asyncio
import uuid

import pytest

from headgate.fabric import Fabric, FabricError, NoAnswerError
from headgate.fabric.serving import MOST_REQUESTS


def _subject() -> str:
    return f"t{uuid.uuid4().hex[:12]}.ask"


def test_a_handler_that_fails_answers_with_why_and_goes_on(nats_url: str) -> None:
    async def handler(data: bytes) -> bytes:
        if data == b"deep":
            raise RecursionError("too\ndeep: ü")
        return data if data != b"huge" else b"x" * (fabric.max_payload + 1)

    async def run() -> None:
        nonlocal fabric
        async with await Fabric.connect(nats_url) as fabric:
            subject = _subject()
            end = await fabric.serve(subject, handler)
            with pytest.raises(FabricError, match=r"RecursionError: too deep: \?"):
                await fabric.request(subject, b"deep", 5)
            with pytest.raises(FabricError, match="the answer has 8388609 bytes, more than NATS takes"):
                await fabric.request(subject, b"huge", 5)
            with pytest.raises(FabricError, match="has 8,388,609 bytes, more than the 8,388,608 that NATS takes"):
                await fabric.request(subject, b"x" * (fabric.max_payload + 1), 5)
            assert await fabric.request(subject, b"fine", 5) == b"fine"
            await end()
            with pytest.raises(FabricError, match="nobody is there"):
                await fabric.request(subject, b"fine", 5)

    fabric: Fabric
    asyncio.run(run())


def test_slow_requests_hold_up_nobody_and_too_many_are_refused(nats_url: str) -> None:
    async def run() -> None:
        go, waiting = asyncio.Event(), asyncio.Semaphore(0)

        async def handler(data: bytes) -> bytes:
            if data == b"slow":
                waiting.release()
                await go.wait()
            return data

        async with await Fabric.connect(nats_url) as fabric:
            subject = _subject()
            await fabric.serve(subject, handler)
            slow = [asyncio.create_task(fabric.request(subject, b"slow", 20)) for _ in range(MOST_REQUESTS - 1)]
            for _ in slow:
                await waiting.acquire()
            assert await fabric.request(subject, b"quick", 5) == b"quick"
            slow.append(asyncio.create_task(fabric.request(subject, b"slow", 20)))
            await waiting.acquire()
            with pytest.raises(FabricError, match=f"{MOST_REQUESTS} requests wait for an answer already"):
                await fabric.request(subject, b"quick", 5)
            with pytest.raises(NoAnswerError):
                await fabric.request(await _mute(fabric), b"", 0.1)
            go.set()
            assert set(await asyncio.gather(*slow)) == {b"slow"}
            assert await fabric.request(subject, b"quick", 5) == b"quick"

    asyncio.run(run())


async def _mute(fabric: Fabric) -> str:
    subject = _subject()

    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    await fabric.serve(subject, never)
    return subject


def test_another_site_is_answered_where_a_guard_lets_it_through(nats_url: str) -> None:
    """Also by a relay with an operator's credentials: sites ask it under their own names."""

    async def answer(data: bytes) -> bytes:
        return b"for " + data

    async def guard(asker: str, data: bytes) -> bool:
        return asker == data.decode()

    async def run() -> None:
        async with await Fabric.connect(nats_url) as fabric:
            subject = _subject()
            fabric.guards[subject] = guard
            end = await fabric.serve(subject, answer)
            assert await fabric.request(subject, b"home", 5) == b"for home"
            assert await fabric.request(f"{subject}.leaf", b"leaf", 5) == b"for leaf"
            with pytest.raises(FabricError, match="leaf may not ask this here"):
                await fabric.request(f"{subject}.leaf", b"other", 5)
            await end()
            with pytest.raises(FabricError, match="nobody is there"):
                await fabric.request(f"{subject}.leaf", b"leaf", 5)

    asyncio.run(run())
