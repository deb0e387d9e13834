"""Requests to a running deployment: subscribe, move, refine, unsubscribe, set context, report.

A change is one revision.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from headgate.catalog import Catalog, parse_subscription
from headgate.errors import HeadgateError, nearest
from headgate.fabric import Fabric, LogFullError
from headgate.model import Plan, Subscription, Tree
from headgate.model.roots import member_name, members_named, root_region
from headgate.planning import ProblemError
from headgate.planning.covering import Comparisons
from headgate.planning.joined import joined
from headgate.planning.measured import Figures
from headgate.protocol.acks import read_tally
from headgate.relay.tables import publish_snapshot
from headgate.service.contexts import Contexts
from headgate.service.room import NoRoomError, Room
from headgate.wire.snapshot import Snapshot

Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def extend_plan(snapshot: Snapshot, known: Comparisons | None = None, figures: Figures | None = None) -> Plan | None:
    """The plan with every subscribing site in its stream's tree, None when nothing is missing.

    A site that nobody planned for gets the parent that is best by what was measured so far and what the deployment
    declares of the rest, and nobody else moves. Whoever extends one plan after another keeps what is `known` of how
    subscriptions compare.
    """
    missing = _missing(snapshot)
    if missing is None:
        return None
    if snapshot.plan is not None:
        with contextlib.suppress(ProblemError):  # what cannot be planned is served by the root
            problem = (figures or Figures()).problem(snapshot.deployment, snapshot.class_ids, known)
            return joined(problem, snapshot.plan, missing)
    trees = dict(snapshot.plan.trees) if snapshot.plan else {}
    for name, stream in snapshot.deployment.streams.items():
        parents = trees[name].parents if name in trees else {}
        added = {site: stream.root for place, site in missing if place == name}
        trees[name] = Tree(name, stream.root, {**parents, **added})
    return Plan(trees)


def _missing(snapshot: Snapshot) -> list[tuple[str, str]] | None:
    """Streams and sites that subscribe and are in no tree; None when there are none and every stream has a tree."""
    trees = snapshot.plan.trees if snapshot.plan else {}
    streams = snapshot.deployment.streams
    wanted = {(each.stream, each.site) for each in snapshot.deployment.subscriptions.values() if each.stream in streams}
    served = {(name, site) for name, tree in trees.items() for site in tree.parents}
    missing = wanted - served - {(name, stream.root) for name, stream in streams.items()}
    return sorted(missing) if missing or streams.keys() - trees.keys() else None


class Control:
    """Answers requests with the catalog. One deployment has one of these."""

    def __init__(self, fabric: Fabric, catalog: Catalog, report: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._fabric = fabric
        self._catalog = catalog
        self._report = report
        self._known = Comparisons()
        self.figures: Callable[[], Figures] = Figures
        """What was measured by now; nothing unless somebody measures."""
        self.contexts = Contexts(fabric, catalog)
        self.room = Room(fabric)
        self._changing = asyncio.Lock()
        self._publishing = asyncio.Lock()

    async def serve(self) -> None:
        """Start answering."""
        verbs: dict[str, Handler] = {
            "subscribe": self._subscribe,
            "move": self._move,
            "unsubscribe": self._unsubscribe,
            "context": self._context,
            "refine": self._refine,
            "status": self._status,
        }
        for verb, handler in verbs.items():
            await self._fabric.serve(self._fabric.logs.control(verb), _answering(handler))

    async def publish(self) -> Snapshot:
        """Make sure that every subscribing site is planned for, and publish the newest revision.

        One at a time: the newest announced revision never goes back.
        """
        async with self._publishing:
            return await self._publish()

    async def _publish(self) -> Snapshot:
        snapshot = self._catalog.snapshot()
        plan = await asyncio.to_thread(extend_plan, snapshot, self._known, self.figures())
        if plan is not None:
            self._catalog.set_plan(plan)
            snapshot = self._catalog.snapshot()
        for stream in snapshot.deployment.streams:
            await self._fabric.ensure(self._fabric.logs.root(stream))
        await self.contexts.follow(snapshot)
        try:
            await publish_snapshot(self._fabric, snapshot)
        except LogFullError as error:
            raise self.room.error() from error
        await self.room.refresh()
        return snapshot

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """A change of the catalog, one at a time. It starts from the values that hold, also when it is refused."""
        async with self._changing:
            before = self.contexts.snapshot.revision
            self.contexts.fold()
            try:
                yield
            except HeadgateError:
                if self.contexts.snapshot.revision != before:
                    await self.publish()
                raise

    async def _subscribe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._change():
            snapshot = self._catalog.snapshot()
            name = str(request["name"])
            wanted = parse_subscription(name, request["subscription"], snapshot.deployment)
            for subscription in wanted:
                if request.get("change") and subscription.name in snapshot.subscription_ids:
                    stay = await self._reading(snapshot.subscription_ids[subscription.name])
                    self._catalog.change(subscription, stay)
                else:
                    self._catalog.subscribe(subscription)
            if request.get("change"):
                for gone in {*_members(snapshot, name)} - {subscription.name for subscription in wanted}:
                    self._catalog.unsubscribe(gone)  # a root that has none of its rows any more
            published = await self.publish()
        ids = {subscription.name: published.subscription_ids[subscription.name] for subscription in wanted}
        return {"revision": published.revision, **({"id": ids[name]} if name in ids else {"ids": ids})}

    async def _move(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._change():
            snapshot = self._catalog.snapshot()
            for name in _named(snapshot, str(request["name"])):
                known = snapshot.subscription_ids.get(name)
                self._catalog.move(name, str(request["site"]), 0 if known is None else await self._reading(known))
            return {"revision": (await self.publish()).revision}

    async def _reading(self, subscription: int) -> int:
        """The stay that a subscription's reader has come to."""
        return (await read_tally(self._fabric, subscription)).stay

    async def _unsubscribe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        async with self._change():
            for name in _named(self._catalog.snapshot(), str(request["name"])):
                self._catalog.unsubscribe(name)
            return {"revision": (await self.publish()).revision}

    async def _context(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Values of one subscription (`name`, `values`), or of several (`contexts` by name)."""
        given = request["contexts"] if "contexts" in request else {str(request["name"]): request["values"]}
        snapshot = self.contexts.snapshot
        return await self.set_contexts({each: given[name] for name in given for each in _named(snapshot, name)})

    async def set_contexts(self, contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Set values of subscriptions, all or none; the place from which they hold, and the catalog's revision."""
        async with self._changing:
            place = await self.contexts.set(contexts)
        if place is None or self.contexts.due:
            with contextlib.suppress(*(() if place is None else (NoRoomError,))):  # the log has them, it can wait
                async with self._change():
                    for name, values in contexts.items() if place is None else ():
                        self._catalog.set_context(name, values)
                    await self.publish()
        return {"revision": self.contexts.snapshot.revision, "place": place or self.contexts.place}

    async def _refine(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is named of a subscription's resolution; the answer says what it now lacks of the past.

        With `add` the subscription stays as it is, and what it lacks becomes one more of that name, from the earliest
        row on that the log holds.
        """
        from headgate.grid.resolution import Resolution, parse_resolution

        async with self._change():
            snapshot = self._catalog.snapshot()
            missing: list[dict[str, Any]] = []
            added: list[str] = []
            for name in _named(snapshot, str(request["name"])):
                if name not in snapshot.deployment.subscriptions:
                    close = nearest(name, snapshot.deployment.subscriptions)
                    hint = f"did you mean {close!r}?" if close else None
                    raise HeadgateError(f"unknown subscription {name!r}", hint=hint)
                before = snapshot.deployment.subscriptions[name]
                given = parse_resolution({**(before.resolution or {}), **request["resolution"]})
                held = Resolution() if before.resolution is None else parse_resolution(before.resolution)
                missing = [part.document for part in given.missing_from(held)]
                if request.get("add") is None:
                    self._catalog.change(replace(before, resolution=given.document or None))
                else:
                    added += self._add_parts(snapshot, before, str(request["add"]), missing)
            return {"revision": (await self.publish()).revision, "missing": missing, "added": added}

    def _add_parts(
        self, snapshot: Snapshot, before: Subscription, name: str, missing: list[dict[str, Any]]
    ) -> list[str]:
        """Subscribe to what a subscription lacks of a resolution: one subscription, or two for space and time."""
        if not missing:
            raise HeadgateError(f"{before.name!r} lacks nothing of that resolution", hint="name a finer one")
        root = root_region(snapshot.deployment.streams[before.stream])
        names = [name if number == 1 else f"{name}-{number}" for number in range(1, len(missing) + 1)]
        found = [each if root is None else member_name(each, root.root) for each in names]
        for each, part in zip(found, missing, strict=True):
            self._catalog.subscribe(
                replace(before, name=each, resolution=part or None, start="earliest", stay=0, left=())
            )
        return found

    async def _status(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return await self._report()


def _members(snapshot: Snapshot, name: str) -> list[str]:
    return members_named(snapshot.deployment.streams, snapshot.subscription_ids, name)


def _named(snapshot: Snapshot, name: str) -> list[str]:
    """The subscriptions that a name stands for: its own, or those at the roots of its stream."""
    return [name] if name in snapshot.subscription_ids else _members(snapshot, name) or [name]


def _answering(handler: Handler) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(data: bytes) -> bytes:
        try:
            document = await handler(json.loads(data) if data else {})
        except HeadgateError as error:
            document = {"error": str(error)}
        except (KeyError, TypeError, ValueError) as error:
            document = {"error": f"the request cannot be read: {error!r}"}
        return json.dumps(document).encode()

    return answer
