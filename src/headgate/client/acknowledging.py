"""Acknowledging: what a consumer is done with is stored, at most twice a second, by one reader at a time."""

from __future__ import annotations

from typing import Final

from headgate.client.errors import ClientError
from headgate.protocol.kernel import Mutex, Task
from headgate.protocol.port import FabricError, FencedError, MachinePort
from headgate.wire.ledger import Tally

_ACK_EVERY_S: Final = 0.5


class Acknowledger:
    """The acknowledgements of one reader. Each is fenced by the one before it, so that a second reader takes over.

    `sequence` is the place of the acknowledgement that this reader stands on, None for one that only looks. `known` is
    what it says: a reader who goes back behind its boundary acknowledges again from there on. Its `reader` tells these
    acknowledgements from those of others, where it does not know which of them were stored.
    """

    def __init__(self, name: str, sequence: int | None, known: Tally) -> None:
        self._name = name
        self._reader = known.reader
        self._sequence = sequence
        self._floor, self._mark = known.boundary, known.mark
        self._acked_s = 0.0
        self._unsure = False  # whether nobody knows which of the last acknowledgements were stored
        self._port: MachinePort | None = None
        self._storing: Mutex | None = None
        self._task: Task[None] | None = None
        self.every_s = _ACK_EVERY_S
        """How often at most one is stored; whoever runs many readers gathers more into each."""
        self.pending: bytes | None = None
        self.taken_over: ClientError | None = None

    def run_in(self, port: MachinePort) -> None:
        """Belong to a machine from now on."""
        self._port, self._storing, self._task = port, Mutex(port.machine), None
        if self.pending is not None:
            self._task = port.machine.spawn(self._soon(port), "acknowledge")

    @property
    def sequence(self) -> int:
        """The place of the acknowledgement that this reader stands on; 0 where it only looks."""
        return self._sequence or 0

    @property
    def mark(self) -> int:
        """The end of what the consumer is done with."""
        return self._mark

    @property
    def floor(self) -> int:
        """The boundary that was acknowledged before."""
        return self._floor

    def resume(self, tally: Tally) -> None:
        """The consumer goes on from a place that it kept: it is done with everything before.

        Its last acknowledgement may never have been stored. An inbox that is full up to this place takes nothing new
        until somebody says so, and the next row would never come.
        """
        if tally.mark > self._mark:
            self.note(tally)

    def note(self, tally: Tally) -> None:
        """The consumer is done with everything in a tally: store it soon."""
        if self._sequence is None or tally.boundary < self._floor:
            return
        self.pending, self._mark = tally.encode(), tally.mark
        if self._port is not None and (self._task is None or self._task.done):
            self._task = self._port.machine.spawn(self._soon(self._port), "acknowledge")

    def refuse(self, error: ClientError) -> None:
        """Acknowledge nothing any more; whoever reads on hears this."""
        self.taken_over, self.pending, self._sequence = error, None, None

    async def _soon(self, port: MachinePort) -> None:
        """Store positions while there are new ones, at most so often."""
        while self.pending is not None:
            await port.sleep(self._acked_s + self.every_s - port.now)
            try:
                await self.store()
            except ClientError as error:
                self.taken_over = error
                return

    async def store(self) -> None:
        """Store the last position now; `pending` stays set where nobody knows whether it was."""
        assert self._port is not None
        assert self._storing is not None
        async with self._storing:
            await self._store(self._port)

    async def _store(self, port: MachinePort) -> None:
        if self.pending is None or self._sequence is None:
            return
        sent = self.pending
        self._acked_s = port.now
        try:
            await self._append(port, sent)
        except FencedError as error:
            raise ClientError(
                f"another client has taken over the subscription {self._name!r}",
                hint="one reader at a time",
                kind="conflict",
            ) from error
        except FabricError:
            return  # stored or not: the next acknowledgement finds out
        self._unsure = False
        if self.pending is sent:
            self.pending = None

    async def _append(self, port: MachinePort, sent: bytes) -> None:
        """Append an acknowledgement behind the last one, which may be one whose fate was not known."""
        subject = port.logs.ack(Tally.decode(sent).subscription)
        if self._unsure:
            await self._adopt(port, subject)
        self._unsure = True
        try:
            self._sequence = await port.publish(subject, sent, expect=self._sequence)
        except FencedError:
            # One that was interrupted on its way may have been stored only now, or somebody has written garbage.
            if not await self._adopt(port, subject):
                raise
            self._sequence = await port.publish(subject, sent, expect=self._sequence)

    async def _adopt(self, port: MachinePort, subject: str) -> bool:
        """Stand on the last stored message if it is an acknowledgement of this reader, or is none at all."""
        log = port.logs.state
        stored = await port.last(log, subject)
        if stored is None:
            return False
        tally = port.quarantine.take(log, stored, Tally.decode, "acknowledged again")
        if tally is not None and tally.reader != self._reader:
            return False
        self._sequence = stored.sequence
        return True
