"""A sender that may be cut off: rows wait in the client, under a policy, and go out in order once it is back.

PACK buffers at the sender's client while that is detached (section 2). Here everything that is published goes through
the buffer, so that order never depends on whether the connection holds: one message is under way at a time, and it is
sent again under the same message id until the server says that it is stored. The server forgets ids after a while
(`headgate.wire.logs.ID_WINDOW_S`), so a message that may have been stored is given up as `unsure`, not sent again,
when its time has run out.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.client.publishing import encode_rows, to_table
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.model import Stream
from headgate.reduction import ReductionQueue, parse_policy
from headgate.wire.logs import ID_WINDOW_S

EXPIRED: Final = "expired"
UNSURE: Final = "unsure"
_RETRY_S: Final = 0.1
_ATTEMPT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of the rows of a sender: offered = stored + reduced + expired + unsure + waiting.

    `reduced` is by the policy, by reason; `expired` waited too long; `unsure` were on their way when their time ran
    out, and may or may not have been stored. `again` counts messages that were sent more than once, under one id.
    """

    offered: int
    stored: int
    waiting: int
    reduced: Mapping[str, int]
    expired: int
    unsure: int
    level: int
    messages: int
    again: int


@dataclass(slots=True)
class _Message:
    """A message under way: its bytes and id, how many rows, since when the oldest has waited, whether it was tried."""

    data: bytes
    id: str
    rows: int
    since: float
    tried: bool = False


@dataclass(slots=True)
class _Counts:
    offered: int = 0
    stored: int = 0
    expired: int = 0
    unsure: int = 0
    messages: int = 0
    again: int = 0
    reduced: Counter[str] = field(default_factory=Counter)


class Sender:
    """Publishes into one stream, through a buffer. Made by `Client.sender`; use it as an async context manager.

    `on_digest(counts by reason, digest)` hears what was given up here, `on_level(before, after)` of a change of level.
    """

    def __init__(
        self,
        fabric: Fabric,
        stream: Stream,
        policy: Mapping[str, Any] | None = None,
        *,
        max_rows: int = 100_000,
        batch_rows: int = 1000,
        expires_s: float = 600.0,
        on_digest: Callable[[Mapping[str, int], Mapping[str, Any]], None] | None = None,
        on_level: Callable[[int, int], None] | None = None,
    ) -> None:
        if not 0.0 < expires_s <= ID_WINDOW_S / 2:
            raise ClientError(
                f"rows cannot wait {expires_s:g} s",
                hint=f"at most {ID_WINDOW_S / 2:g} s: the server has to know a message again that is sent twice",
            )
        encode_rows([], stream.source, stream.name, fabric.max_payload)  # refuses streams that nobody publishes into
        self.stream = stream
        self._fabric = fabric
        self._queue = ReductionQueue(parse_policy(policy, stream.schema, "policy"), stream.schema, max_rows)
        self._batch_rows = batch_rows
        self._expires_s = expires_s
        self._on_digest = on_digest
        self._on_level = on_level
        self._name = uuid.uuid4().hex
        self._counts = _Counts()
        self._level = 0
        self._under_way: list[_Message] = []
        self._came = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"sender into {self.stream.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float = 10.0) -> Sent:
        """Send what waits, for at most so long, and stop; what is left then is in the report as `waiting`."""
        await self.flush(timeout_s)
        if self._task is not None:
            await cancel_all([self._task])
            self._task = None
        return self.report()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits any more; False when that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def publish(self, rows: Any) -> None:
        """Take rows, of any shape that `Client.publish` takes; they have to fit the stream's columns."""
        table = conform(to_table(rows), self.stream)
        first = self._counts.offered + 1
        now = time.time()
        for batch in table.combine_chunks().to_batches():
            seqs = np.arange(first, first + batch.num_rows, dtype=np.uint64)
            self._queue.offer(seqs, batch, now)
            first += batch.num_rows
        self._counts.offered = first - 1
        self._tell_level()
        if table.num_rows:
            self._empty.clear()
            self._came.set()

    def report(self) -> Sent:
        """What has become of everything so far."""
        counts = self._counts
        reduced = {**self._queue.reduced}
        expired = counts.expired + reduced.pop(EXPIRED, 0)
        waiting = len(self._queue) + sum(message.rows for message in self._under_way)
        return Sent(
            counts.offered, counts.stored, waiting, reduced, expired, counts.unsure, self._level, counts.messages,
            counts.again,
        )  # fmt: skip

    def _tell_level(self) -> None:
        if self._queue.level != self._level:
            before, self._level = self._level, self._queue.level
            if self._on_level:
                self._on_level(before, self._level)

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            self._queue.expire_before(time.time() - self._expires_s)
            if not self._under_way:
                self._load()
            if self._under_way:
                await self._send(self._under_way[0])
            else:
                self._came.clear()
                self._empty.set()

    def _load(self) -> None:
        """Make the next messages from what waits longest."""
        since = self._queue.oldest
        taken = self._queue.take(self._batch_rows, now=time.time())
        if taken.digest is not None and self._on_digest:
            self._on_digest(dict(taken.digest.reasons), taken.digest.show())
        if not len(taken.seqs):
            return
        assert since is not None
        rows, source = taken.rows, self.stream.source
        messages, sizes = [], []
        for start, stop in self._cuts(rows):
            (data,) = encode_rows(rows.slice(start, stop - start), source, self.stream.name, self._fabric.max_payload)
            messages.append(data)
            sizes.append(stop - start)
        for data, size in zip(messages, sizes, strict=True):
            self._counts.messages += 1
            self._under_way.append(_Message(data, f"{self._name}-{self._counts.messages}", size, since))

    def _cuts(self, rows: pa.RecordBatch) -> list[tuple[int, int]]:
        """Ranges of rows that fit one message each."""
        found: list[tuple[int, int]] = []
        todo = [(0, rows.num_rows)]
        while todo:
            start, stop = todo.pop()
            part = rows.slice(start, stop - start)
            if len(encode_rows(part, self.stream.source, self.stream.name, self._fabric.max_payload)) == 1:
                found.append((start, stop))
            else:
                half = (start + stop) // 2
                todo += [(half, stop), (start, half)]
        return found

    async def _send(self, message: _Message) -> None:
        """Try once; the message stays first until it is stored or its time has run out."""
        if time.time() - message.since > self._expires_s:
            self._under_way.pop(0)
            if message.tried:
                self._counts.unsure += message.rows
            else:
                self._counts.expired += message.rows
            if self._on_digest:
                self._on_digest({UNSURE if message.tried else EXPIRED: message.rows}, {})
            return
        if not self._fabric.connected:
            await asyncio.sleep(_RETRY_S)
            return
        self._counts.again += message.tried
        message.tried = True
        subject = self._fabric.logs.published(self.stream.name)
        try:
            await self._fabric.publish(subject, message.data, message_id=message.id, timeout_s=_ATTEMPT_S)
        except FabricError:
            await asyncio.sleep(_RETRY_S)
            return
        self._under_way.pop(0)
        self._counts.stored += message.rows


def conform(table: pa.Table, stream: Stream) -> pa.Table:
    """Rows with the stream's columns and types: missing columns are null, other ones are refused."""
    schema = stream.schema.arrow
    extra = [name for name in table.column_names if name not in schema.names]
    if extra:
        raise ClientError(f"the stream {stream.name!r} has no column {extra[0]!r}", hint=f"it has {schema.names}")
    columns = []
    for each in schema:
        try:
            found = table[each.name] if each.name in table.column_names else pa.nulls(table.num_rows, each.type)
            columns.append(found.cast(each.type))
        except pa.ArrowException as error:
            raise ClientError(
                f"column {each.name!r}: {str(error).splitlines()[0]}", hint=f"it is {each.type}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)
