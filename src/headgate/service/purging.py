"""Deleting versions of the catalog that nothing names any more, and making room where only the past names them.

A version is deleted when it is not among the newest ones, nothing has named it in two looks in a row (`named`), and
nothing names it after the intention to delete it was announced: a driver that pins a version and a relay that takes a
range in again look for that announcement after they have stated what they use. A version that another one is a change
of is named by it. Newer ones go first, and the first message of a version before its parts, so that whatever is there
can be read and one that is half deleted is gone; the rest of it goes another time. There is no other state: whoever is
killed here leaves versions that nobody needs.

Where the log is more than half full, versions that only the settled past of root logs names are given up: the relays of
the roots are told from where on to keep it (`headgate.relay.root_log`), and their tables go when they have done so.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from headgate import faults
from headgate.errors import HeadgateError
from headgate.model.start import NOW
from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import LogPort, MachinePort
from headgate.protocol.published import head_revision
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.records import Oldest, Purging
from headgate.protocol.reports import TablesReport
from headgate.relay.tables import MachineTables, TableCache
from headgate.service.named_versions import (
    Named,
    NamedInboxes,
    Upstream,
    covered,
    holders,
    read_holds,
    read_inboxes,
    read_pins,
)
from headgate.service.tables_room import TablesRoom
from headgate.wire.logs import Logs

_END: Final = 1 << 62
_MOST_ASKED: Final = 64


@dataclass(frozen=True, slots=True)
class TableRules:
    """When versions are deleted: looked at every `every_s`, from the part `start` of `limit_bytes` on.

    The newest `keep` always stay. Past the part `squeeze` the past of root logs is given up, and that of a root log
    which is filled up to the part `full` as far as every site has passed it on. At most `most` versions
    are deleted at a time. Inboxes are looked through again after `rest` times as long as it took. An ended
    subscription's unread inbox keeps its versions for `ended_s`.
    """

    keep: int = 4
    every_s: float = 10.0
    start: float = 1 / 8
    squeeze: float = 1 / 2
    full: float = 0.9
    limit_bytes: int = 1 << 29
    most: int = 512
    rest: float = 20.0
    ended_s: float = 3600.0


class Purger:
    """Owns the log of tables. One deployment has one of these."""

    def __init__(self, port: LogPort, tables: TableCache, room: TablesRoom, rules: TableRules) -> None:
        self._port = port
        self._tables = tables
        self._room = room
        self._rules = rules
        self._upstream = Upstream(port)
        self._unnamed: frozenset[int] = frozenset()
        self._inboxes = NamedInboxes()
        self._look_s = 0.0
        self._fresh = False
        self._known: dict[tuple[int, str, str], bool] = {}
        self._bases: dict[int, int | None] = {}
        self._asked = 0
        self.purged = 0

    async def run(self) -> None:
        """Look from time to time until cancelled."""
        while True:
            await self._port.sleep(self._rules.every_s)
            try:
                await self.look()
            except (HeadgateError, ValueError, TypeError, KeyError) as error:  # nothing goes: the next look counts
                self._room.holder = f"a log that cannot be read: {error}"
                self._room.fix = "is it one of Headgate's, and the server up?"

    async def look(self) -> list[int]:
        """Look once: delete what may go, say what holds the oldest version; returns what was deleted."""
        await self._room.refresh(self._port)
        stored, head = await self._stored(), await head_revision(self._port) or 0
        announced = sorted(version for version in stored if version <= head)
        self._known = {key: served for key, served in self._known.items() if key[0] in stored}
        self._asked = 0
        gone: list[int] = []
        squeezed: dict[str, int] = {}
        crowded = self._room.bytes >= self._rules.start * self._room.limit and len(announced) > self._rules.keep
        full = await self._full()
        named = await self._upstream.read() if crowded or full else None
        if named is not None and crowded:
            gone = await self._delete(announced, stored, *named)
        if named is not None:
            squeezed = await self._squeeze(announced, full, *named)
        if not crowded:
            self._room.holder = self._room.fix = ""
        await self._room.refresh(self._port)
        left = [version for version in announced if version not in gone]
        await self._report(left, squeezed)
        return gone

    async def _stored(self) -> dict[int, list[str]]:
        """The messages of each version, the first one first."""
        logs = self._port.logs
        found: dict[int, list[str]] = {}
        for subject in sorted(await self._port.subjects(logs.tables, f"{logs.namespace}.tables.*"), key=len):
            version = subject.rsplit(".", 1)[1].partition("-")[0]
            if version.isdigit():  # whatever else somebody has put there is no version
                found.setdefault(int(version), []).append(subject)
        return found

    async def _delete(
        self, announced: list[int], stored: dict[int, list[str]], roots: list[Named], others: list[Named]
    ) -> list[int]:
        """Delete what nothing has named twice in a row."""
        await self._read_bases(stored)
        old = announced[: -self._rules.keep]
        unnamed = self._apart_from(covered([*roots, *others], old), old, stored)
        if unnamed or self._room.bytes >= self._rules.squeeze * self._room.limit:
            await self._read_inboxes()
        unnamed = self._apart_from(covered(self._inboxes.names, unnamed), unnamed, stored)
        ready = [version for version in unnamed if version in self._unnamed] if self._fresh else []
        self._unnamed = frozenset(unnamed)
        gone = await self._delete_unnamed(ready[: self._rules.most], stored) if ready else []
        self._say([version for version in announced if version not in gone], [*others, *self._inboxes.names, *roots])
        return gone

    async def _read_bases(self, stored: dict[int, list[str]]) -> None:
        """Learn of every version whether it is a change of another one."""
        logs = self._port.logs
        self._bases = {version: base for version, base in self._bases.items() if version in stored}
        for version in stored.keys() - self._bases.keys():
            first = await self._port.last(logs.tables, logs.table(version))
            self._bases[version] = None if first is None else self._port.codec.base(first.data)

    def _apart_from(self, named: AbstractSet[int], old: list[int], stored: Iterable[int]) -> list[int]:
        """Those of the old versions that are not named, and that nothing which stays is a change of."""
        staying = {version for version in stored if version not in old} | named
        for version in sorted(staying, reverse=True):
            base = self._bases.get(version)
            while base is not None and base not in staying:
                staying.add(base)
                base = self._bases.get(base)
        return [version for version in old if version not in staying]

    async def _read_inboxes(self) -> None:
        """Read what inboxes name, if the last time is long enough ago."""
        self._fresh = self._port.now >= self._look_s
        if self._fresh:
            began = self._port.now
            head = await self._tables.newest()
            self._inboxes = await read_inboxes(self._port, head, self._rules.ended_s)
            now = self._port.now
            self._look_s = now + self._rules.rest * (now - began)

    async def _delete_unnamed(self, ready: list[int], stored: dict[int, list[str]]) -> list[int]:
        """Announce what goes, look whether somebody has begun to use it, and delete the rest."""
        logs = self._port.logs
        await self._port.publish(logs.purging, Purging(versions=ready).encode())
        used = covered([*await read_pins(self._port), *await read_holds(self._port)], ready)
        gone = self._apart_from(used, ready, stored)
        for version in reversed(gone):
            for subject in stored[version]:
                await self._port.purge(logs.tables, subject, _END)
                faults.reach("tables.deleting")
        self.purged += len(gone)
        return gone

    async def _full(self) -> list[str]:
        """The streams whose root logs are nearly full."""
        logs = self._port.logs
        names = await self._port.names(f"{logs.namespace}.root.*.commit")
        streams = [name.removeprefix(logs.root("x").name[:-1]) for name in names]
        used = {stream: await self._port.usage(logs.root(stream)) for stream in streams}
        most = self._rules.full * logs.root("x").max_bytes
        return [stream for stream, usage in used.items() if usage is not None and usage.bytes >= most]

    async def _squeeze(
        self, announced: list[int], full: list[str], roots: list[Named], others: list[Named]
    ) -> dict[str, int]:
        """Tell the roots to give up the past of versions that nothing else names, as far as the log is too full.

        Root logs that are nearly full may give up what every site has passed on. Not while a subscription waits for all
        of that past: it and the ledger have to count the same.
        """
        wanted = self._rules.squeeze * self._room.limit
        if (self._room.bytes <= wanted and not full) or await self._awaited():
            return {}
        past: set[int] = set()
        if self._room.bytes > wanted:
            kept = max(self._rules.keep, int(len(announced) * wanted / self._room.bytes))
            old = announced[:-kept]
            past = covered(roots, old) - covered([*others, *self._inboxes.names], old)
        newest = max(past, default=-1)
        places = {stream: (await self._forgettable(stream, newest))[0] for stream in self._upstream.roots}
        places = {stream: place for stream, place in places.items() if place}
        passed = {stream: (await self._forgettable(stream, max(announced)))[1] for stream in full}
        if past or full:
            request = Oldest(time_ms=int(self._port.wall_s * 1000), places=places, passed=passed)
            await self._port.publish(self._port.logs.oldest, request.encode())
        return places

    async def _forgettable(self, stream: str, newest: int) -> tuple[int, int]:
        """What every site has passed on of all that it was to get: the place behind whole versions, and the last row.

        A site may ask again for what it has not passed on, and a reader for what lies in the log of a site that is
        gone. One that has had nothing yet has passed nothing on: its first block may still be on its way. A site that
        was in nobody's tree will ask as well, but nothing there is owed to it.
        """
        place = reached = 0
        deployment = (await self._tables.newest()).deployment
        passed = dict.fromkeys(deployment.sites, -1)
        passed |= {site: mark for (name, site), mark in self._upstream.passed.items() if name == stream}
        if stream in deployment.streams:
            passed.pop(deployment.streams[stream].root, None)  # it looks itself before it forgets
        for version, (last, upto) in sorted(self._upstream.roots[stream].lasts.items()):
            if version > newest:
                break
            behind = [
                mark for site, mark in passed.items() if mark < upto and await self._served(version, site, stream)
            ]
            if behind:
                reached = max(reached, min(behind))
                break
            place, reached = last + 1, upto
        return place, reached

    async def _served(self, version: int, site: str, stream: str) -> bool:
        """Whether a site was to pass anything on under a version; what is not known yet may wait for another look."""
        key = (version, site, stream)
        if key not in self._known:
            if self._asked >= _MOST_ASKED:
                return True
            self._asked += 1
            routes = await self._tables.routes(*key)
            self._known[key] = routes is not None and bool(routes.targets)
        return self._known[key]

    async def _awaited(self) -> bool:
        """Whether a subscription that starts in the past has not got its first message yet."""
        head = await self._tables.newest()
        return any(
            each.start != NOW and head.subscription_ids[name] not in self._inboxes.subscriptions
            for name, each in head.deployment.subscriptions.items()
        )

    def _say(self, announced: list[int], names: list[Named]) -> None:
        """Remember what holds the oldest version, if it is not one of the newest."""
        found = holders(names, announced[0]) if len(announced) > self._rules.keep else []
        self._room.holder, self._room.fix = (found[0].who, found[0].fix) if found else ("", "")

    async def _report(self, versions: list[int], squeezed: dict[str, int]) -> None:
        room = self._room
        report = TablesReport(
            time_ms=int(self._port.wall_s * 1000),
            bytes=room.bytes,
            limit_bytes=room.limit,
            versions=len(versions),
            oldest=versions[0] if versions else None,
            newest=versions[-1] if versions else None,
            revision_bytes=room.size or None,
            held_by=room.holder or None,
            fix=room.fix or None,
            purged=self.purged,
            squeezed=squeezed,
            full=room.short,
        )
        await self._port.publish(self._port.logs.stats("tables", "_"), report.encode())


class PurgerMachine(Machine):
    """The purger of a deployment as a machine."""

    def __init__(
        self,
        room: TablesRoom,
        rules: TableRules,
        logs: Logs,
        *,
        max_payload: int = 8 << 20,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__("tables")
        port = MachinePort(self, logs, max_payload, codec, quarantine)
        self.purger = Purger(port, MachineTables(port), room, rules)
        self.spawn(self.purger.run(), "look")
