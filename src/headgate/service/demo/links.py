"""The delays of links on one host: a relay's messages are handed to it as late as its links would bring them.

For demonstrations, studies and benchmarks of a whole overlay on one machine. A relay of a product never waits.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from headgate.fabric import Fabric, Stored
from headgate.fabric.roled import RoleFabric
from headgate.relay.tables import Tables


@dataclass(frozen=True, slots=True)
class DelayedLinks:
    """Hands a site what its parents send after the delay of their link."""

    tables: Tables
    site: str
    subject: str

    @classmethod
    def of(cls, fabric: Fabric, tables: Tables, site: str) -> Fabric:
        """A site's connection with the links into it; that of a role is the site's own, others are shared."""
        found = fabric if isinstance(fabric, RoleFabric) else fabric.share(Fabric)
        found.arriving = here = cls(tables, site, fabric.logs.links_into(site))
        found.travelling = here.travel
        found.streams = False
        return found

    async def travel(self, subject: str) -> None:
        """Let a letter of the tuner to another site, or its answer, take as long as their link does."""
        match subject.split("."):
            case [_, "tune", other, *_]:
                links = (await self.tables.newest()).deployment.links
                await asyncio.sleep(links.between(self.site, other).delay_s)

    async def __call__(self, subject: str, found: list[Stored]) -> list[Stored]:
        """The messages that have come all the way, as soon as the first has."""
        if subject != self.subject:
            return found
        links = (await self.tables.newest()).deployment.links
        due_s = [each.time_s + links.between(each.subject.rsplit(".", 1)[1], self.site).delay_s for each in found]
        await asyncio.sleep(max(due_s[0] - time.time(), 0.0))
        late = next((at for at, due in enumerate(due_s) if due > time.time()), len(found))
        return found[: max(late, 1)]
