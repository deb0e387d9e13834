"""A local buffer for a consumer that is slower than its subscription: read ahead, and give up by a policy here.

Without it a slow consumer fills its inbox, and the relay gives up rows for it. With it rows are taken from the inbox as
they come, wait in the client, and go by the same policies when the buffer is full (PACK's local buffer). The ledger
ends at the hand-over to the client, so what is given up here is this buffer's to tell: `local`, `digest`, callbacks.
Rows count as handed over when they enter the buffer: who needs each row exactly once reads the inbox itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.client.delivery import Delivery
from headgate.model import Column, Schema
from headgate.reduction import ReductionQueue, parse_policy
from headgate.wire.unsent import add_reasons

OnDigest = Callable[[Mapping[str, int], Mapping[str, Any]], None]
OnLevel = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Buffered:
    """Rows with the range that they cover, and what was given up in it: on the way (`given_up`) and here (`local`).

    `shed`, `unsent` and `unevaluated` are as in a `Delivery`.
    `digest` describes what was given up here, `level` is the policy's level at the last pack.
    """

    rows: pa.RecordBatch
    seqs: npt.NDArray[np.uint64]
    after: int
    upto: int
    given_up: Mapping[str, int]
    local: Mapping[str, int]
    digest: Mapping[str, Any]
    level: int
    shed: int = 0
    unsent: Mapping[str, int] = field(default_factory=dict)
    unevaluated: int = 0

    def __len__(self) -> int:
        return len(self.seqs)


class LocalBuffer:
    """Iterate over it instead of over the inbox. At most `max_rows` rows wait; at most `batch_rows` are given at once.

    `on_digest(counts by reason, digest)` is called when rows were given up here, `on_level(before, after)` when the
    policy's level changes, which is a sign to ask for less: a coarser stream, a stricter filter.
    """

    def __init__(
        self,
        inbox: AsyncIterable[Delivery],
        policy: Mapping[str, Any] | None = None,
        *,
        max_rows: int = 10_000,
        batch_rows: int = 1000,
        on_digest: OnDigest | None = None,
        on_level: OnLevel | None = None,
    ) -> None:
        self._inbox = inbox
        self._policy = policy
        self._max_rows = max_rows
        self._batch_rows = batch_rows
        self._on_digest = on_digest
        self._on_level = on_level
        self._queue: ReductionQueue | None = None
        self._schema: pa.Schema | None = None
        self._told: deque[Delivery] = deque()
        self._came = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._level = 0
        self._ended = False

    def __len__(self) -> int:
        return 0 if self._queue is None else len(self._queue)

    async def __aiter__(self) -> AsyncIterator[Buffered]:
        filling = asyncio.create_task(self._fill())
        try:
            while True:
                await self._came.wait()
                taken = self._take()
                if taken is not None:
                    yield taken
                elif self._ended:
                    break
                else:
                    self._came.clear()
            await filling
        finally:
            filling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await filling

    async def _fill(self) -> None:
        try:
            async for delivery in self._inbox:
                await self._put(delivery)
        finally:
            self._ended = True
            self._came.set()

    async def _put(self, delivery: Delivery) -> None:
        if self._queue is None or self._schema != delivery.rows.schema:
            while self._queue is not None and (len(self._queue) or self._queue.untold):
                # Other columns from here on: what waits under the old ones goes out first.
                self._room.clear()
                self._came.set()
                await self._room.wait()
            self._schema = delivery.rows.schema
            schema = Schema(tuple(Column(field.name, field.type) for field in self._schema))
            policy = parse_policy(self._policy, schema, "policy")
            self._queue = ReductionQueue(policy, schema, self._max_rows, coverage=delivery.after)
        self._queue.offer(delivery.seqs, delivery.rows, time.time(), delivery.upto)
        self._told.append(replace(delivery, rows=delivery.rows.slice(0, 0), seqs=delivery.seqs[:0]))
        if self._queue.level != self._level:
            before, self._level = self._level, self._queue.level
            if self._on_level:
                self._on_level(before, self._level)
        self._came.set()

    def _take(self) -> Buffered | None:
        if self._queue is None:
            return None
        taken = self._queue.take(self._batch_rows, now=time.time())
        if not len(self._queue):
            self._room.set()
        if not taken:
            return None
        given_up: dict[str, int] = {}
        unsent: dict[str, int] = {}
        shed = unevaluated = 0
        while self._told and self._told[0].upto <= taken.to:
            told = self._told.popleft()
            add_reasons(given_up, told.given_up)
            add_reasons(unsent, told.unsent)
            shed, unevaluated = shed + told.shed, unevaluated + told.unevaluated
        local = dict(taken.digest.reasons) if taken.digest else {}
        digest = taken.digest.show() if taken.digest else {}
        if local and self._on_digest:
            self._on_digest(local, digest)
        covers = (taken.rows, taken.seqs, taken.since, taken.to)
        return Buffered(*covers, given_up, local, digest, self._level, shed, unsent, unevaluated)
