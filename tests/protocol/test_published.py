"""The newest announced revision, while others are announced and old ones deleted."""

import asyncio
from typing import Any

from headgate.protocol.published import head_revision
from headgate.protocol.quarantine import Quarantine
from headgate.virtual.server import SimulatedServer
from headgate.wire.logs import Log, Logs
from headgate.wire.sealed import write_number


class _Moving:
    """A port on a simulated server on which the next revision replaces the last just before tables are looked at."""

    def __init__(self) -> None:
        self.logs = Logs("hg")
        self.quarantine = Quarantine(lambda: 0.0)
        self.server = SimulatedServer()
        for log in (self.logs.state, self.logs.tables):
            self.server.ensure(log)
        self.announce(1)
        self._next = 2

    def announce(self, revision: int) -> None:
        self.server.publish(self.logs.table(revision), b"", size=0)
        self.server.publish(self.logs.head, write_number(revision), size=1)

    async def last(self, log: Log, subject: str) -> Any:
        return self.server.last(log, subject)

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        if self._next == 2:
            self.announce(2)
            self.server.purge(self.logs.tables, self.logs.table(1), 1 << 62)
            self._next = 3
        return self.server.subjects(log, pattern)


def test_a_revision_that_went_between_two_questions_is_not_reported_as_missing() -> None:
    port = _Moving()
    assert asyncio.run(head_revision(port)) == 2  # type: ignore[arg-type] # it has what is asked for
    assert port.quarantine.count == 0
