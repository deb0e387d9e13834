"""Carries a site's blocks from the servers of its parents to the site's own log.

The log of a link lies with its sender (decision 087). A site whose parent is on another server reads that log over the
link, stores every message in its own site log, and then purges it at the parent's. A message that was carried twice,
as after a crash between the two steps, covers nothing new: it is recognised by the end of what it covers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from headgate.diagnostics import noted, site_log
from headgate.fabric import Fabric, FabricError, FencedError, cancel_all
from headgate.fabric.connecting import join
from headgate.fabric.keys import KeyPair
from headgate.fabric.placed import HostFabric
from headgate.fabric.roled import RoleCredentials, RoleFabric
from headgate.fabric.streaming import NoStreamError
from headgate.model import Deployment
from headgate.protocol.port import Stored
from headgate.protocol.records import Entered, EntryRequest
from headgate.relay.tables import Tables
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

_AGAIN_S: Final = 0.5
_BATCH: Final = 64
_LOOK_S: Final = 0.5
_LOST_S: Final = 3.0
HOME: Final = ""
"""The place of sites that have no server of their own."""


def place_of(deployment: Deployment, site: str) -> str:
    """The site at whose server a site's logs are, or home."""
    found = deployment.sites.get(site)
    return site if found is not None and found.is_host else HOME


class Courier:
    """Carries what lies for a site in one server's log of its links."""

    def __init__(self, site: str, source: Fabric, own: Fabric) -> None:
        self._site = site
        self._source = source
        self._own = own
        self._log = own.logs.site(site)
        self._subject = own.logs.links_into(site)
        self._ends: dict[str, tuple[int, int]] = {}
        self._stream = source.stream(self._log, self._subject)
        self._wake = asyncio.Event()
        self._ends_there: dict[str, int] = {}
        self.messages = 0

    async def run(self) -> None:
        """Carry until cancelled."""
        purging: asyncio.Task[None] | None = None
        place, end = 0, await self._source.listen(self._subject, self._wake)
        try:
            while True:
                batch = await self._next(place)
                for stored in batch:
                    await self._carry(stored)
                place = batch[-1].sequence
                self._ends_there |= {each.subject: each.sequence for each in batch}
                if purging is None or purging.done():
                    purging = asyncio.create_task(self._purge(), name=f"purge of {self._log.name}")
        finally:
            await cancel_all([purging] if purging is not None else [])
            await self._stream.close()
            await end()

    async def _purge(self) -> None:
        """Delete at the sender's what was stored here; the last message stays, as its sender needs it.

        Nobody waits for it: its answer comes behind the messages that are on their way. What fails is done next time.
        """
        while self._ends_there:
            subject, sequence = self._ends_there.popitem()
            with noted(site_log(self._site), "what was carried is purged later", FabricError):
                await self._source.purge(self._log, subject, sequence)

    async def _next(self, after: int) -> list[Stored]:
        if self._source.streams:
            try:
                return await self._source.streamed(self._stream, self._log, self._subject, after, _BATCH)
            except NoStreamError as error:
                site_log(self._site).debug("%s", error)
        return await self._source.awaited(self._log, self._subject, after, self._wake, limit=_BATCH)

    async def _carry(self, stored: Stored) -> None:
        """Store a message here, if it covers anything that is not here yet; a full log is waited for."""
        while True:
            upto, last = self._ends.get(stored.subject) or await self._end_here(stored.subject)
            covers = self._covers(stored)
            if covers is not None and covers <= upto:
                return
            try:
                sequence = await self._own.carry(stored, last)
            except FencedError:
                self._ends.pop(stored.subject, None)
            except FabricError as error:
                site_log(self._site).debug("a block is stored again: %s", error)
                self._ends.pop(stored.subject, None)
                await asyncio.sleep(_AGAIN_S)
            else:
                self._ends[stored.subject] = (upto if covers is None else covers, sequence)
                self.messages += 1
                return

    async def _end_here(self, subject: str) -> tuple[int, int]:
        """The end of what the last message of a subject covers here, and its place."""
        stored = await self._own.last(self._log, subject)
        if stored is None:
            return -1, 0
        covers = self._covers(stored)
        return -1 if covers is None else covers, stored.sequence

    def _covers(self, stored: Stored) -> int | None:
        """The end of what a message covers; None where it cannot be read, which the relay sees to."""
        try:
            return self._own.codec.coverage(stored.data)[1]
        except WireError:
            return None


class Couriers:
    """All couriers of one site: for every server that has logs of its links, but its own."""

    def __init__(self, fabric: Fabric, site: str, tables: Tables, options: Mapping[str, Any] | None = None) -> None:
        """`options` are those of connections to servers of parents."""
        self._fabric = fabric
        self._home = fabric.home if isinstance(fabric, HostFabric) else fabric
        self._site = site
        self.tables = tables
        self._options = dict(options or {})
        if isinstance(fabric, HostFabric) and isinstance(self._home, RoleFabric):
            self._home.opener = self._open_at_home
        self.standbys: Callable[[], set[str]] = set
        """Who serves this site at the moment in place of a parent, or besides it."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.has_input = asyncio.Event()
        """Set as soon as there is a stream that rows are published into."""
        self._servers: dict[str, Fabric] = {}
        self.carried: dict[str, int] = {}
        """By the site of a server, how many messages came from it."""
        self.problems: dict[str, str] = {}
        """By the site of a server that cannot be read now, why."""

    def server_of(self, place: str) -> Fabric:
        """The connection to another site's server, or to home; it is opened where there is none."""
        if place == HOME:
            return self._home
        self._start({place})
        if place not in self._servers:
            raise FabricError(f"the server of {place} is not reached: {self.problems.get(place, 'not yet')}")
        return self._servers[place]

    @property
    def servers(self) -> dict[str, Fabric]:
        """The connections to servers that logs of links into this site are read from, by site."""
        return dict(self._servers)

    async def run(self) -> None:
        """Carry until cancelled. A server of an earlier plan is read on, as rows may still come from there."""
        standing_in = asyncio.create_task(self._follow_standbys())
        try:
            async for snapshot in self.tables.heads():
                self._start(await self._places(snapshot))
                if any(stream.source.published for stream in snapshot.deployment.streams.values()):
                    self.has_input.set()
        finally:
            await cancel_all([standing_in, *self._tasks.values()])

    async def _follow_standbys(self) -> None:
        """Carry also from the servers of standbys, once they serve this site: before that nobody connects to them."""
        while True:
            await asyncio.sleep(_LOOK_S)
            in_use = self.standbys()
            if in_use:
                deployment = (await self.tables.newest()).deployment
                self._start({place_of(deployment, each) for each in in_use} - {place_of(deployment, self._site)})

    def _start(self, places: set[str]) -> None:
        for place in places - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._keep(place), name=f"courier from {place}")

    async def _places(self, snapshot: Snapshot) -> set[str]:
        """The servers where parents of this site are, and have been as far as its log knows."""
        deployment, trees = snapshot.deployment, snapshot.plan.trees if snapshot.plan else {}
        if not any(site.is_host for site in deployment.sites.values()):
            return set()
        parents = {tree.parents[self._site] for tree in trees.values() if self._site in tree.parents}
        if not self._tasks:
            log = self._fabric.logs.site(self._site)
            known = await self._fabric.subjects(log, self._fabric.logs.links_into(self._site))
            parents |= {subject.rsplit(".", 1)[1] for subject in known}
        return {place_of(deployment, each) for each in parents} - {place_of(deployment, self._site)}

    async def _keep(self, place: str) -> None:
        """Carry from one server, connecting again whenever that fails."""
        log = site_log(self._site)
        while True:
            source: Fabric | None = None
            try:
                source = self._home if place == HOME else await self._enter(place)
                self.problems.pop(place, None)
                self._servers[place] = source
                await self._carry_from(source, place)
            except (FabricError, WireError) as error:
                if place not in self.problems:
                    log.warning("what %s sends cannot be read now: %s", place or "home", error)
                self.problems[place] = str(error)
                await asyncio.sleep(_AGAIN_S)
            finally:
                self._servers.pop(place, None)
                if source is not None and source is not self._home:
                    with noted(log, "the server had ended before its connection", OSError):
                        await source.close()

    async def _carry_from(self, source: Fabric, place: str) -> None:
        """Carry until that fails, or the server has not let this site in for a while: its keys may be others now."""
        courier = Courier(self._site, source, self._fabric)
        work = asyncio.create_task(courier.run())
        silent_s = 0.0
        try:
            while not work.done() and silent_s < _LOST_S:
                await asyncio.wait([work], timeout=_LOOK_S)
                silent_s = 0.0 if source.connected else silent_s + _LOOK_S
                self.carried[place] = courier.messages
            if work.done():
                await work
            raise FabricError(f"the server has not answered for {_LOST_S:g} s")
        finally:
            await cancel_all([work])

    async def _enter(self, parent: str) -> Fabric:
        """A connection to the server of a parent, which is asked through home to let this site in."""
        address = (await self.tables.newest()).deployment.sites[parent].dialled_at
        if address is None:
            raise FabricError(
                f"nobody can dial the server of {parent!r}, so it can have no children",
                hint=f"give it an address (`sites: {parent}: {{nats: nats://HOST:PORT}}`)",
            )
        logs, pair = self._fabric.logs, KeyPair.new("user")
        asked = EntryRequest(key=pair.public).encode()
        answer = Entered.decode(await self._home.request(logs.entered(parent, self._site), asked))
        options = dict(self._options)
        if answer.fingerprint:
            options["tls_fingerprint"] = answer.fingerprint
        source = await join(address, logs, RoleCredentials(answer.statement, pair), **options)
        source.opener = partial(self._open, parent)
        return source

    async def _open_at_home(self, after: int) -> str:
        """Have the server of home send this site's blocks behind a place, as they are stored."""
        asked = json.dumps({"after": after}).encode()
        answer = json.loads(await self._home.request(self._fabric.logs.joined(self._site), asked))
        if "reader" not in answer:
            raise FabricError(str(answer.get("error")))
        return str(answer["reader"])

    async def _open(self, parent: str, after: int) -> str:
        """Have the server of a parent send this site's blocks behind a place, as they are stored."""
        asked = EntryRequest(after=after).encode()
        answer = await self._home.request(self._fabric.logs.entered(parent, self._site), asked)
        return Entered.decode(answer).reader
