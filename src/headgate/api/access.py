"""Access to the API: which hosts and origins a request may name, and who it is from."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api.problems import ApiError, problem_response
from headgate.api.users import LOGIN, Users, is_user_token
from headgate.fabric.registry import User
from headgate.service.access import CODE, SESSION, SESSION_S, signed, valid

MOST_BYTES: Final = 16 << 20
"""The largest body of a request."""
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who makes a request: an operator, or a user of the deployment, who may have what is its own."""

    name: str
    user: User | None = None


class Access:
    """The token of a deployment, and what was signed with it."""

    def __init__(
        self, token: str, port: int, users: Users | None = None, *, tokens: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """`tokens` are those that hold now, the newest first, where more than the one may."""
        self._tokens = tokens or (lambda: (token,))
        self._users = users or Users(None)
        self.cookie = f"headgate-{port}"
        self._used: dict[str, float] = {}

    def session(self, code: str) -> str:
        """The session that the code of a login link opens; a code works once."""
        now_s = time.time()
        of_user = is_user_token(code)
        if code in self._used or not (of_user or any(valid(token, CODE, code, now_s) for token in self._tokens())):
            raise ApiError(
                "this login link has expired, or was used before", hint="`headgate login` prints another", kind="denied"
            )
        user, key = self._users.of_token(code, LOGIN) if of_user else (None, "")
        self._used = {each: until for each, until in self._used.items() if until > now_s}
        self._used[code] = now_s + SESSION_S
        session = signed(self._tokens()[0], _session_of(user, key), now_s + SESSION_S)
        return session if user is None else f"{session}~{user.name}~{key}"

    def identify(self, connection: HTTPConnection) -> Visitor:
        """Who a request is from, by its bearer token or by the session of a browser."""
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if any(_same(given.strip(), token) for token in self._tokens()):
                return Visitor("owner")
            if is_user_token(given.strip()):
                return _visitor(self._users.of_token(given.strip())[0])
            raise ApiError("the bearer token is not that of this deployment", hint=_HINT, kind="unidentified")
        session = _cookie(connection.headers.get("cookie", ""), self.cookie)
        visitor = self._in_session(session) if session else None
        if visitor is not None:
            if connection.scope.get("method", "GET") not in _SAFE:
                _refuse_foreign(connection.headers)
            return visitor
        raise ApiError("this needs a bearer token, or a session", hint=_HINT, kind="unidentified")

    def _in_session(self, text: str) -> Visitor | None:
        session, _, of = text.partition("~")
        name, _, key = of.partition("~")
        user = self._users.holds(name, key) if of else None
        purpose, now_s = _session_of(user, key), time.time()
        if (of and user is None) or not any(valid(token, purpose, session, now_s) for token in self._tokens()):
            return None
        return Visitor("owner") if user is None else _visitor(user)


def _session_of(user: User | None, key: str) -> str:
    """What the session of somebody is signed for."""
    return SESSION if user is None else f"{SESSION} of {user.name} with {key}"


def _visitor(user: User) -> Visitor:
    return Visitor(user.name, None if user.operator else user)


_HINT: Final = "the token is in http/token of the state directory; `headgate login` prints a link for browsers"


async def identify(connection: HTTPConnection) -> Visitor:
    """Who a request is from: the dependency of everything that not everybody may see or do."""
    access: Access = connection.app.state.access
    return access.identify(connection)


def access_of(request: Request) -> Access:
    """The access rules of the application that got a request."""
    found: Access = request.app.state.access
    return found


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _cookie(header: str, name: str) -> str | None:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def _refuse_foreign(headers: Headers) -> None:
    """Refuse a change that another site makes a browser send along with the cookie; the origin itself was checked."""
    if "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise ApiError("a change with a session has to come from this page", hint="send a bearer token", kind="denied")


class HostGuard:
    """Refuses requests that name another host or come from a page of another origin, and sets headers for browsers.

    A page of the internet can make a browser resolve its own name to this address (DNS rebinding); such a request
    names a host that is not ours.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {f"{scheme}://{host}" for host in self._hosts for scheme in ("http", "https")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        wrong = None
        if headers.get("host", "").lower() not in self._hosts:
            wrong = f"this is not the host {headers.get('host')!r:.100}"
        elif origin is not None and origin.lower() not in self._origins:
            wrong = f"pages of {origin!r:.100} may not use this API"
        if wrong is None and scope["type"] == "http":
            await self._answer(scope, headers, receive, _guarded(send))
        elif wrong is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": wrong[:120]})
        else:
            hint = f"open it as {min(self._hosts)}"
            await problem_response(ApiError(wrong, hint=hint, kind="denied"))(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Pass a request on whose body has at most `MOST_BYTES`."""
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > MOST_BYTES:
            await problem_response(too_large())(scope, receive, send)
            return
        got = 0

        async def receiving() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > MOST_BYTES:
                raise HTTPException(413, str(too_large()))
            return message

        await self._app(scope, receiving, send)


def too_large() -> ApiError:
    """What a request is refused with whose body is too large."""
    return ApiError(f"a request may have {MOST_BYTES:,} bytes", hint="send it in parts", kind="too-large")


def _guarded(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("Content-Security-Policy", _POLICY)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Referrer-Policy", "no-referrer")
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending


def hosts_of(host: str, port: int) -> set[str]:
    """The names by which a request may name an address on loopback."""
    names = {host, "localhost", "127.0.0.1", "[::1]"}
    return {f"{f'[{name}]' if ':' in name and not name.startswith('[') else name}:{port}" for name in names} | (
        names if port == 80 else set()
    )
