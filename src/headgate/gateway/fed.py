"""A reader that is fed from memory: its machine is that of every reader, only its questions are answered faster.

What memory knows is answered at once, without a task and without a request: messages of its inbox and the catalog's
newest revision. Everything else is carried out as for any reader, on its own connection.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any, Final, Protocol

from headgate.client.reader import ReaderMachine, Reading
from headgate.fabric import Fabric
from headgate.fabric.runner import Consumer, LoadTable, Runner
from headgate.gateway.answers import UNKNOWN, MemoryAnswers
from headgate.gateway.feed import SiteFeed
from headgate.protocol import kernel, port
from headgate.protocol.port import Stored

IDLE_S: Final = 15.0
"""After how long a reader at most looks again although nothing has woken it."""
_INBOX_AND_HEAD: Final = 2
_LOOKS: Final = 8


class ShowReader(Protocol):
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
        show: ShowReader,
        reading: Reading,
        fabric: Fabric,
        machine: ReaderMachine,
        table: LoadTable,
        consumer: Consumer,
    ) -> None:
        super().__init__(fabric, machine, table, consumer=consumer)
        self._feed = feed
        self._show = partial(show, reading)
        self._reading = reading
        self._answers_of = MemoryAnswers(feed.memory, feed, fabric.logs, feed.site, self._attach)
        self._idle: asyncio.TimerHandle | None = None
        self._looks = 0

    async def __aexit__(self, *_: object) -> None:
        if self._idle is not None:
            self._idle.cancel()
        for subject in self._answers_of.attached:
            self._feed.detach(subject, self)
        self._answers_of.attached.clear()
        await super().__aexit__()

    def _attach(self, subject: str) -> None:
        self._feed.attach(subject, self)

    def _issue(self, number: int, command: Any) -> None:
        if self._answers_of.waits(command):
            self._wait_for_memory(number, command)
            return
        found = self._answers_of.answer(command, self._show)
        if found is UNKNOWN:
            super()._issue(number, command)
        else:
            self.feed(kernel.Completed(number, found))

    async def _do(self, command: Any) -> Any:
        if isinstance(command, port.Append):
            async with self._feed.acks:
                return await super()._do(command)
        found = await super()._do(command)
        self._answers_of.answered(command, found)
        return found

    def _wait_for_memory(self, number: int, command: port.Listen) -> None:
        """Wait until something comes into memory.

        Nothing gets lost on this way, so a reader that has begun to count looks without being woken only seldom.
        """
        if not self._answers_of.listen(number):
            self.feed(kernel.Completed(number))
            return
        sure = self._feed.memory.seen is not None and self._reading.account.coverage is not None
        rest_s = command.timeout_s
        if sure and len(command.subjects) <= _INBOX_AND_HEAD:
            rest_s = random.uniform(0.5, 1.0) * IDLE_S  # so that not all look at once
        self._idle = asyncio.get_running_loop().call_later(rest_s, self._look)

    def _look(self) -> None:
        """Nothing has come for a while: look again, and now and then at the log itself, whatever memory says."""
        self._looks += 1
        self._answers_of.ask_log = self._looks % _LOOKS == 0
        self.hear()

    def hear(self) -> None:
        """Something has come: look again."""
        number = self._answers_of.hear()
        if number is not None:
            if self._idle is not None:
                self._idle.cancel()
            self.feed(kernel.Completed(number))
