"""How long an event loop is held up while a link with many distinct policies gives up rows: at once, or in a thread."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, Commit

_SCHEMA = pa.schema([("x", pa.float64())])
_TICK_S = 0.001


def _child(receivers: int) -> Child:
    found = []
    for number in range(receivers):
        policy = {"levels": [{"random": 0.1 + 0.4 * number / receivers}, {"every": 2}], "digest": [{"max": "x"}]}
        found.append(Receiver(number, 1, Subscription(f"r{number}", "s", "a", policy=policy), _SCHEMA))
    return Child("a", tuple(found), _SCHEMA)


def _block(after: int, count: int) -> Block:
    seqs = np.arange(after + 1, after + count + 1, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays([pa.array(np.sin(seqs.astype(np.float64)))], schema=_SCHEMA)
    lists = ClassLists(np.arange(count + 1), np.ones(count, dtype=np.uint32))
    return Block("s", after, after + count, (Commit(after, after + count, 1, 0),), seqs, rows, lists)


async def _longest_hold_up(receivers: int, limit: int, *, defer: bool) -> tuple[float, float]:
    """The longest time between two turns of a loop that has something to do every millisecond; the pack's own time."""
    output = Output(QueueLimits(max_rows=limit), defer=defer)
    child = _child(receivers)
    output.offer(_block(0, limit), child, 0.0)
    longest, stop = 0.0, False

    async def tick() -> None:
        nonlocal longest
        last = time.perf_counter()
        while not stop:
            await asyncio.sleep(_TICK_S)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(10 * _TICK_S)
    longest = 0.0
    began = time.perf_counter()
    output.offer(_block(limit, limit // 2), child, 1.0)
    if output.overfull:
        work = output.begin_pack(1.0)
        assert work is not None
        output.end_pack(await asyncio.to_thread(work))
    took = time.perf_counter() - began
    await asyncio.sleep(2 * _TICK_S)
    stop = True
    await ticking
    return longest, took


def hold_ups(receivers: int = 1000, limit: int = 1000) -> dict[str, float]:
    """Milliseconds that a loop is held up by one pack, done at once and in a thread."""
    at_once, _ = asyncio.run(_longest_hold_up(receivers, limit, defer=False))
    apart, took = asyncio.run(_longest_hold_up(receivers, limit, defer=True))
    print(f"\none pack of a link with {receivers} distinct policies holds up its event loop for {at_once * 1e3:.0f} ms "
          f"at once, for {apart * 1e3:.0f} ms in a thread ({took * 1e3:.0f} ms in all)")  # fmt: skip
    return {"loop_held_up_at_once_ms": round(at_once * 1e3, 1), "loop_held_up_in_thread_ms": round(apart * 1e3, 1)}
