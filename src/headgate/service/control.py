"""Requests to a running deployment: subscribe, move, refine, unsubscribe, set context, report.

A change is one transaction and one revision, made in the catalog's thread; it is in force when it is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headgate.catalog import Catalog, CatalogBusyError, CatalogError, Edit, parse_subscriptions
from headgate.catalog.database import BUSY_TIMEOUT_S
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError, LogFullError
from headgate.fabric.registry import User
from headgate.fabric.serving import RequestCall
from headgate.model import RequestLimits
from headgate.model.caller import OPERATION, Caller
from headgate.planning.measured import Figures
from headgate.protocol.acks import read_tally
from headgate.relay.tables import publish_snapshot
from headgate.service.clerk import Clerk
from headgate.service.contexts import Contexts
from headgate.service.extending import Extender
from headgate.service.grants import Granting
from headgate.service.pages import PAGE, Page
from headgate.service.proposals import Proposals
from headgate.service.refining import members, named, refinement
from headgate.service.regrouping import Regrouper
from headgate.service.request_desk import Desk
from headgate.service.requests import Answers, Handler, Request, RequestError, mapping_of, text_of, texts_of
from headgate.service.reshaping import Change, MakeChange, Reshaper
from headgate.service.rights import BY, OPERATOR, ORIGIN, admitted, author_of, check_owned, check_share
from headgate.service.roles import Roles
from headgate.service.standbys import Standbys
from headgate.service.subscription_start import resolved
from headgate.service.suspending import Suspender
from headgate.service.tables_room import NoRoomError, TablesRoom
from headgate.service.user_subscriptions import list_owned
from headgate.service.users import People
from headgate.wire.snapshot import Snapshot, SnapshotWriter

Report = Callable[[Page], Awaitable[dict[str, Any]]]

_RETRY_S: Final = 1.0
_CHANGES: Final = 4
"""Changes that are looked at side by side; they are made one after the other."""
_REPORTS: Final = 2
REFUSED_COSTS: Final = 25
"""As how many requests one of a user counts that was looked at and refused."""
_REFUSED: Final = b'{"error"'


class Control:
    """Answers requests with the catalog. One deployment has one of these."""

    def __init__(self, fabric: Fabric, clerk: Clerk, report: Report, limits: RequestLimits | None = None) -> None:
        limits = limits or RequestLimits()
        self._fabric = fabric
        self._clerk = clerk
        self._report = report
        self.extender = Extender()
        self._standbys = Standbys()
        self.figures: Callable[[], Figures] = Figures
        """What was measured by now; nothing unless somebody measures."""
        self.machine: Callable[[], dict[str, Any]] = dict
        """What is known of the machine without asking NATS; nothing unless somebody watches it."""
        self.lines: Handler = partial(_unknown, "lines")
        """Answers with lines of the ledger; nothing unless somebody keeps the books."""
        self.contexts = Contexts(fabric, clerk)
        self.room = TablesRoom(fabric.logs.tables_bytes)
        self._answers = Answers()
        self._changes, self._reports = Desk(limits, _CHANGES), Desk(limits, _REPORTS)
        self.limits = limits
        self.people: People | None = None
        """The users of the deployment, once somebody keeps them."""
        self.roles: Roles | None = None
        """What relays and the job may do, where their server lets us say."""
        self.granting = Granting(lambda: {} if self.people is None else self.people.registry.users)
        reshaper = Reshaper(fabric, lambda: self.contexts.snapshot, self._change, self._extend_now, named)
        self.suspender = Suspender(fabric, lambda: self.contexts.snapshot, self._change)
        self.regrouper = Regrouper(fabric, lambda: self.contexts.snapshot, self._change)
        self.proposals = Proposals(fabric, clerk, lambda: self.contexts.snapshot, self._change)
        self.make: MakeChange = self._change
        """Makes a change of the catalog in its turn, and puts it in force."""
        self.more: dict[str, Handler] = {**reshaper.verbs, **self.proposals.verbs}
        """Requests that change something, beside those of this class."""
        self.followers: list[Callable[[Snapshot], Awaitable[None]]] = []
        """Told of every revision that is put in force."""
        self._handlers: dict[str, Handler] = {}
        self._once: set[str] = set()
        self._serving: list[Callable[[], Awaitable[None]]] = []
        self._writer = SnapshotWriter()
        self.known: Callable[[Snapshot], None] = lambda _: None
        """Told of every revision before it is published, so that this process need not read it again."""
        self._changing = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._unpublished = asyncio.Event()

    async def serve(self) -> None:
        """Start answering."""
        verbs: dict[str, Handler] = {
            "subscribe": self._subscribe,
            "move": self._move,
            "unsubscribe": self._unsubscribe,
            "context": self._context,
            "refine": self._refine,
            **self.more,
        }
        reports: dict[str, Handler] = {
            "status": self._status,
            "machine": self._machine,
            "mine": self._mine,
            "lines": self.lines,
        }
        reports |= self.proposals.reports
        people = {} if self.people is None else self.people.verbs
        self._handlers = {**verbs, **reports, **people}
        self._once = {*verbs, *people} - {"user-list"}
        for verb in self._handlers:
            subject = self._fabric.logs.control(verb)
            self._serving.append(await self._fabric.receive(subject, partial(self._take, OPERATION, verb)))
        self._changes.open()
        self._reports.open()

    async def _take(self, caller: Caller, verb: str, call: RequestCall) -> None:
        """A request of an operator: nobody else may publish here."""
        await self._enqueue(replace(caller, connection=call.connection), verb, call, None)

    async def take_from(self, user: User, verb: str, call: RequestCall) -> None:
        """A request of a user who is no operator."""
        origin = call.origin
        await self._enqueue(Caller(user.name, user.role), verb, call, partial(admitted, user, verb, origin=origin))

    async def _enqueue(
        self, caller: Caller, verb: str, call: RequestCall, admit: Callable[[Request], Request] | None
    ) -> None:
        handler = self._handlers.get(verb, partial(_unknown, verb))
        answering = self._answers.answering(handler, once=verb in self._once, admit=admit)

        desk = self._changes if verb in self._once else self._reports

        async def answer(_: Caller, data: bytes) -> bytes:
            found = await answering(data)
            if found.startswith(_REFUSED) and not caller.is_operator:
                await desk.charge(caller.flow, REFUSED_COSTS - 1)
            return found

        await desk.take(caller, call, answer)

    async def close(self) -> None:
        """Answer no more."""
        for end in self._serving:
            with noted(SERVICE, "a service was not ended", FabricError):
                await end()
        for desk in (self._changes, self._reports):
            await desk.close()
        await self._answers.close()

    async def run(self) -> None:
        """Publish what could not be published when it was made, as soon as that is possible."""
        while True:
            await self._unpublished.wait()
            try:
                await self.publish()
            except HeadgateError as error:
                SERVICE.warning("the newest revision is not in force yet: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def publish(self) -> Snapshot:
        """Make sure that every subscribing site is planned for, and publish the newest revision.

        One at a time: the newest announced revision never goes back. What fails here is tried again by `run`.
        """
        async with self._publishing:
            self._unpublished.clear()
            try:
                return await self._publish()
            except HeadgateError:
                self._unpublished.set()
                raise

    async def _publish(self) -> Snapshot:
        figures = self.figures()
        planned = await self._clerk.run(lambda catalog: self._planned(catalog, figures))
        snapshot = await asyncio.to_thread(self._standbys.named, planned, figures)
        for stream in snapshot.deployment.streams:
            await self._fabric.ensure(self._fabric.logs.root(stream))
        await self.contexts.follow(snapshot)
        if self.roles is not None:
            await self.roles.admit(snapshot)
        self.known(snapshot)
        await asyncio.to_thread(self._writer.publication, snapshot)  # which takes long where many subscriptions are new
        try:
            await publish_snapshot(self._fabric, snapshot, writer=self._writer)
        except LogFullError as error:
            raise self.room.error() from error
        await self.room.refresh(self._fabric)
        for follow in self.followers:
            await follow(snapshot)
        return snapshot

    def _planned(self, catalog: Catalog, figures: Figures) -> Snapshot:
        """The newest revision, with a parent for every site that subscribes. In the catalog's thread."""
        snapshot = catalog.snapshot()
        plan = self.extender.extend(snapshot, figures)
        if plan is None:
            return snapshot
        with catalog.edit("plan") as edit:
            if edit.revision == snapshot.revision:
                edit.set_plan(plan)
            else:
                self._extend(edit, figures)
        return catalog.snapshot()

    def _extend(self, edit: Edit, figures: Figures) -> None:
        plan = self.extender.extend(edit.snapshot(), figures)
        if plan is not None:
            edit.set_plan(plan)

    def _extend_now(self, edit: Edit) -> None:
        self._extend(edit, self.figures())

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Changes are made one at a time; who waits too long for those before it is told so, and changes nothing."""
        try:
            async with asyncio.timeout(BUSY_TIMEOUT_S):
                await self._changing.acquire()
        except TimeoutError:
            raise CatalogBusyError(
                f"the catalog is busy: changes before this one have waited for it for {BUSY_TIMEOUT_S:g} s, so nothing "
                "was changed",
                hint="try again in a moment",
            ) from None
        try:
            yield
        finally:
            self._changing.release()

    async def _change(self, what: str, request: Request, change: Change) -> dict[str, Any]:
        """Make a change, all of it or nothing, put it in force, and answer; a repeated request is only answered."""
        async with self._turn():
            return await self._make(what, request, change)

    async def _make(self, what: str, request: Request, change: Change) -> dict[str, Any]:
        pending, cached, figures = self.contexts.pending(), self.contexts.snapshot, self.figures()
        identity, author = request.get("request"), author_of(request)

        def work(catalog: Catalog) -> tuple[dict[str, Any], bool]:
            known = None if identity is None else catalog.answer(identity)
            if known is not None:
                return known, False
            with catalog.edit(what) as edit:
                edit.author = author
                before = cached if cached.revision == edit.revision else edit.snapshot()
                edit.fold_contexts(pending.contexts, pending.places)
                check_owned(request, before, self.limits)
                answer = change(edit, before)
                if edit.made:
                    self._extend(edit, figures)
                answer["revision"] = edit.revision
                if identity is not None:
                    edit.answered(identity, answer)
            return answer, True

        answer, made = await self._clerk.run(work)
        if made:
            self.contexts.folded(pending)
        try:
            await self.publish()
        except FabricError as error:
            raise HeadgateError(
                f"revision {answer['revision']} is made, and is not in force yet: {error}",
                hint="it will be as soon as NATS stores it; nothing need be repeated",
            ) from error
        return answer

    async def _subscribe(self, request: Request) -> dict[str, Any]:
        """Make or change one subscription (`name`, `subscription`), or several (`subscriptions` by name).

        With `brief` the answer says how many there are and not their ids.
        """
        several = "subscriptions" in request
        given = mapping_of(request, "subscriptions") if several else {}
        if not several:
            only = text_of(request, "name")
            given[only] = mapping_of(request, "subscription")
        changing, figures = bool(request.get("change")), self.figures()
        snapshot = self.contexts.snapshot
        given = {name: await resolved(self._fabric, snapshot, each) for name, each in given.items()}
        stays: dict[str, int] = {}
        for name in given if changing else ():
            stays |= await self._reading(name)

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            seen = self.granting.seen(before.deployment, request)
            asked = parse_subscriptions(given, seen)
            wanted = {name: [self.granting.narrowed(each, before, request) for each in asked[name]] for name in given}
            changed = [each for found in wanted.values() for each in found]
            self.extender.check(before, changed, figures, quoted=BY not in request)
            known = {**before.deployment.subscriptions, **{each.name: each for each in changed}}
            check_share(request, known, before.deployment.streams, self.limits.filter_cost_us)
            there = [each for each in changed if changing and each.name in before.subscription_ids]
            ids = edit.subscribe(
                *(each for each in changed if not changing or each.name not in before.subscription_ids)
            )
            for each in there:
                edit.change(each, stays.get(each.name, 0))
            for name, found in wanted.items() if changing else ():
                for gone in {*members(before, name)} - {each.name for each in found}:
                    edit.unsubscribe(gone)  # a root that has none of its rows any more
            if request.get("brief"):
                return {"count": len(changed)}
            ids |= {each.name: edit.identity(each.name) for each in there}
            ids = {each.name: ids[each.name] for each in changed}
            return {"ids": ids} if several or ids.keys() != given.keys() else {"id": ids[text_of(request, "name")]}

        what = f"{len(given)} subscriptions" if several else next(iter(given))
        return await self._change(f"subscribe {what}", request, change)

    async def _move(self, request: Request) -> dict[str, Any]:
        """Deliver one subscription (`name`), or several (`names`), at another site."""
        site = text_of(request, "site")
        wanted = texts_of(request, "names") if "names" in request else [text_of(request, "name")]
        figures = self.figures()
        stays: dict[str, int] = {}
        for name in wanted:
            stays |= await self._reading(name)

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            known, names = before.deployment.subscriptions, [each for name in wanted for each in named(before, name)]
            if site in before.deployment.sites:
                moved = [replace(known[each], site=site) for each in names if each in known]
                self.extender.check(before, moved, figures, quoted=BY not in request)
            for each in names:
                edit.move(each, site, stays.get(each, 0))
            return {}

        what = wanted[0] if "name" in request else f"{len(wanted)} subscriptions"
        return await self._change(f"move {what} to {site}", request, change)

    async def _reading(self, name: str) -> dict[str, int]:
        """The stays that the readers of what a name stands for have come to."""
        snapshot = self.contexts.snapshot
        ids = {each: snapshot.subscription_ids.get(each) for each in named(snapshot, name)}
        return {each: (await read_tally(self._fabric, found)).stay for each, found in ids.items() if found is not None}

    async def _unsubscribe(self, request: Request) -> dict[str, Any]:
        """End one subscription (`name`), or several (`names`), all or none."""
        several = "names" in request
        names = texts_of(request, "names") if several else [text_of(request, "name")]

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            for name in names:
                for each in named(before, name):
                    edit.unsubscribe(each)
            return {}

        what = f"{len(names)} subscriptions" if several else names[0]
        return await self._change(f"unsubscribe {what}", request, change)

    async def _context(self, request: Request) -> dict[str, Any]:
        """Values of one subscription (`name`, `values`), or of several (`contexts` by name)."""
        if "contexts" in request:
            contexts = mapping_of(request, "contexts")
            given = {name: mapping_of(contexts, name) for name in contexts}
        else:
            given = {text_of(request, "name"): mapping_of(request, "values")}
        if not given:
            raise RequestError("the request names no subscription", hint="give values by the names of subscriptions")
        snapshot = self.contexts.snapshot
        return await self.set_contexts({each: given[name] for name in given for each in named(snapshot, name)}, request)

    async def set_contexts(
        self, contexts: Mapping[str, Mapping[str, Any]], request: Request | None = None
    ) -> dict[str, Any]:
        """Set values of subscriptions, all or none; the place from which they hold, and the catalog's revision."""
        with self.granting.unquoted(contexts, self.contexts.snapshot, request or {}):
            return await self._set_contexts(contexts, request)

    async def _set_contexts(self, contexts: Mapping[str, Mapping[str, Any]], request: Request | None) -> dict[str, Any]:
        async with self._turn():
            check_owned(request or {}, self.contexts.snapshot, self.limits)
            place = await self.contexts.set(contexts)
            if place is None or self.contexts.due:

                def change(edit: Edit, _: Snapshot) -> dict[str, Any]:
                    for name, values in contexts.items() if place is None else ():
                        edit.set_context(name, values)
                    return {}

                # Where the log has the values, the catalog can take them over later.
                spared = () if place is None else (NoRoomError, CatalogError)
                with noted(SERVICE, "the log has the contexts, the catalog gets them later", *spared):
                    await self._make("contexts", (request or {}) if place is None else {}, change)
        return {"revision": self.contexts.snapshot.revision, "place": place or self.contexts.place(contexts)}

    async def _refine(self, request: Request) -> dict[str, Any]:
        """Change what is named of a subscription's resolution; see `headgate.service.refining`."""
        return await self._change(f"refine {text_of(request, 'name')}", request, refinement(request, self.granting))

    async def settle_grants(self, what: str, request: Request) -> int:
        """Bring all subscriptions to what the grants of their owners leave of them; how many were changed."""
        if not any(each.narrowed or each.owner for each in self.contexts.snapshot.deployment.subscriptions.values()):
            return 0

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            return {"changed": self.granting.settle(edit, before)}

        author = {key: request[key] for key in (OPERATOR, ORIGIN) if key in request}
        return int((await self._change(what, author, change))["changed"])

    async def _status(self, request: Request) -> dict[str, Any]:
        """Everything, with at most a page of subscriptions: those that `only`, `after` and `limit` say."""
        only = mapping_of(request, "only") if "only" in request else {}
        after = text_of(request, "after") if "after" in request else ""
        limit = request.get("limit", PAGE)
        if not isinstance(limit, int) or not 0 < limit <= PAGE:
            raise RequestError(f"{limit!r} subscriptions cannot be shown", hint=f"ask for 1 to {PAGE} at a time")
        return await self._report(Page.read({key: str(value) for key, value in only.items()}, after, limit))

    async def _machine(self, _: Request) -> dict[str, Any]:
        return self.machine()

    async def _mine(self, request: Request) -> dict[str, Any]:
        """The subscriptions of whoever asks; of an operator, those that belong to no user."""
        return {"subscriptions": await list_owned(self._fabric, self.contexts.snapshot, str(request.get(BY, "")))}


async def _unknown(verb: str, _: Request) -> dict[str, Any]:
    raise HeadgateError(f"there is no request {verb!r}")
