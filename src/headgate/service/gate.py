"""Through which users who are no operators read, acknowledge and ask: a request is checked, then carried out.

A user is in an account of NATS that has no logs. It asks on `NAMESPACE.as.USER.VERB`; nobody else may publish there, so
the subject says who asks. The verbs are those of `headgate.service.control`, and a few for reading: `get` messages,
`has` a revision been published, `put` an acknowledgement, `wait` for something to come, `repair` a range, `deal` rows
of a group to a member.
`headgate.fabric.gated` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError, FencedError, LogFullError, NoLogError, Stored, cancel_all
from headgate.fabric.gated import SUBJECT
from headgate.fabric.registry import User, UserError
from headgate.fabric.serving import RequestCall
from headgate.model import RequestLimits
from headgate.model.caller import Caller
from headgate.protocol.records import RangeRequest
from headgate.relay.tables import Tables
from headgate.service.allowances import ByteAllowances, Connections
from headgate.service.published_counts import Hints
from headgate.service.request_desk import Desk
from headgate.service.rights import owned_by
from headgate.service.users import People
from headgate.service.views import ledger_for, manifest_for, runs_for, snapshot_for, visible_streams
from headgate.service.withholding import Withholder
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally
from headgate.wire.sizes import EXPECTED
from headgate.wire.snapshot import Snapshot

_READS: Final = RequestLimits(requests_per_s=1000.0, burst=4000, waiting=1000)
_AT_A_TIME: Final = 16
_MOST_WAITS: Final = 64
_MOST_SUBJECTS: Final = 64
_MOST_MESSAGES: Final = 256
_MOST_BYTES: Final = 16 << 20
_MOST_REPORT: Final = 64 << 10
_WAIT_S: Final = 10.0
_SWEEP_S: Final = 10.0
_LONGEST_S: Final = 5.0
"""Less than a client waits for an answer."""

AskControl = Callable[[User, str, RequestCall], Awaitable[None]]
AskDealer = Callable[[bytes, str], Awaitable[bytes]]


class Gate:
    """Serves the users of one deployment."""

    def __init__(
        self,
        fabric: Fabric,
        tables: Tables,
        people: People,
        current: Callable[[], Snapshot],
        ask: AskControl,
        limits: RequestLimits | None = None,
    ) -> None:
        """`current` is the catalog in force, `ask` takes requests that are no reading."""
        limits = limits or RequestLimits()
        self._bytes, self._connections = ByteAllowances(limits.bytes_per_s), Connections(limits)
        self._current = current
        self._fabric = fabric
        self._tables = tables
        self._people = people
        self._ask = ask
        self._desk = Desk(_READS, _AT_A_TIME)
        self._hints = Hints(fabric)
        self._withholder = Withholder(tables)
        self._waits: dict[str, set[asyncio.Task[None]]] = {}
        self.deal: AskDealer | None = None
        """Answers members of groups, by what they ask and the user's name."""
        self._verbs = {"get": self._get, "has": self._has, "put": self._put, "repair": self._repair}
        self._end: Callable[[], Awaitable[None]] | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        self._end = await self._fabric.receive(self._fabric.logs.asked_by("*"), self._take)
        self._desk.open()
        try:
            while True:
                await asyncio.sleep(_SWEEP_S)
                await self._hints.sweep()
        finally:
            with noted(SERVICE, "the gate was not closed", FabricError):
                await self._end()
            await self._desk.close()
            await cancel_all([task for tasks in self._waits.values() for task in tasks])

    async def _take(self, call: RequestCall) -> None:
        _, _, name, verb = call.subject.split(".", 3)
        user = self._people.registry.users.get(name)
        if user is None:
            await _refuse(call, UserError(f"no user {name!r}"))
        elif user.expires_s is not None and time.time() >= user.expires_s:  # over HTTP no server looks at it
            await _refuse(call, UserError(f"the credentials of user {name!r} have expired"))
        elif not self._connections.admits(name, call.connection, time.monotonic()):
            await _refuse(call, UserError(f"user {name!r} has too many connections", hint="close some, and wait 30 s"))
        elif verb == "wait":
            await self._keep(user, call, self._answer_wait(user, call))
        elif verb == "deal" and self.deal is not None:
            await self._keep(user, call, self._answer_member(user, call, self.deal))
        elif verb == "get" and (wait_s := self._bytes.wait_s(name, time.monotonic())) > 0:
            await self._keep(user, call, self._later(user, call, wait_s))
        elif verb in self._verbs:
            await self._enqueue(user, verb, call)
        else:
            await self._ask(user, verb, call)

    async def _read(self, user: User, verb: str, call: RequestCall, _: Caller, __: bytes) -> bytes | None:
        try:
            return await self._verbs[verb](user, self._current(), call)
        except (HeadgateError, WireError, ValueError, KeyError, TypeError) as error:
            await _refuse(call, error)
            return None

    async def _enqueue(self, user: User, verb: str, call: RequestCall) -> None:
        await self._desk.take(Caller(user.name, user.role), call, partial(self._read, user, verb, call))

    async def _later(self, user: User, call: RequestCall, wait_s: float) -> None:
        """Let somebody who has read more than its share wait for what it asks for."""
        await asyncio.sleep(min(wait_s, _LONGEST_S))
        await self._enqueue(user, "get", call)

    async def _keep(self, user: User, call: RequestCall, answering: Coroutine[Any, Any, None]) -> None:
        """Answer later, such as when something comes; a user has a few such questions open at most."""
        tasks = self._waits.setdefault(user.name, set())
        if len(tasks) >= _MOST_WAITS:
            answering.close()
            await _refuse(call, UserError(f"user {user.name!r} waits {len(tasks)} times already"))
            return
        task = asyncio.create_task(answering)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer_wait(self, user: User, call: RequestCall) -> None:
        try:
            seen = json.loads(call.data)["seen"]
            snapshot = self._current()
            if len(seen) > _MOST_SUBJECTS:
                raise UserError(f"at most {_MOST_SUBJECTS} subjects can be waited for")
            for subject in seen:
                self._place(user, snapshot, subject)
            await call.reply(json.dumps(await self._hints.wait(seen, _WAIT_S)).encode())
        except (HeadgateError, ValueError, KeyError, TypeError, AttributeError) as error:
            await _refuse(call, error)

    async def _answer_member(self, user: User, call: RequestCall, deal: AskDealer) -> None:
        await call.reply(await deal(call.data, user.name))

    def _place(self, user: User, snapshot: Snapshot, subject: str) -> tuple[str, str]:
        """What kind of subject one is, and what it is about; `UserError` where it is none of the user's business."""
        mine = {snapshot.subscription_ids[name] for name in owned_by(snapshot, user.name)}
        _, kind, *rest = subject.split(".")
        match kind, rest:
            case "inbox", [site, token] if _number(token.partition("-")[0]) in mine:
                if site in snapshot.deployment.sites:
                    return kind, site
            case "ack", [number] if _number(number) in mine:
                return kind, number
            case "quarantine", [process] if _number(process.removeprefix("reader-")) in mine:
                return kind, process
            case "catalog", ["head" | "runs" as what]:
                return what, ""
            case "catalog", ["past", stream] if stream in visible_streams(snapshot, user):
                return "past", stream
            case ("ledger", [stream]) | ("root", [stream, "commit"]) if stream in visible_streams(snapshot, user):
                return kind, stream
            case "tables", [revision] if revision.isdigit():
                return kind, revision
        raise UserError(f"{subject} is not for user {user.name!r}")

    async def _get(self, user: User, snapshot: Snapshot, call: RequestCall) -> bytes | None:
        request = json.loads(call.data)
        subject = str(request.get("last_by_subj") or request["next_by_subj"])
        kind, what = self._place(user, snapshot, subject)
        single = "last_by_subj" in request
        if not single and kind != "inbox":
            raise UserError(f"{subject} is not for user {user.name!r}")
        found = await self._stored(kind, what, subject, None if single else request)
        for stored in found:
            data = await self._shown(user, snapshot, kind, what, stored)
            await call.send(data, stored.headers())
            self._bytes.took(user.name, len(data), time.monotonic())
        if not single or not found:
            await call.send(b"", {"Status": "204"})
        return None

    async def _stored(self, kind: str, what: str, subject: str, request: dict[str, Any] | None) -> list[Stored]:
        fabric, logs = self._fabric, self._fabric.logs
        if kind == "inbox":
            log = logs.inbox(what)
            if request is not None:
                limit, room = (min(int(request[key]), most) for key, most in _BOUNDS)
                room = self._bytes.most(room)
                try:
                    return await fabric.read(log, subject, int(request["seq"]) - 1, limit=limit, max_bytes=room)
                except NoLogError:
                    return []  # a site that was never up
        else:
            log = logs.tables if kind == "tables" else logs.root(what) if kind == "root" else logs.state
        found = await fabric.last(log, subject)
        return [] if found is None else [found]

    async def _shown(self, user: User, snapshot: Snapshot, kind: str, what: str, stored: Stored) -> bytes:
        """What a user sees of a stored message."""
        data = stored.data
        match kind:
            case "inbox":
                return await self._withheld(user, _number(stored.subject.split(".")[3].partition("-")[0]), data)
            case "tables":
                found = await self._tables.snapshot(int(what))
                return await asyncio.to_thread(lambda: snapshot_for(found, user).to_bytes())
            case "ledger":
                ids = {name: snapshot.subscription_ids[name] for name in owned_by(snapshot, user.name)}
                return ledger_for(data, what, ids)
            case "runs":
                return runs_for(data, visible_streams(snapshot, user))
            case "root":
                return manifest_for(data)
            case _:
                return data

    async def _has(self, user: User, snapshot: Snapshot, call: RequestCall) -> bytes:
        subject = str(json.loads(call.data)["subject"])
        if self._place(user, snapshot, subject)[0] != "tables":
            raise UserError(f"{subject} is not for user {user.name!r}")
        return json.dumps({"has": await self._fabric.subjects(self._fabric.logs.tables, subject)}).encode()

    async def _put(self, user: User, snapshot: Snapshot, call: RequestCall) -> bytes:
        subject = call.headers[SUBJECT]
        kind, what = self._place(user, snapshot, subject)
        if kind == "ack":
            if Tally.decode(call.data).subscription != int(what):
                raise UserError("this is the acknowledgement of another subscription")
        elif kind != "quarantine" or len(call.data) > _MOST_REPORT:
            raise UserError(f"user {user.name!r} may not publish to {subject}")
        expect = int(call.headers[EXPECTED]) if EXPECTED in call.headers else None
        try:
            return json.dumps({"seq": await self._fabric.publish(subject, call.data, expect=expect)}).encode()
        except (FencedError, LogFullError) as error:
            return json.dumps({"error": str(error), "code": type(error).__name__}).encode()

    async def _repair(self, user: User, snapshot: Snapshot, call: RequestCall) -> bytes:
        """A range of a subscription of the user's, as its site or the root would send it."""
        site, given = call.headers[SUBJECT].rsplit(".", 1)[1], RangeRequest.decode(call.data)
        mine = {snapshot.subscription_ids[name]: each.stream for name, each in owned_by(snapshot, user.name).items()}
        if mine.get(given.subscription) != given.stream or site not in snapshot.deployment.sites:
            raise UserError(f"this range is not for user {user.name!r}")
        asked = RangeRequest(
            stream=given.stream, after=given.after, upto=given.upto, subscription=given.subscription
        ).encode()
        codec = self._fabric.codec
        found = codec.split(await self._fabric.request(self._fabric.logs.repair(site), asked))
        return bytes(codec.join([await self._withholder.shown(user, given.subscription, each) for each in found]))

    async def _withheld(self, user: User, number: int, data: bytes) -> bytes:
        """A message of an inbox; one that cannot be read is given without content: its reader asks for it again."""
        try:
            return await self._withholder.shown(user, number, data)
        except WireError:
            return b""


_BOUNDS: Final = (("batch", _MOST_MESSAGES), ("max_bytes", _MOST_BYTES))


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else -1


async def _refuse(call: RequestCall, error: Exception) -> None:
    """Say why there is no answer, in one line."""
    said = (
        " ".join(str(error).split())[:300].encode("ascii", "replace").decode()
        if isinstance(error, HeadgateError)
        else ""
    )
    await call.send(b"", {"Status": "403", "Description": said or "the request cannot be read"})
