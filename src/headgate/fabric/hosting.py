"""What a site with a server of its own does for others: home reads its logs through it, children are let in.

A child reads the link's log at its parent's server, in an account there that has nothing but that log: the parent's
relay signs what lets it in, for a key that never leaves the child. The question comes through home, which has checked
who asks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import msgspec

from headgate.diagnostics import noted, site_log
from headgate.fabric.accounts import EVERYBODY, SYSTEM_FILE, Keys
from headgate.fabric.client import Fabric
from headgate.fabric.keys import KeyPair
from headgate.fabric.placed import HostFabric
from headgate.fabric.roles import SITE, Rights, grid_rights, guest_rights
from headgate.fabric.server import EmbeddedServer
from headgate.fabric.serving import RequestCall
from headgate.protocol.port import FabricError, Stored
from headgate.protocol.records import Entered, EntryRequest, HostedLogs, HostList
from headgate.wire.frame import WireError
from headgate.wire.logs import Log

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_OK: Final = 200
_MOST_BYTES: Final = 4 << 20
_LOOK_S: Final = 1.0


class Hosting:
    """Answers for the server of one site. Use it as an async context manager."""

    def __init__(self, fabric: HostFabric, site: str, server: EmbeddedServer) -> None:
        self._fabric = fabric
        self._site = site
        self._server = server
        self._keys = Keys.open(server.directory)
        self._let_in: set[str] = set()
        self._out: dict[str, int] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        home, logs = self._fabric.home, self._fabric.logs
        system = await Fabric.connect(
            self._server.url, logs, user_credentials=str(self._server.directory / SYSTEM_FILE)
        )
        self._system = await self._stack.enter_async_context(system)
        self._stack.push_async_callback(await home.receive(logs.hosted(self._site), self._taking(self._read)))
        self._stack.push_async_callback(await home.receive(logs.entered(self._site, "*"), self._taking(self._enter)))
        self._handling.add(asyncio.create_task(self._follow_out(), name=f"who is out at {self._site}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._handling):
            task.cancel()
        await self._stack.aclose()

    async def _follow_out(self) -> None:
        """Put out here whom home has put out: keys by which a site is let in here are known to this server alone."""
        home, logs = self._fabric.home, self._fabric.logs
        while True:
            with noted(site_log(self._site), "who was put out is looked at again", FabricError, WireError):
                stored = await home.last(logs.state, logs.hosts)
                told = {} if stored is None else HostList.decode(stored.data).out
                for site, until_s in told.items():
                    if site != self._site and self._out.get(site) != until_s:
                        self._out[site] = until_s
                        for role, rights in self._roles_of(site).items():
                            await self._state(role, rights)
            await asyncio.sleep(_LOOK_S)

    def _roles_of(self, site: str) -> dict[str, Rights]:
        """What a site may be let in as."""
        logs = self._fabric.logs
        return {
            f"{SITE} {site}": guest_rights(logs, site, self._site),
            f"grid {site}": grid_rights(logs, self._site, site),
        }

    def _taking(self, answer: Callable[[RequestCall], Awaitable[bytes]]) -> Callable[[RequestCall], Awaitable[None]]:
        async def take(call: RequestCall) -> None:
            task = asyncio.create_task(call.answer(lambda _: answer(call)))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)

        return take

    async def _read(self, call: RequestCall) -> bytes:
        """Do what home asks about a log of this server."""
        own, asked = self._fabric.own, HostedLogs.decode(call.data)
        log = Log(asked.log, (), 0)
        found: Any
        match asked.do:
            case "read":
                found = _plain(
                    await own.read(log, asked.subjects[0], asked.after, limit=asked.limit, max_bytes=_MOST_BYTES)
                )
            case "lasts":
                found = _plain(list((await own.lasts(log, asked.subjects)).values()))
            case "counts":
                found = await own.subjects(log, asked.subjects[0])
            case "names":
                found = await own.names(asked.subjects[0])
            case "usage":
                usage = await own.usage(log)
                found = None if usage is None else {"bytes": usage.bytes, "messages": usage.messages}
            case _:
                raise FabricError(f"{asked.do!r} is nothing that can be done with a log")
        return msgspec.msgpack.encode(found)

    async def _enter(self, call: RequestCall) -> bytes:
        """Let another site in: to its own link log and nothing else, or to the parts of grids that are served here."""
        child, asked = call.subject.rsplit(".", 1)[1], EntryRequest.decode(call.data)
        logs = self._fabric.logs
        if asked.grid:
            return await self._let(f"grid {child}", asked.key)
        if asked.after is not None:
            log, links = logs.site(child), logs.links_into(child)
            return Entered(reader=await self._fabric.own.open_reader(log, links, asked.after)).encode()
        await self._fabric.ensure(logs.site(child))
        return await self._let(f"{SITE} {child}", asked.key)

    async def _state(self, role: str, rights: Rights) -> None:
        """Say to the server what a role may do, and up to when nobody is in it."""
        account, out = self._keys.role(self._fabric.logs.namespace, role), self._out.get(role.partition(" ")[2])
        stated = self._keys.role_account(account.public, role, rights, {} if out is None else {EVERYBODY: out})
        answer = json.loads(await self._system.request(_UPDATE, stated.encode()))
        if answer.get("data", {}).get("code") != _OK:
            raise FabricError(f"the server of {self._site} did not let {role!r} in: {answer.get('error')}")

    async def _let(self, role: str, key: str) -> bytes:
        """Let the holder of a key in with the rights of a role of this server."""
        account = self._keys.role(self._fabric.logs.namespace, role)
        if role not in self._let_in:
            await self._state(role, self._roles_of(role.partition(" ")[2])[role])
            self._let_in.add(role)
        statement = self._keys.role_statement(account, KeyPair("", key), role.replace(" ", "-"), role)
        return Entered(statement=statement, fingerprint=str(self._server.fingerprint or "")).encode()


def _plain(found: list[Stored]) -> list[tuple[Any, ...]]:
    """Messages as an answer holds them: no more than fit."""
    size = 0
    kept: list[tuple[Any, ...]] = []
    for each in found:
        size += each.size
        if kept and size > _MOST_BYTES:
            break
        kept.append((each.sequence, each.subject, each.data, each.time_s, each.header_bytes))
    return kept
