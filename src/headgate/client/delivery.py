"""Receiving: an inbox as an asynchronous iterator of deliveries, in order, without duplicates, with gaps repaired."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.client.reader import DONE, STORE, TAKEN, ReaderMachine, Reading
from headgate.fabric import Fabric
from headgate.fabric.runner import Consumer, LoadTable, Runner
from headgate.parts import part
from headgate.relay.tables import Tables
from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally
from headgate.wire.unsent import show_unsent

OnDigest = Callable[[Mapping[str, int], int, int], None]
"""Hears what was given up, by reason, and the range (after, upto] that it was given up in."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows with the range of the stream that they cover, and what was given up in it, by reason.

    `digest` says more about what was given up where the subscription's policy has digesters, as in
    ``{"count": 3, "reasons": {"delta": 3}, "first": 17, "last": 21, "max(bpm)": 97}``.
    `shed` counts rows that admission control gave up before they were matched, `unsent` by reason rows that senders
    gave up before they came (`unsent_digest` says more), `unevaluated` rows that were not looked at for this
    subscription, as its filter takes too long or its owner has used up its share of the matching: nobody knows whether
    any of them are rows of this subscription.
    `position` is a token: a client that stores it together with what it did with the rows, and resumes with it, sees
    every row exactly once.
    """

    rows: pa.RecordBatch
    seqs: npt.NDArray[np.uint64]
    after: int
    upto: int
    given_up: Mapping[str, int]
    position: str
    digest: Mapping[str, Any] = field(default_factory=dict)
    shed: int = 0
    unsent: Mapping[str, int] = field(default_factory=dict)
    unsent_digest: Mapping[str, Any] = field(default_factory=dict)
    unevaluated: int = 0

    def __len__(self) -> int:
        return len(self.seqs)

    def to_pandas(self) -> Any:
        """The rows as a pandas frame, indexed by sequence number."""
        part("pandas")
        return self.rows.to_pandas().set_index(np.asarray(self.seqs))

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        found: list[dict[str, Any]] = self.rows.to_pylist()
        return found


def encode_position(tally: Tally) -> str:
    """A tally as a token."""
    return _token(tally.encode())


def _token(tally: bytes) -> str:
    return base64.urlsafe_b64encode(tally).decode("ascii")


def read_position(token: str) -> Tally:
    """The tally of a token."""
    try:
        return Tally.decode(base64.urlsafe_b64decode(token))
    except (ValueError, WireError) as error:
        raise ClientError("this is not a position token", hint="use `Delivery.position` as it was given") from error


def decode_position(token: str, subscription: int) -> Tally:
    """The tally of a token; a token of another subscription is refused."""
    tally = read_position(token)
    if tally.subscription != subscription:
        raise ClientError(f"the position is of subscription {tally.subscription}, not of {subscription}")
    return tally


class RunReader(Protocol):
    """Runs the machine of a reader on a connection."""

    def __call__(
        self, reading: Reading, fabric: Fabric, machine: ReaderMachine, table: LoadTable, consumer: Consumer
    ) -> Runner:
        """The runner, which is entered by whoever asked for it."""
        ...


def run_reader(
    reading: Reading,  # noqa: ARG001 # others choose by it
    fabric: Fabric,
    machine: ReaderMachine,
    table: LoadTable,
    consumer: Consumer,
) -> Runner:
    """A reader that reads its inbox by itself."""
    return Runner(fabric, machine, table, consumer=consumer)


class Inbox:
    """One subscription being read: iterate over it. It is closed with its client, or by `close`.

    A delivery counts as done when the loop asks for the next one, or when `done` is called; what is done is
    acknowledged twice a second and when the inbox is closed.
    """

    def __init__(
        self,
        fabric: Fabric,
        tables: Tables,
        reading: Reading,
        on_digest: OnDigest | None = None,
        run: RunReader = run_reader,
    ) -> None:
        """Made by `Client.subscribe`. `run` runs its machine.

        `ahead` is set by whoever reads ahead of the consumer, for whom the last delivery then still is.
        """
        self.name, self.id, self.stream = reading.name, reading.id, reading.stream
        self._fabric = fabric
        self._tables = tables
        self._reading = reading
        self._runner: Runner | None = None
        self._run = run
        self._handed: tuple[Block, Callable[[], None]] | None = None
        self._came = asyncio.Event()
        self._nudged = False
        self._detached = False
        self.ahead = False
        self._confirmed = -1
        self._on_digest = on_digest

    @property
    def tally(self) -> Tally:
        """What was counted so far; the ledger's side of this subscriber."""
        return self._reading.account.tally

    @property
    def position(self) -> str:
        """The token of what was handed over so far."""
        return _token(self._reading.position)

    @property
    def confirming(self) -> bool:
        """Whether only what is confirmed is acknowledged."""
        return self._reading.confirming

    @property
    def max_rows(self) -> int | None:
        """How many rows a delivery has at most."""
        return self._reading.max_rows

    @max_rows.setter
    def max_rows(self, rows: int | None) -> None:
        self._reading.max_rows = rows

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        deliveries = self.deliveries()
        try:
            async for delivery in deliveries:
                if delivery is not None:
                    yield delivery
        finally:
            await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator

    async def deliveries(self) -> AsyncIterator[Delivery | None]:
        """The deliveries; None comes when somebody calls `nudge` while there is nothing."""
        await self.close()
        if self._reading.acks.taken_over is not None:
            raise self._reading.acks.taken_over
        if self._reading.ended:
            return
        fabric = self._fabric
        machine = ReaderMachine(self._reading, fabric.logs, fabric.max_payload, fabric.codec, fabric.quarantine)
        self._handed = None
        async with self._run(self._reading, fabric, machine, self._tables.snapshot, self._consume) as runner:
            self._runner = runner
            runner.failure.add_done_callback(lambda _: self._came.set())
            try:
                while not self.gone():  # what would be handed over from there on would not be acknowledged
                    if runner.failure.done():
                        await runner.failure
                    if (handed := self._take()) is not None:
                        block, done = handed
                        runner.tell(TAKEN)
                        yield self._delivery(block)
                        if self.gone():
                            return
                        done()
                        if self._reading.upto is not None and block.upto >= self._reading.upto:
                            self.done()
                            return
                    elif self._nudged:
                        self._nudged = False
                        yield None
                    else:
                        self._came.clear()
                        await self._came.wait()
            finally:
                await self.close()
                if self._runner is runner:
                    self._runner = None

    def _consume(self, block: Block, done: Callable[[], None]) -> None:
        """Keep a block until the loop takes it; it is done when the loop asks for the next one."""
        self._handed = block, done
        self._came.set()

    def _take(self) -> tuple[Block, Callable[[], None]] | None:
        handed, self._handed = self._handed, None
        return handed

    def acknowledge_every(self, seconds: float) -> None:
        """Store what was dealt with at most so often."""
        self._reading.acks.every_s = seconds

    def nudge(self) -> None:
        """Let `deliveries` go on although nothing has come, so that its consumer looks at something else."""
        self._nudged = True
        self._came.set()

    def refuse(self, error: ClientError) -> None:
        """End the reading with an error: the stream is not any more what this reader's place belongs to."""
        self._reading.acks.refuse(error)
        if self._runner is not None and not self._runner.failure.done():
            self._runner.failure.set_exception(error)

    def gone(self) -> bool:
        """Whether `detach` was called, which another task does between two steps of the loop."""
        return self._detached

    def _delivery(self, block: Block) -> Delivery:
        given_up = dict(block.declared.get(self.id, {}))
        if given_up and self._on_digest:
            self._on_digest(given_up, block.after, block.upto)
        digest = block.digests[self.id].show() if self.id in block.digests else {}
        shed = sum(commit.shed for commit in block.ended)
        unsent = show_unsent(block.unsent)
        reasons = unsent.get("reasons", {})
        covers = (block.rows, block.seqs, block.after, block.upto)
        unevaluated = sum(commit.unevaluated.get(self.id, 0) for commit in block.ended)
        return Delivery(*covers, given_up, self.position, digest, shed, reasons, unsent, unevaluated)

    def done(self) -> None:
        """Say that the last delivery was dealt with, without asking for another; it is acknowledged soon."""
        if self._runner is not None and not self.confirming:
            self._runner.tell(DONE)

    def confirm(self, position: str) -> None:
        """Say that everything up to a position was dealt with; with `confirming` nothing else is acknowledged."""
        tally = decode_position(position, self.id)
        tally.incarnation, tally.run, tally.reader = self.tally.incarnation, self.tally.run, self.tally.reader
        if tally.mark > self.tally.mark:
            raise ClientError(f"the position is past what was read of {self.name!r}", hint="confirm what was received")
        if tally.mark <= self._confirmed:
            return  # confirmed before, or later than what came after it
        self._confirmed = tally.mark
        if self._runner is not None:
            self._runner.tell(DONE, tally)
        else:
            self._reading.acks.note(tally)

    async def detach(self) -> None:
        """End the reading: what was handed over counts as done, and the loop ends."""
        if not self.ahead:
            self.done()
        self._detached = True
        self._came.set()
        await self.close()
        if self._reading.acks.pending is not None:
            raise ClientError(
                f"what was read of {self.name!r} could not be acknowledged",
                hint="detach again, or resume with the position of the last delivery",
            )

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        if self._runner is not None and not self._runner.failure.done():
            error = await self._runner.ask(STORE)
            if error is not None:
                raise error


class Readable(Protocol):
    """What can be read like an inbox."""

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """The deliveries."""
        ...

    def done(self) -> None:
        """Say that the last delivery was dealt with."""
        ...

    def confirm(self, position: str) -> None:
        """Say that everything up to a position was dealt with."""
        ...

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        ...


@contextlib.asynccontextmanager
async def closing(inbox: Readable) -> AsyncIterator[AsyncIterator[Delivery]]:
    """The deliveries of an inbox, closed at the end of the block however it is left."""
    deliveries = inbox.__aiter__()
    try:
        yield deliveries
    finally:
        await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator
        await inbox.close()
