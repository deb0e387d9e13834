"""Readers of some of many subscriptions: what each got against brute force, and how long rows took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headgate.client import Client
from headgate_studies.bench.many_deployment import name_of, owed


@dataclass
class _Got:
    """What one reader got: the row numbers in order, and from which row on it was counted."""

    rows: list[int] = field(default_factory=list)
    upto: int = 0
    starts: int | None = None


class SampledReaders:
    """Reads subscriptions that lie evenly among all of them."""

    def __init__(self, client: Client, size: int, readers: int, given_s: Mapping[int, float]) -> None:
        self._client = client
        self._numbers = [int(each) for each in np.linspace(0, size - 1, readers)] if readers else []
        self._given_s = given_s
        self._got = {number: _Got() for number in self._numbers}
        self._delays_s: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._measuring = True

    async def start(self) -> None:
        """Begin to read."""
        for number in self._numbers:
            inbox = await self._client.subscribe(name_of(number))
            self._tasks.append(asyncio.create_task(self._read(number, inbox)))

    async def _read(self, number: int, inbox: Any) -> None:
        got = self._got[number]
        async for delivery in inbox:
            if got.starts is None:
                got.starts = delivery.after
            rows = delivery.rows.column("n").to_pylist()
            got.rows += rows
            got.upto = delivery.upto
            if self._measuring:
                self._delays_s += [time.time() - self._given_s[each] for each in rows]

    async def finish(self, sent: int, timeout_s: float, *, contexts: bool) -> dict[str, Any]:
        """Wait until everybody has what was given so far, and compare."""
        self._measuring = False
        try:
            async with asyncio.timeout(timeout_s):
                while any(got.upto < sent for got in self._got.values()):
                    for task in self._tasks:
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.1)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        # Rows are numbered as they were given, so a sequence number is that of the row before it.
        mismatches = sum(
            got.rows != owed(number, got.starts or 0, got.upto, contexts=contexts) for number, got in self._got.items()
        )
        p50, p99 = np.percentile(self._delays_s, [50, 99]) if self._delays_s else (0.0, 0.0)
        return {
            "readers": len(self._numbers),
            "reader_mismatches": mismatches,
            "reader_rows": sum(len(got.rows) for got in self._got.values()),
            "reader_p50_s": round(float(p50), 3),
            "reader_p99_s": round(float(p99), 3),
        }
