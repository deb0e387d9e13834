"""Gives sites' relays and the Spark job their roles: what the plan lets each do is told to the server as it changes.

Before a revision is announced, every site has what it needs under it. A link of the plan before stays allowed until its
child has passed on everything that was committed before the change, or its parent has: their reports state that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError
from headgate.fabric.accounts import HOME, SYSTEM_FILE, Keys
from headgate.fabric.address import address_of
from headgate.fabric.connecting import join
from headgate.fabric.keys import credentials_text
from headgate.fabric.place import write_whole
from headgate.fabric.registry import Registry
from headgate.fabric.rolebook import Chapter, OldLink, RoleBook, write_chapter
from headgate.fabric.roled import RoleFabric
from headgate.fabric.rolekeys import credentials_of
from headgate.fabric.roles import SITE, Edge, Rights, job_rights, job_role, site_rights, subject_read
from headgate.fabric.serving import RequestCall
from headgate.protocol.published import load_snapshot
from headgate.protocol.reports import RelayReport
from headgate.relay.routes import build_routes
from headgate.relay.way_up import steps_up
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_OK: Final = 200
_LOOK_S: Final = 1.0
_MOST_MESSAGES: Final = 256
_MOST_BYTES: Final = 16 << 20


def edges_of(snapshot: Snapshot) -> frozenset[Edge]:
    """The links of a revision's plan, and those to standbys, which come into use without anybody being asked."""
    trees = snapshot.plan.trees if snapshot.plan else {}
    return frozenset(
        (name, above, child)
        for name, tree in trees.items()
        for child, parent in tree.parents.items()
        for above in (parent, *tree.standbys_of(child))
    )


def hosts_of(snapshot: Snapshot) -> frozenset[str]:
    """The sites of a revision that have a server of their own."""
    return frozenset(name for name, site in snapshot.deployment.sites.items() if site.is_host)


def serving_of(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """The sites that serve parts of gridded streams, with the numbers of the subscriptions that fill them."""
    found: dict[str, list[int]] = {}
    for name, each in snapshot.deployment.subscriptions.items():
        if each.serves_bytes_per_s is not None:
            found.setdefault(each.site, []).append(snapshot.subscription_ids[name])
    return {site: tuple(sorted(numbers)) for site, numbers in sorted(found.items())}


class Roles:
    """The roles of one deployment at the server of a directory."""

    def __init__(self, directory: Path, fabric: Fabric) -> None:
        """`fabric` is a connection of an operator."""
        self._directory = directory
        self._fabric = fabric
        self._logs = fabric.logs
        self._namespace = fabric.logs.namespace
        self._keys = Keys.open(directory)
        self._told: dict[str, tuple[Rights, Mapping[str, int]]] = {}
        self._snapshot: Snapshot | None = None
        self._old: dict[Edge, OldLink] = {}
        self._sites: tuple[str, ...] = ()
        self._jobs: tuple[str, ...] = ()
        self._made: set[str] = set()
        self._told_for: object = None
        self._system: Fabric | None = None
        self._changing = asyncio.Lock()
        self.revoked: Mapping[str, int] = Registry.read(directory).revoked

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that have an account."""
        return self._sites

    async def close(self) -> None:
        """End the connection by which the server is told."""
        if self._system is not None:
            await self._system.close()
            self._system = None

    async def admit(self, snapshot: Snapshot) -> None:
        """Let everybody do what a revision needs, before it is announced."""
        async with self._changing:
            if self._snapshot is None:
                await self._recall()
            before = frozenset() if self._snapshot is None else edges_of(self._snapshot)
            now = edges_of(snapshot)
            for edge in before - now:
                self._old.setdefault(edge, OldLink(*edge, revision=snapshot.revision))
            self._old = {edge: link for edge, link in self._old.items() if edge not in now}
            self._snapshot = snapshot
            for site in snapshot.deployment.sites:
                await self._make_logs(site)
            if self._basis() != self._told_for:
                await self._tell()

    def _basis(self) -> object:
        """What rights follow from: most revisions change nothing of it."""
        snapshot = self._snapshot
        assert snapshot is not None
        streams = snapshot.deployment.streams.values()
        sources = tuple((each.name, each.root, subject_read(each), each.source.format) for each in streams)
        sites, tuned = frozenset(snapshot.deployment.sites), snapshot.deployment.tuned
        upward = steps_up(snapshot), frozenset(each.name for each in streams if each.source.published)
        serving, jobs = serving_of(snapshot), tuple(snapshot.deployment.job_of(each.name) for each in streams)
        return (
            edges_of(snapshot),
            frozenset(self._old),
            sites,
            hosts_of(snapshot),
            sources,
            tuned,
            upward,
            serving,
            jobs,
        )

    async def _recall(self) -> None:
        """Links of earlier plans: as they were noted, else of every plan that is still published."""
        book = RoleBook.read(self._directory)
        chapter = book.chapters.get(self._namespace, Chapter())
        self._sites, self._jobs = chapter.sites, chapter.jobs
        self._old = {link.edge: link for link in chapter.old}
        logs = self._logs
        for subject in await self._fabric.subjects(logs.tables, logs.any_table) if not chapter.sites else ():
            revision = subject.rsplit(".", 1)[1]
            if revision.isdigit():
                try:
                    found = await load_snapshot(self._fabric, int(revision))
                except (HeadgateError, WireError) as error:
                    SERVICE.warning("what plan %s lets sites do is not known: %s", revision, error)
                    continue
                for edge in edges_of(found) if found else ():
                    newer = max(self._old[edge].revision if edge in self._old else 0, int(revision) + 1)
                    self._old[edge] = OldLink(*edge, revision=newer)

    async def _make_logs(self, site: str) -> None:
        if site not in self._made:
            await self._fabric.ensure(self._logs.site(site))
            await self._fabric.ensure(self._logs.inbox(site))
            self._made.add(site)

    async def _tell(self) -> None:
        """Tell the server what has changed: accounts of sites first, as `home` is to name them."""
        snapshot = self._snapshot
        assert snapshot is not None
        streams, edges = list(snapshot.deployment.streams.values()), [*edges_of(snapshot), *self._old]
        named = {*snapshot.deployment.sites, *(each for _, *ends in self._old for each in ends)}
        hosts, tuned = hosts_of(snapshot), snapshot.deployment.sites if snapshot.deployment.tuned else ()
        upward, serving = steps_up(snapshot), serving_of(snapshot)
        wanted = {
            f"{SITE} {site}": site_rights(
                self._logs, site, streams, sorted(edges), hosts, tuned, upward.get(site, ()), serving
            )
            for site in sorted(named)
        }
        held = {each: await self._fabric.names(each) for stream in streams if (each := subject_read(stream))}
        jobs = tuple(snapshot.deployment.jobs)
        for job in ("", *jobs):
            mine = [each for each in streams if snapshot.deployment.job_of(each.name) == job]
            wanted[job_role(job)] = job_rights(self._logs, mine, held, job)
        gone = {f"{SITE} {site}": Rights() for site in self._sites if site not in named}
        gone |= {job_role(job): Rights() for job in self._jobs if job not in jobs}
        for role, rights in {**gone, **wanted}.items():
            if self._told.get(role) != (rights, self.revoked):
                pair = self._keys.role(self._namespace, role)
                await self._state(self._keys.role_account(pair.public, role, rights, self.revoked))
                self._told[role] = (rights, self.revoked)
        sites, old = tuple(sorted(named)), tuple(self._old.values())
        book = await asyncio.to_thread(write_chapter, self._directory, self._namespace, Chapter(sites, old, jobs))
        if sites != self._sites or HOME not in self._told:
            await self._state(self._keys.account(HOME, self.revoked, book.answering(self._keys)))
            self._told[HOME] = (Rights(), self.revoked)
            self._sites = sites
        self._jobs = jobs
        self._told_for = self._basis()

    async def _state(self, statement: str) -> None:
        if self._system is None:
            self._system = await Fabric.connect(
                address_of(self._directory), self._logs, user_credentials=str(self._directory / SYSTEM_FILE)
            )
        answer = json.loads(await self._system.request(_UPDATE, statement.encode()))
        if answer.get("data", {}).get("code") != _OK:
            raise FabricError(f"the server did not take what a role may do: {answer.get('error')}")

    async def revoke(self, revoked: Mapping[str, int]) -> None:
        """Put keys out, in every role at once."""
        async with self._changing:
            self.revoked = dict(revoked)
            if self._snapshot is not None:
                self._told.pop(HOME, None)
                await self._tell()

    async def connect(self, url: str, site: str, **options: Any) -> RoleFabric:
        """A connection as the relay of a site, with credentials that are kept in memory only."""
        credentials = credentials_of(self._keys, self._namespace, f"{SITE} {site}")
        return await join(url, self._logs, credentials, **options)

    def job_file(self, job: str = "") -> Path:
        """The credentials of a Spark job, which its workers read too; written anew at every start."""
        credentials = credentials_of(self._keys, self._namespace, job_role(job))
        path = self._directory / (f"job-{self._namespace}.{job}.creds" if job else f"job-{self._namespace}.creds")
        write_whole(path, credentials_text(credentials.statement, credentials.pair.seed))
        return path

    async def run(self) -> None:
        """Read for parents what they have sent, and take links of earlier plans back when they are settled."""
        end = await self._fabric.receive(self._logs.linked("*", "*", "*"), self._read_link)
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                if self._old:
                    try:
                        await self._settle()
                    except FabricError as error:
                        SERVICE.debug("links of earlier plans are looked at again: %s", error)
        finally:
            await end()

    async def _settle(self) -> None:
        async with self._changing:
            assert self._snapshot is not None
            left = [await self._looked_at(link) for link in self._old.values()]
            old = {link.edge: link for link in left if link is not None}
            if old != self._old:
                self._old = old
                await self._tell()

    async def _looked_at(self, link: OldLink) -> OldLink | None:
        """A link of an earlier plan as it is known now, None where nothing can take it any more."""
        logs, fabric, stream = self._logs, self._fabric, link.stream
        assert self._snapshot is not None
        if stream not in self._snapshot.deployment.streams:
            return None
        if link.upto is None:
            stored = await fabric.last(logs.root(stream), logs.commit(stream))
            if stored is None:
                return None  # nothing was ever committed
            try:
                manifest = fabric.codec.manifest(stored.data)
            except WireError:
                return link
            return link if manifest.version < link.revision else replace(link, upto=manifest.upto)
        parent = await self._report(link.parent)
        settled = -1 if parent is None else parent.settled.get(stream, (-1, 0))[0]
        if settled >= link.upto:
            return None
        routes = build_routes(self._snapshot, link.parent, stream)
        if routes is not None and routes.targets:
            return link  # it gets everything up to there, and then says so
        child = await self._report(link.child)
        passed = child is not None and child.settled.get(stream, (-1, 0))[0] >= link.upto
        return None if passed and await self._has_nothing(link, settled) else link

    async def _report(self, site: str) -> RelayReport | None:
        stored = await self._fabric.last(self._logs.state, self._logs.stats("relay", site))
        return None if stored is None else self._fabric.quarantine.take(self._logs.state, stored, RelayReport.decode)

    async def _has_nothing(self, link: OldLink, settled: int) -> bool:
        """Whether a parent that is no longer in the tree has passed on all that was sent to it.

        A relay that is started again looks up what it has sent on every link of what it has not stated to be settled.
        """
        assert self._snapshot is not None
        fabric, logs = self._fabric, self._logs
        if link.parent not in self._snapshot.deployment.sites:
            return True
        log = logs.site(link.parent)
        for subject in await fabric.subjects(log, logs.links_of(link.parent, link.stream)):
            stored = await fabric.last(log, subject)
            try:
                if stored is not None and fabric.codec.coverage(stored.data)[1] > settled:
                    return False
            except WireError:
                return False  # the relay asks for it again
        return True

    async def _read_link(self, call: RequestCall) -> None:
        """Answer a parent with what it has sent to a child: the subject says whose link it is."""
        _, _, child, stream, parent = call.subject.split(".")
        logs, found = self._logs, []
        try:
            asked = json.loads(call.data)
            limits = {"limit": min(int(asked["batch"]), _MOST_MESSAGES), "max_bytes": _MOST_BYTES}
            found = await self._fabric.read(
                logs.site(child), logs.link(parent, child, stream), int(asked["seq"]) - 1, **limits
            )
        except (HeadgateError, ValueError, KeyError, TypeError) as error:
            await call.send(b"", {"Status": "400", "Description": " ".join(str(error).split())[:300]})
            return
        for stored in found:
            await call.send(stored.data, stored.headers())
        await call.send(b"", {"Status": "204"})
