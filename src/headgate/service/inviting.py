"""Hosts that join: invitations that hold for a short time and once, and the credentials that are given for them."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError, nearest
from headgate.fabric import EmbeddedServer, Fabric
from headgate.fabric.accounts import Keys
from headgate.fabric.keys import KeyPair, statement_of
from headgate.fabric.membership import Invitation
from headgate.fabric.place import ServerPlace
from headgate.fabric.registry import User, UserError
from headgate.fabric.roles import SITE
from headgate.fabric.serving import RequestCall
from headgate.model import Deployment, parse_duration
from headgate.service.requests import Handler, Request, text_of
from headgate.service.users import People

_EXPIRES: Final = "1 h"
_ANSWERED_S: Final = 1.0
_LONGEST: Final = 43
_LINGERS_S: Final = 5  # an invitation's connection is left open for so long, to hear the answer


class Inviting:
    """Invites hosts, takes them in and lets them go. `people` keeps who has credentials."""

    def __init__(self, fabric: Fabric, server: EmbeddedServer, people: People, now: Callable[[], Deployment]) -> None:
        self._fabric = fabric
        self._server = server
        self._people = people
        self._deployment = now
        self._leaving: set[str] = set()

    @property
    def verbs(self) -> dict[str, Handler]:
        """The requests of operators."""
        return {"invite": self._invite}

    async def run(self) -> None:
        """Answer hosts that join or leave, until cancelled."""
        end = await self._fabric.receive(self._fabric.logs.joined("*"), self._take)
        try:
            await self._fabric.sleep(float("inf"))
        finally:
            await end()

    async def _invite(self, request: Request) -> dict[str, Any]:
        """An invitation of a site, as a token."""
        site, deployment = text_of(request, "site"), self._deployment()
        if site not in deployment.sites:
            close = nearest(site, deployment.sites)
            raise UserError(f"no site {site!r}", hint=f"did you mean {close!r}?" if close else None)
        if not deployment.sites[site].is_host:
            raise UserError(
                f"site {site!r} is not a host of its own: its logs are at home, where `headgate up` runs",
                hint=f"write `sites: {site}: {{nats: tls://HOST:PORT}}` into the deployment file, or `nats: private`",
            )
        expires_s = int(time.time() + parse_duration(str(request.get("expires") or _EXPIRES)))
        pair, name = KeyPair.new("user"), f"invite-{site[:32]}-{secrets.token_hex(4)}"
        user = User(name, pair.public, int(time.time()), expires_s=expires_s, program=f"{SITE} {site}")
        await self._people.admit(request, f"invite {site}", self._people.registry.added(user), user)
        return {"token": self._token(request, site, user, pair), "site": site, "expires_s": expires_s}

    def _token(self, request: Request, site: str, user: User, pair: KeyPair) -> str:
        keys, logs = Keys.open(self._server.directory), self._fabric.logs
        given = request.get("address")
        url = str(given) if given else self._address()
        fingerprint = str(self._server.fingerprint or "")
        credentials = keys.credentials(user, pair, logs)
        return Invitation(site, url, logs.namespace, user.name, credentials, user.expires_s or 0, fingerprint).token()

    def _address(self) -> str:
        place = ServerPlace.read(self._server.port_file)
        url = self._server.listens_at
        if place is not None and place.host in ("0.0.0.0", "::"):  # noqa: S104 # it is asked for, not listened on
            raise UserError(
                f"the NATS server listens on all addresses ({url}): which one do other hosts dial?",
                hint="say it: `headgate invite SITE --address tls://HOST:PORT`",
            )
        return url

    async def _take(self, call: RequestCall) -> None:
        site = call.subject.rsplit(".", 1)[1]
        await call.answer(lambda data: self._answer(site, data))
        if site in self._leaving:  # its credentials hold until it has the answer
            self._leaving.discard(site)
            with noted(SERVICE, "the credentials of a host that has left could not be ended", HeadgateError):
                await self._fabric.sleep(_ANSWERED_S)
                name = host_user(site)
                gone = self._people.registry.removed(name, int(time.time()))
                await self._people.admit({"operator": name}, f"leave {site}", gone, None)

    async def _answer(self, site: str, data: bytes) -> bytes:
        """Answer a host: the subject says which site it is."""
        try:
            asked = json.loads(data)
            if "after" in asked:
                found = {"reader": await self._open(site, int(asked["after"]))}
            else:
                found = await (self._leave(site, asked) if asked.get("leave") else self._join(site, asked))
        except (HeadgateError, ValueError, KeyError, TypeError, AttributeError) as error:
            SERVICE.info("the host of %s is refused: %r", site, error)
            message = error.message if isinstance(error, HeadgateError) else "the request cannot be read"
            found = {"error": message}
        return json.dumps(found).encode()

    async def _open(self, site: str, after: int) -> str:
        """Make the consumer by which a host reads its blocks from home as they are stored: it may make none itself."""
        logs = self._fabric.logs
        return await self._fabric.open_reader(logs.site(site), logs.links_into(site), after)

    async def _join(self, site: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take the invitation back and sign the host's own key; a host that was the site before is put out."""
        registry, program, name = self._people.registry, f"{SITE} {site}", str(asked["join"])
        invited = registry.users.get(name)
        if invited is None or invited.program != program or not name.startswith("invite-"):
            raise UserError(f"the invitation of site {site!r} was used already or taken back")
        now_s = int(time.time())
        retiring = {invited.key: now_s + _LINGERS_S}
        before = registry.users.get(host_user(site))
        if before is not None:
            retiring |= {**before.retiring, before.key: now_s}
        user = User(host_user(site), str(asked["key"]), now_s, program=program, retiring=retiring)
        users = {key: each for key, each in registry.users.items() if key not in (name, user.name)}
        out = registry.out if before is None else {**registry.out, site: now_s - 1}
        changed = type(registry)({**users, user.name: user}, registry.revoked, out)
        statement = statement_of(
            Keys.open(self._server.directory).credentials(user, KeyPair("", user.key), self._fabric.logs)
        )
        await self._people.admit({"operator": user.name}, f"join {site}", changed, user)
        return {"statement": statement}

    async def _leave(self, site: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        here = [name for name, each in self._deployment().subscriptions.items() if each.site == site]
        if here and not asked.get("force"):
            some = ", ".join(here[:3]) + (" ..." if here[3:] else "")
            raise UserError(f"{len(here)} subscriptions are at {site!r} ({some})")
        self._people.registry.user(host_user(site))
        self._leaving.add(site)
        return {}


def host_user(site: str) -> str:
    """The name of the user that the host of a site is.

    >>> host_user("paris")
    'host-paris'
    """
    short = site if len(site) <= _LONGEST else hashlib.sha256(site.encode()).hexdigest()[:_LONGEST]
    return f"host-{short}"
