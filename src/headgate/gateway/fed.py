"""A reader that is fed from memory: its machine is that of every reader, only its questions are answered faster.

What memory knows is answered at once, without a task and without a request: messages of its inbox and the catalog's
newest revision. Everything else is carried out as for any reader, on its own connection.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final, Protocol, Self

from headgate.client.reader import ReaderMachine, Reading
from headgate.fabric import Fabric
from headgate.fabric.runner import Consumer, LoadTable, Runner
from headgate.gateway.feed import SiteFeed
from headgate.protocol import kernel, port
from headgate.protocol.port import Stored

IDLE_S: Final = 15.0
"""After how long a reader at most looks again although nothing has woken it."""
_INBOX_AND_HEAD: Final = 2


class Show(Protocol):
    """What the reader of a subscription may see of messages."""

    def __call__(self, reading: Reading, messages: list[Stored]) -> list[Stored] | None:
        """The messages as they are shown; None where whoever is asked for them has to say."""
        ...


def show_all(reading: Reading, messages: list[Stored]) -> list[Stored] | None:  # noqa: ARG001 # others choose by it
    """An operator sees messages as they are."""
    return messages


class MemoryRunner(Runner):
    """Runs the machine of one reader."""

    def __init__(
        self,
        feed: SiteFeed,
        show: Show,
        reading: Reading,
        fabric: Fabric,
        machine: ReaderMachine,
        table: LoadTable,
        consumer: Consumer,
    ) -> None:
        super().__init__(fabric, machine, table, consumer=consumer)
        self._feed = feed
        self._show = show
        self._reading = reading
        self._log_name = fabric.logs.inbox(feed.site).name
        self._head = fabric.logs.head
        self._attached: set[str] = set()
        self._listening: int | None = None
        self._hinted = False
        self._idle: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._attach(self._head)
        await super().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._idle is not None:
            self._idle.cancel()
        for subject in self._attached:
            self._feed.detach(subject, self)
        self._attached.clear()
        await super().__aexit__()

    def _attach(self, subject: str) -> None:
        if subject not in self._attached:
            self._attached.add(subject)
            self._feed.attach(subject, self)

    def _issue(self, number: int, command: Any) -> None:
        kind, feed = type(command), self._feed
        if kind is port.Read and command.log.name == self._log_name:
            found = self._remembered(command)
            if found is not None:
                self.feed(kernel.Completed(number, found))
                return
        elif kind is port.Listen and self._attached.issuperset(command.subjects):
            self._await_memory(number, command)
            return
        elif kind is port.Last and command.subject == self._head and feed.head is not None:
            self.feed(kernel.Completed(number, feed.head))
            return
        elif kind is port.Subjects and command.pattern in feed.published:
            self.feed(kernel.Completed(number, dict(feed.published)))
            return
        super()._issue(number, command)

    def _remembered(self, command: port.Read) -> list[Stored] | None:
        self._attach(command.subject)
        found = self._feed.memory.read(command.subject, command.after, command.limit)
        return found if not found else self._show(self._reading, found)

    async def _do(self, command: Any) -> Any:
        kind, memory = type(command), self._feed.memory
        if kind is port.Read and command.log.name == self._log_name:
            mark = memory.mark
            found = await super()._do(command)
            if not found:
                memory.learn(command.subject, command.after, mark)
            return found
        if kind is port.Append:
            async with self._feed.acks:
                return await super()._do(command)
        return await super()._do(command)

    def _await_memory(self, number: int, command: port.Listen) -> None:
        """Wait until something comes into memory. What came since the last time counts.

        Nothing gets lost on this way, so a reader that has begun to count looks without being woken only seldom.
        """
        if self._hinted:
            self._hinted = False
            self.feed(kernel.Completed(number))
            return
        self._listening = number
        sure = self._feed.memory.seen is not None and self._reading.account.coverage is not None
        rest_s = command.timeout_s
        if sure and len(command.subjects) <= _INBOX_AND_HEAD:
            rest_s = random.uniform(0.5, 1.0) * IDLE_S  # so that not all look at once
        self._idle = asyncio.get_running_loop().call_later(rest_s, self.hear)

    def hear(self) -> None:
        """Something has come: look again."""
        number, self._listening = self._listening, None
        if number is None:
            self._hinted = True
            return
        if self._idle is not None:
            self._idle.cancel()
        self.feed(kernel.Completed(number))
