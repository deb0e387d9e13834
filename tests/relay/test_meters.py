"""What a relay measures: the CPU of its own steps, and the least latency of a window."""

from __future__ import annotations

import asyncio
import time

import pytest

from headgate.relay.meters import Least, Meters


def _work(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


def test_only_the_steps_of_the_coroutine_itself_are_counted():
    async def one(seconds, turns):
        for _ in range(turns):
            _work(seconds)
            await asyncio.sleep(0)
        return turns

    async def run():
        mine, other = Meters(), Meters()
        done = await asyncio.gather(mine.spent(one(0.004, 5)), other.spent(one(0.0, 5)), one(0.01, 5))
        return done, mine, other

    done, mine, other = asyncio.run(run())
    assert done == [5, 5, 5]
    assert mine.cpu_s >= 0.02
    assert mine.cpu_s > 5 * other.cpu_s


def test_errors_and_cancellations_pass_through():
    seen = []

    async def fails():
        await asyncio.sleep(0)
        raise LookupError("gone")

    async def waits():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            raise

    async def run():
        meters = Meters()
        with pytest.raises(LookupError, match="gone"):
            await meters.spent(fails())
        task = asyncio.create_task(meters.spent(waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert seen == ["cancelled"]


def test_the_least_of_a_window_and_what_was_known_before():
    least = Least()
    for name, value in (("a", 3.0), ("a", 1.0), ("b", 2.0), ("a", 2.0)):
        least.note(name, value)
    assert least.report() == {"a": 1.0, "b": 2.0}
    least.note("a", 5.0)
    assert least.report() == {"a": 5.0, "b": 2.0}
