"""Room for the next revision: a change that would not fit the log of tables is refused before it is made."""

from __future__ import annotations

from typing import Final

from headgate.errors import HeadgateError
from headgate.protocol.port import LogPort
from headgate.protocol.published import head_revision
from headgate.wire.snapshot import part_count

_REVISIONS: Final = 3  # what must fit: the next one, larger than the last, and one that a restart may have to make
_MARGIN: Final = 64 << 10


class NoRoomError(HeadgateError):
    """The log of tables has no room for another revision, and nothing in it may be deleted."""

    usual_kind = "full"


class TablesRoom:
    """What the log of tables holds, and what keeps it from being less."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many bytes the log takes."""
        self.limit = limit
        self.bytes = 0
        self.size = 0
        self.holder = ""
        self.fix = ""

    async def refresh(self, port: LogPort) -> None:
        """Ask how full the log is, and how large the newest revision that is whole, as the next one may be."""
        logs = port.logs
        usage = await port.usage(logs.tables)
        self.bytes = 0 if usage is None else usage.bytes
        revision = await head_revision(port) if self.bytes > self.limit // 4 else None
        while revision is not None:
            stored = await port.last(logs.tables, logs.table(revision))
            if stored is not None:
                self.size = part_count(stored.data) * port.max_payload or len(stored.data)
            revision = None if stored is None else port.codec.base(stored.data)

    @property
    def short(self) -> bool:
        """Whether there is too little room for another revision."""
        return self.bytes + _REVISIONS * self.size + _MARGIN > self.limit

    def check(self) -> None:
        """Refuse a change of the catalog that could not be published."""
        if self.short:
            raise self.error()

    def error(self) -> NoRoomError:
        """What is wrong, what is the reason, and what ends it."""
        held = f": the oldest is held by {self.holder}" if self.holder else ""
        return NoRoomError(
            f"the log of tables has no room for another revision, so nothing was changed ({self.bytes / 1e6:,.1f} of "
            f"{self.limit / 1e6:,.1f} MB are taken, a revision takes {self.size / 1e6:,.1f} MB){held}",
            hint=self.fix or "what nothing names is deleted within a minute: try again",
        )
