"""The delays of links on one host: a relay's messages are handed to it as late as its links would bring them.

For demonstrations, studies and benchmarks of a whole overlay on one machine. A relay of a product never waits.
"""

from __future__ import annotations

import asyncio
import time
from typing import Self

from headgate.fabric import Fabric, Stored
from headgate.relay.tables import Tables
from headgate.wire.logs import Log


class DelayedLinks(Fabric):
    """A connection on which what parents send comes after the delay of their link."""

    tables: Tables
    site: str

    @classmethod
    def of(cls, fabric: Fabric, tables: Tables, site: str) -> Self:
        """The links into one site."""
        found = fabric.share(cls)
        found.tables, found.site, found.streams = tables, site, False
        return found

    async def awaited(
        self, log: Log, subject: str, after: int, wake: asyncio.Event, *, limit: int = 256
    ) -> list[Stored]:
        """The next messages of a subject, as soon as the first has come all the way."""
        found = await super().awaited(log, subject, after, wake, limit=limit)
        if subject != self.logs.links_into(self.site):
            return found
        links = (await self.tables.newest()).deployment.links
        due_s = [each.time_s + links.between(each.subject.rsplit(".", 1)[1], self.site).delay_s for each in found]
        await asyncio.sleep(max(due_s[0] - time.time(), 0.0))
        late = next((at for at, due in enumerate(due_s) if due > time.time()), len(found))
        return found[: max(late, 1)]
