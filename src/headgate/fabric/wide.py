"""Reading logs of sites that have servers of their own, for who is connected to home.

Nobody at home dials a site: the site's relay is connected to home and reads there what it is asked for
(`headgate.fabric.hosting`). So a site behind a NAT is as visible as any other. What a parent has sent and the child has
not yet carried to its own server lies at the parent's, the rest at the child's: together they are the link's log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from nats.aio.client import Client

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.client import Fabric
from headgate.protocol.port import FabricError, LogInfo, NoLogError, Stored
from headgate.protocol.records import HostedLogs, HostList
from headgate.wire.frame import WireError
from headgate.wire.logs import Log, Logs

_KNOWN_S: Final = 2.0
_ANSWER_S: Final = 5.0
_KIND: Final = 1
_SITE: Final = 2


class WideFabric(Fabric):
    """As `Fabric`, and what lies at sites is asked of their relays. `near` are servers of sites that are read here."""

    def __init__(self, client: Client, logs: Logs) -> None:
        super().__init__(client, logs)
        self._hosts: frozenset[str] = frozenset()
        self._known_s = 0.0

    async def hosts(self) -> frozenset[str]:
        """The sites that have a server of their own."""
        if time.monotonic() - self._known_s > _KNOWN_S:
            stored: Stored | None = None
            with noted(FABRIC, "no deployment is here, so no site is a host", NoLogError):
                stored = await super().last(self.logs.state, self.logs.hosts)
            try:
                self._hosts = frozenset() if stored is None else frozenset(HostList.decode(stored.data).sites)
            except WireError as error:
                raise FabricError(f"which sites are hosts cannot be read in {self.logs.state.name}: {error}") from error
            self._known_s = time.monotonic()
        return self._hosts

    async def _places(self, subject: str) -> list[str]:
        """The sites whose servers have a subject, the one with its oldest messages first; `""` is home."""
        hosts, parts = await self.hosts(), subject.split(".")
        if not hosts or not self.logs.is_hosted(subject):
            return [""]
        ends = [parts[_SITE], *(parts[-1:] if parts[_KIND] == "site" and "in" in parts else ())]
        return list(dict.fromkeys(site if site in hosts else "" for site in ends))

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        for place in reversed(await self._places(subject)):
            found = await self._last(place, log, subject)
            if found is not None:
                return found
        return None

    async def _last(self, place: str, log: Log, subject: str) -> Stored | None:
        if not place:
            return await super().last(log, subject)
        return (await self._lasts(place, log, [subject])).get(subject)

    async def read(
        self, log: Log, subject: str, after: int, *, limit: int = 256, max_bytes: int = 16 << 20
    ) -> list[Stored]:
        """The next messages of a subject after a sequence; of a link, from each server that has some of it."""
        found: list[Stored] = []
        for place in await self._places(subject):
            room = limit - len(found)
            if room <= 0:
                break
            if not place:
                found += await super().read(log, subject, after, limit=room, max_bytes=max_bytes)
            elif place in self.near:
                found += await self.near[place].read(log, subject, after, limit=room, max_bytes=max_bytes)
            else:
                asked = HostedLogs(do="read", log=log.name, subjects=[subject], after=after, limit=room)
                found += [Stored(*each) for each in await self._ask(place, asked)]
        return found

    async def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last message of each of some subjects."""
        by_place: dict[str, list[str]] = {}
        for subject in subjects:
            by_place.setdefault((await self._places(subject))[-1], []).append(subject)
        found: dict[str, Stored] = {}
        for place, some in by_place.items():
            found |= await self._lasts(place, log, some) if place else await super().lasts(log, some)
        return found

    async def _lasts(self, place: str, log: Log, subjects: list[str]) -> dict[str, Stored]:
        if place in self.near:
            return await self.near[place].lasts(log, subjects)
        answer = await self._ask(place, HostedLogs(do="lasts", log=log.name, subjects=subjects))
        return {stored.subject: stored for stored in (Stored(*each) for each in answer)}

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages, on all servers."""
        found = await super().subjects(log, pattern)
        if self.logs.is_hosted(log.name):
            for site in sorted(await self.hosts()):
                asked = HostedLogs(do="counts", log=log.name, subjects=[pattern])
                for subject, count in (await self._ask(site, asked)).items():
                    found[subject] = found.get(subject, 0) + int(count)
        return found

    async def names(self, subject: str) -> list[str]:
        """The names of all logs that take messages of a subject, on all servers."""
        found = set(await super().names(subject))
        if self.logs.is_hosted(subject):
            for site in sorted(await self.hosts()):
                found |= set(await self._ask(site, HostedLogs(do="names", subjects=[subject])))
        return sorted(found)

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is, where its site has it."""
        site = log.name.split("_", 2)[-1]
        if not self.logs.is_hosted(log.name) or site not in await self.hosts():
            return await super().usage(log)
        found: Mapping[str, int] | None = await self._ask(site, HostedLogs(do="usage", log=log.name))
        return None if found is None else LogInfo(**found)

    async def _ask(self, site: str, asked: HostedLogs) -> Any:
        answer = await self.request(self.logs.hosted(site), asked.encode(), _ANSWER_S)
        try:
            return msgspec.msgpack.decode(answer)
        except msgspec.DecodeError as error:
            raise FabricError(f"the answer of {site!r} about {asked.log} cannot be read: {error}") from error
