"""A sender that may be cut off: rows wait in the client, under a policy, and go out in order once it is back.

PACK buffers at the sender's client while that is detached (section 2). Here everything that is published goes through
the buffer, so that order never depends on whether the connection holds: one message is under way at a time, and it is
sent again under the same message id until the server says that it is stored. The server forgets ids after a while
(`headgate.wire.logs.ID_WINDOW_S`), so a message that may have been stored is given up as `unsure`, not sent again,
when its time has run out.

What was given up is declared in the stream itself, behind the rows that were sent before (`headgate.wire.unsent`): the
ledger counts it and every subscriber is told. A declaration does not expire. One that may have been stored and is older
than the server's memory of ids is sent again: better told twice than not at all.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.client.entrance import Entrance
from headgate.client.errors import ClientError
from headgate.client.publishing import check_published, cut_rows, to_table
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import FabricError, cancel_all
from headgate.model import Stream
from headgate.reduction import ReductionQueue, merged, parse_policy
from headgate.reduction.digest import DigestTable
from headgate.wire.logs import ID_WINDOW_S
from headgate.wire.unsent import Unsent, encode_unsent

EXPIRED: Final = "expired"
UNSURE: Final = "unsure"
_RETRY_S: Final = 0.1
_ATTEMPT_S: Final = 5.0


@dataclass(slots=True)
class Sent:
    """What became of the rows of a sender: offered = stored + reduced + expired + unsure + waiting.

    `declared` says how many of those that were given up (reduced, expired, unsure) the stream has been told about.
    `reduced` is by the policy, by reason; `expired` waited too long; `unsure` were on their way when their time ran
    out, and may or may not have been stored. `again` counts messages that were sent more than once, under one id.
    """

    offered: int = 0
    stored: int = 0
    waiting: int = 0
    reduced: Mapping[str, int] = field(default_factory=dict)
    expired: int = 0
    unsure: int = 0
    level: int = 0
    messages: int = 0
    again: int = 0
    declared: int = 0


@dataclass(slots=True)
class _Message:
    """A message under way: its bytes and id, the rows, since when the oldest has waited, when it was first tried."""

    data: bytes
    id: str
    rows: pa.RecordBatch
    seqs: npt.NDArray[np.uint64]
    since: float
    tried_s: float | None = None


@dataclass(slots=True)
class _Declaration:
    """A declaration under way: what it says is open until it is first tried."""

    id: str
    digest: Unsent
    tried_s: float | None = None


class Sender:
    """Publishes into one stream, through a buffer. Made by `Client.sender`; use it as an async context manager.

    `on_digest(counts by reason, digest)` hears what was given up here, `on_level(before, after)` of a change of level.
    """

    def __init__(
        self,
        entrance: Entrance,
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
        check_published(stream.source, stream.name)
        self.stream = stream
        self._entrance = entrance
        self._queue = ReductionQueue(parse_policy(policy, stream.schema, "policy"), stream.schema, max_rows)
        self._batch_rows = batch_rows
        self._expires_s = expires_s
        self._on_digest = on_digest
        self._on_level = on_level
        self._name = uuid.uuid4().hex
        self._counts = Sent()
        self._under_way: deque[_Message] = deque()
        self._unsent: Unsent | None = None
        self._declaring: _Declaration | None = None
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

    def move(self, entrance: Entrance) -> None:
        """Publish at another site from now on (`Client.entrance`); the client before may be closed afterwards.

        What may have been stored at the site before is sent again under the same id: the root of the stream takes it
        once. It knows the messages of sites only, so a sender that is to move begins at a site.
        """
        if self._entrance.site is None or entrance.site is None:
            raise ClientError(
                f"a sender into {self.stream.name!r} moves from one site to another, not to or from its root",
                hint="open it at a site: client.sender(stream, site=...)",
            )
        self._entrance = entrance

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
        counts, reduced = self._counts, {**self._queue.reduced}
        expired = counts.expired + reduced.pop(EXPIRED, 0)
        waiting = len(self._queue) + sum(message.rows.num_rows for message in self._under_way)
        return replace(counts, waiting=waiting, reduced=reduced, expired=expired)

    def _tell_level(self) -> None:
        before, self._counts.level = self._counts.level, self._queue.level
        if self._on_level and before != self._counts.level:
            self._on_level(before, self._counts.level)

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            self._queue.expire_before(time.time() - self._expires_s)
            if not self._under_way and self._declaring is None:
                self._load()
            if self._under_way:
                await self._send(self._under_way[0])
            elif self._declaring is not None:
                await self._declare(self._declaring)
            else:
                self._came.clear()
                self._empty.set()

    def _load(self) -> None:
        """Make the next messages from what waits longest, and a declaration of what was given up between them."""
        since = self._queue.oldest
        taken = self._queue.take(self._batch_rows, now=time.time())
        if taken.digest is not None:
            self._give_up(taken.digest)
        if self._unsent is not None:
            self._declaring, self._unsent = _Declaration(uuid.uuid4().hex, self._unsent), None
        start, table = 0, pa.Table.from_batches([taken.rows])
        for count, data in (
            cut_rows(table, self.stream.source, self._entrance.fabric.max_payload) if len(taken.seqs) else ()
        ):
            assert since is not None
            self._counts.messages += 1
            identity, seqs = f"{self._name}-{self._counts.messages}", taken.seqs[start : start + count]
            self._under_way.append(_Message(data, identity, taken.rows.slice(start, count), seqs, since))
            start += count

    def _give_up(self, digest: Unsent) -> None:
        """Tell the owner of what was given up, and keep it to be declared."""
        self._unsent = merged(self._unsent, digest)
        if self._on_digest:
            self._on_digest(dict(digest.reasons), digest.show())

    async def _send(self, message: _Message) -> None:
        """Try once; the message stays first until it is stored or its time has run out."""
        count = message.rows.num_rows
        if time.time() - message.since > self._expires_s:
            self._under_way.popleft()
            reason = EXPIRED if message.tried_s is None else UNSURE
            if message.tried_s is None:
                self._counts.expired += count
            else:
                self._counts.unsure += count
            why = np.zeros(count, dtype=np.int64)
            digesters = self._queue.policy.digesters
            digest = DigestTable.of(message.rows, message.seqs, why, (reason,), digesters).total()
            assert digest is not None
            self._give_up(digest)
            return
        self._counts.again += message.tried_s is not None and self._entrance.fabric.connected
        if await self._published(self._entrance.rows, message.data, message):
            self._under_way.popleft()
            self._counts.stored += count

    async def _declare(self, declaration: _Declaration) -> None:
        """Try once to declare what was given up; what was given up since is added while nobody can have read it."""
        tried_s = declaration.tried_s
        if tried_s is None:
            declaration.digest, self._unsent = merged(declaration.digest, self._unsent) or declaration.digest, None
        elif time.time() - tried_s > ID_WINDOW_S / 2:
            declaration.id, declaration.tried_s = uuid.uuid4().hex, None
        if await self._published(self._entrance.unsent, encode_unsent(declaration.digest), declaration):
            self._declaring = None
            self._counts.declared += declaration.digest.count

    async def _published(self, subject: str, data: bytes, message: _Message | _Declaration) -> bool:
        """Whether a message is stored now; a message is tried when it may be."""
        fabric = self._entrance.fabric
        if fabric.connected:
            message.tried_s = message.tried_s or time.time()
            with noted(CLIENT, "a message is sent again", FabricError):  # and counted in `again`
                await fabric.publish(subject, data, message_id=message.id, timeout_s=_ATTEMPT_S)
                return True
        await asyncio.sleep(_RETRY_S)
        return False


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
