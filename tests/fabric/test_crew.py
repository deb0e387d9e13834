"""Tasks that end together, also those that lose a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from headgate.fabric import Crew, cancel_all


async def _deaf(times: int, heard: list[int]) -> None:
    """A task that goes on after being told to end, as nats-py's requests can."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            heard.append(len(heard))
            if len(heard) > times:
                raise


def test_everybody_is_asked_again_until_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.fabric.crew._ASK_AGAIN_S", 0.01)

    async def run() -> list[int]:
        heard: list[int] = []
        task = asyncio.create_task(_deaf(2, heard))
        await asyncio.sleep(0)
        await asyncio.wait_for(cancel_all([task]), 30)
        assert task.cancelled()
        return heard

    assert asyncio.run(run()) == [0, 1, 2]


def test_the_block_ends_its_tasks_and_the_first_failure_is_raised() -> None:
    async def fails() -> None:
        raise LookupError("one of us")

    async def run() -> asyncio.Task[None]:
        async with Crew() as crew:
            waiting = crew.spawn(asyncio.Event().wait(), "waits for ever")
            crew.spawn(fails())
            try:
                await crew.wait()
            except LookupError:
                return waiting
        raise AssertionError

    async def outer() -> None:
        waiting = await run()
        assert waiting.cancelled()
        async with Crew() as crew:
            crew.spawn(asyncio.sleep(0))
            await crew.wait()

    asyncio.run(outer())


def test_nobody_left_is_nothing_to_wait_for() -> None:
    async def run() -> None:
        done = asyncio.create_task(asyncio.sleep(0))
        await done
        await cancel_all([done])
        await cancel_all([])

    asyncio.run(run())
