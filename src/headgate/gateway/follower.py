"""Reads the inboxes of a site into memory, as a machine: one reading of the log for all readers of the site.

Where the log cannot be read for a while nothing is forgotten: it goes on behind what was seen. Where the log was made
anew, or put back to an older copy, what memory holds is forgotten, and everybody reads the log until it has grown past
what was seen.
"""

from __future__ import annotations

from typing import Final

from headgate.diagnostics import FABRIC
from headgate.gateway.memory import SiteMemory
from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import FabricError, MachinePort, Stored
from headgate.protocol.quarantine import Quarantine
from headgate.wire.logs import Logs
from headgate.wire.sealed import read_number

_AT_A_TIME: Final = 512
_AGAIN_S: Final = 1.0
_CHECK_S: Final = 5.0


class FollowMachine(Machine):
    """Follows the inbox log of one site and the catalog's newest revision.

    Subjects that got something are handed over: whoever waits for one of them looks again.
    """

    def __init__(
        self,
        site: str,
        memory: SiteMemory,
        logs: Logs,
        max_payload: int,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(f"gateway {site}")
        self._memory = memory
        self._port = MachinePort(self, logs, max_payload, codec, quarantine)
        self._log = logs.inbox(site)
        self.subject = logs.inboxes_at(site)
        self.head: Stored | None = None
        """The newest announced revision, as it is stored."""
        self.published: dict[str, int] = {}
        """What there is of that revision, by subject, as the log of tables says."""
        self.spawn(self._follow(), "follow")
        self.spawn(self._watch(), "watch")
        self.spawn(self._follow_head(), "head")

    async def _follow(self) -> None:
        memory, port = self._memory, self._port
        while True:
            try:
                if memory.seen is None:
                    last = await port.last(self._log, self.subject)
                    memory.begin(0 if last is None else last.sequence)
                found = await port.next(self._log, self.subject, memory.seen or 0, limit=_AT_A_TIME)
            except FabricError as error:
                FABRIC.debug("%s is read again: %s", self.subject, error)
                await port.sleep(_AGAIN_S)
                continue
            if memory.seen is None:  # the log is another one since
                continue
            got = memory.take(found)
            if got:
                await port.hand_over(got)

    async def _watch(self) -> None:
        """See whether the log has gone back behind what was seen: it is another one then."""
        while True:
            await self._port.sleep(_CHECK_S)
            try:
                seen, last = self._memory.seen, await self._port.last(self._log, self.subject)
            except FabricError:
                continue
            if seen is not None and last is not None and last.sequence < seen:
                self._memory.forget()

    async def _follow_head(self) -> None:
        logs, port, place = self._port.logs, self._port, 0
        while True:
            try:
                head = (await port.next(logs.state, logs.head, place))[-1]
                revision = port.quarantine.take(logs.state, head, read_number, "asked for again by every reader")
                found = {} if revision is None else await port.subjects(logs.tables, logs.table(revision))
            except FabricError as error:
                FABRIC.debug("the announced revision is asked for again: %s", error)
                await port.sleep(_AGAIN_S)
                continue
            place = head.sequence
            self.head, self.published = (head, found) if found else (None, {})
            await port.hand_over([logs.head])
