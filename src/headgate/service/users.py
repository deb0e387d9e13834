"""Users of a deployment: made, listed, given new credentials, and put out.

Credentials are signed here and handed to whoever asked, once: only the public key is kept. The server is told of a key
that is revoked, and ends its connections at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError, nearest
from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.fabric.accounts import HOME, PEOPLE, SYSTEM_FILE, Keys
from headgate.fabric.keys import KeyPair
from headgate.fabric.registry import Registry, User, UserError
from headgate.fabric.rolebook import RoleBook
from headgate.fabric.roles import JOB, SITE
from headgate.model import Deployment, Grant, parse_duration
from headgate.service.audit import Audit
from headgate.service.grants import checked_grant
from headgate.service.requests import Handler, Request, text_of, texts_of
from headgate.service.rights import author_of
from headgate.service.roles import Roles
from headgate.wire.codec import encode_grant
from headgate.wire.logs import Logs

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_SETTLE_S: Final = 1.0
Settle = Callable[[str, Request], Awaitable[int]]


class People:
    """The users of an embedded server; none, and none can be made, where NATS is a server of the user's own."""

    def __init__(self, server: EmbeddedServer | None, logs: Logs, audit: Audit | None = None) -> None:
        self._server = server
        self._audit = audit
        self._logs = logs
        self.roles: Roles | None = None
        """Who is told of keys that are revoked in roles."""
        self.deployment: Callable[[], Deployment] = lambda: Deployment({}, {})
        """The deployment in force, which grants have to fit."""
        self.settle: Settle = _no_subscriptions
        """Brings the subscriptions of users to what their grants leave of them."""
        self.out: Callable[[], Mapping[str, float]] = dict
        """Until when each key is out that has sent too much."""
        self._unsettled = False
        self.tell_hosts: Callable[[], Awaitable[None]] = _nobody_told
        """Tells the hosts of sites who of them was put out."""
        self.registry = Registry() if server is None else Registry.read(server.directory)

    @property
    def verbs(self) -> dict[str, Handler]:
        """The requests of operators."""
        return {
            "user-add": self._add,
            "user-grant": self._grant,
            "user-ungrant": self._ungrant,
            "user-list": self._list,
            "user-revoke": self._revoke,
            "user-rotate": self._rotate,
        }

    async def run(self) -> None:
        """Revoke keys of before a rotation when their time has come; settle grants that could not be settled before."""
        while True:
            await asyncio.sleep(_SETTLE_S)
            if self._unsettled:
                with noted(SERVICE, "grants are not settled yet", HeadgateError):
                    await self._settled("grants", {})
            if self._server is not None and self.registry.settled(_now_s()) != self.registry:
                try:
                    await self._store(self.registry.settled(_now_s()))
                except FabricError as error:
                    SERVICE.warning("keys that were replaced are not revoked yet: %s", error)

    def _directory(self) -> Path:
        if self._server is None:
            raise UserError(
                "users are made for the embedded NATS server only, and this deployment uses one of your own",
                hint="make them there; docs/security.md says which subjects each needs",
            )
        return self._server.directory

    async def _add(self, request: Request) -> dict[str, Any]:
        keys, pair = Keys.open(self._directory()), KeyPair.new("user")
        user = User(
            text_of(request, "name"),
            pair.public,
            _now_s(),
            operator=request.get("operator") is True,
            subscribes=_texts(request, "subscribe"),
            publishes=_texts(request, "publish"),
            expires_s=_expiry(request),
            program=self._program(request),
        )
        credentials, registry = keys.credentials(user, pair, self._logs), self.registry.added(user)
        self._record(request, f"user add {user.name}", None, user)
        await self._store(registry)
        await self._settled(f"user add {user.name}", request)
        return {**_shown(user), "credentials": credentials}

    def _program(self, request: Request) -> str:
        """The role that is asked for, of a program that runs elsewhere."""
        if request.get("job") is True:
            return JOB
        if request.get("site") is None:
            return ""
        site, known = text_of(request, "site"), self.roles.sites if self.roles else ()
        if site not in known:
            close = nearest(site, known)
            raise UserError(f"no site {site!r}", hint=f"did you mean {close!r}?" if close else None)
        return f"{SITE} {site}"

    async def _grant(self, request: Request) -> dict[str, Any]:
        """Give a user rows (`where`) and columns (`columns`) of a stream, in place of what it may have had of it."""
        self._directory()
        stream = text_of(request, "stream")
        where = text_of(request, "where") if request.get("where") is not None else "true"
        columns = tuple(texts_of(request, "columns")) if request.get("columns") is not None else None
        grant = await asyncio.to_thread(checked_grant, stream, Grant(where, columns), self.deployment())
        return await self._changed(request, "grant", lambda user: user.granted(stream, grant))

    async def _ungrant(self, request: Request) -> dict[str, Any]:
        """Take a stream from a user: its subscriptions to it get nothing any more, and what waits is withheld."""
        self._directory()
        stream = text_of(request, "stream")
        return await self._changed(request, "ungrant", lambda user: user.without_grant(stream))

    async def _changed(self, request: Request, verb: str, change: Callable[[User], User]) -> dict[str, Any]:
        """Change what a user may have. At the gate it holds at once, in the catalog with the next revision."""
        before = self.registry.user(text_of(request, "name"))
        if before.operator:
            raise UserError(f"{before.name!r} is an operator, who may have everything")
        after = change(before)
        what = f"user {verb} {before.name}"
        self._record(request, what, before, after)
        await self._store(self.registry.changed(after))
        return {**_shown(after), "changed": await self._settled(what, request)}

    async def _settled(self, what: str, request: Request) -> int:
        self._unsettled = True  # until it is done: what fails here is tried again
        changed = await self.settle(what, request)
        self._unsettled = False
        return changed

    async def _rotate(self, request: Request) -> dict[str, Any]:
        """New credentials for a user; the ones before hold for some time (`grace`) yet."""
        name = text_of(request, "name")
        keys, pair = Keys.open(self._directory()), KeyPair.new("user")
        before = self.registry.user(name)
        expires_s = _expiry(request) if "expires" in request else before.expires_s
        user = replace(before, key=pair.public, issued_s=_now_s(), expires_s=expires_s)
        ends_s = _now_s() + int(parse_duration(text_of(request, "grace")) if "grace" in request else 0)
        credentials = keys.credentials(user, pair, self._logs)
        registry = self.registry.rotated(name, user, ends_s).settled(_now_s())
        self._record(request, f"user rotate {name}", before, registry.user(name))
        await self._store(registry)
        return {**_shown(self.registry.user(name)), "credentials": credentials}

    async def _revoke(self, request: Request) -> dict[str, Any]:
        self._directory()
        name = text_of(request, "name")
        registry = self.registry.removed(name, _now_s())
        self._record(request, f"user revoke {name}", self.registry.user(name), None)
        await self._store(registry)
        return {}

    async def admit(self, request: Request, what: str, registry: Registry, user: User | None) -> None:
        """Keep another registry, which has a user of a program more or less, and note who wanted that."""
        self._directory()
        self._record(request, what, None, user)
        await self._store(registry)

    def _record(self, request: Request, what: str, before: User | None, after: User | None) -> None:
        if self._audit is not None:
            shown = {
                "before": None if before is None else _shown(before),
                "after": None if after is None else _shown(after),
            }
            self._audit.record(author_of(request), what, {what.rsplit(maxsplit=1)[-1]: shown})

    async def _list(self, _: Request) -> dict[str, Any]:
        out = self.out()
        return {"users": [{**_shown(user), "out_until_s": out.get(user.key)} for user in self.registry.users.values()]}

    async def _store(self, registry: Registry) -> None:
        """Keep the registry, then tell the server who is out; a server that is started later reads it by itself."""
        directory = self._directory()
        told, out = registry.revoked != self.registry.revoked, registry.out != self.registry.out
        registry.write(directory)
        self.registry = registry
        if out:
            await self.tell_hosts()
        if told:
            keys = Keys.open(directory)
            assert self._server is not None
            async with await Fabric.connect(
                self._server.url, self._logs, user_credentials=str(directory / SYSTEM_FILE)
            ) as system:
                answering = RoleBook.read(directory).answering(keys)
                for account in (HOME, PEOPLE):
                    revoked = {**registry.revoked, **dict.fromkeys(self.out(), _now_s())}
                    stated = keys.account(account, revoked, answering if account == HOME else None)
                    answer = json.loads(await system.request(_UPDATE, stated.encode()))
                    if answer.get("data", {}).get("code") != _OK:
                        raise HeadgateError(f"the server did not take the revocation: {answer.get('error')}")
            if self.roles is not None:
                await self.roles.revoke(registry.revoked)


async def _no_subscriptions(_: str, __: Request) -> int:
    return 0


_OK: Final = 200


def _now_s() -> int:
    return int(time.time())


def _texts(request: Request, key: str) -> tuple[str, ...]:
    found = request.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UserError(f"{key!r} of the request is no list of streams")
    return tuple(found)


def _expiry(request: Request) -> int | None:
    return _now_s() + int(parse_duration(text_of(request, "expires"))) if request.get("expires") is not None else None


def _shown(user: User) -> Mapping[str, Any]:
    """A user as it is listed."""
    return {
        "name": user.name,
        "role": user.role,
        "subscribes": list(user.subscribes),
        "publishes": list(user.publishes),
        "grants": {name: encode_grant(each) for name, each in user.grants.items()},
        "issued_s": user.issued_s,
        "expires_s": user.expires_s,
        "key": user.key,
        "retiring": dict(user.retiring),
    }


async def _nobody_told() -> None:
    """Nobody is told who was put out: no service runs."""
