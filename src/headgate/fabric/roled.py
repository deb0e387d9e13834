"""The connection of a role: a site's relay or the Spark job, in an account of its own (`headgate.fabric.roles`).

It does what a connection of an operator does, where its role allows that. Logs are made by the service alone: a role
waits until they are there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nats.aio.client import Client

from headgate.fabric.client import Fabric
from headgate.fabric.keys import KeyPair
from headgate.fabric.roles import HOME_API, JOB, SITE
from headgate.protocol.port import NoLogError
from headgate.wire.logs import Log, Logs

_JETSTREAM_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RoleCredentials:
    """Credentials that are in memory only: what the account's key stated about a user, and the user's key."""

    statement: str
    pair: KeyPair

    def options(self) -> dict[str, Any]:
        """As nats-py takes them."""
        import nkeys

        def sign(nonce: str) -> bytes:
            return base64.b64encode(nkeys.from_seed(bytearray(self.pair.seed.encode())).sign(nonce.encode()))

        return {"user_jwt_cb": lambda: bytearray(self.statement.encode()), "signature_cb": sign}


class RoleFabric(Fabric):
    """A connection with the rights of a role; `role` is `site NAME` or `job`."""

    prefix = HOME_API

    def __init__(self, client: Client, logs: Logs) -> None:
        super().__init__(client, logs)
        self._js = client.jetstream(timeout=_JETSTREAM_S, prefix=HOME_API)
        self.role = JOB

    @property
    def site(self) -> str:
        """The site whose relay this is; empty for the job."""
        return self.role.removeprefix(f"{SITE} ") if self.role.startswith(f"{SITE} ") else ""

    async def ensure(
        self,
        log: Log,
        marks: Mapping[str, str] | None = None,  # noqa: ARG002 # not its to make
        first: int | None = None,  # noqa: ARG002
    ) -> None:
        """See whether a log is there: the service makes it before anything is published for it."""
        if log.name in self._own and await self.info(log) is None:
            raise NoLogError(f"there is no log {log.name}", hint="the service makes it: is the deployment up?")

    @property
    def _own(self) -> tuple[str, ...]:
        logs, site = self.logs, self.site
        return (logs.site(site).name, logs.inbox(site).name) if site else ()

    def _question(self, log: Log, request: Mapping[str, Any]) -> tuple[str, bytes]:
        """Where and what to ask for messages: what was sent to a child, of the service, as the log is the child's."""
        match str(request.get("next_by_subj", "")).split("."):
            case [_, "site", child, "in", stream, parent] if self.site and child != self.site:
                return self.logs.linked(parent, child, stream), json.dumps(dict(request)).encode()
        return super()._question(log, request)

    async def request(self, subject: str, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Ask a service; another site is asked in this one's name."""
        logs = self.logs
        named_services = ((logs.repair, logs.asked_at), (logs.tune, logs.tuned_by), (logs.upward, logs.upward_from))
        for service, named in named_services:
            beginning = service("x")[:-1]
            if self.site and subject.startswith(beginning):
                subject = named(subject.removeprefix(beginning), self.site)
                break
        return await super().request(subject, data, timeout_s)

    async def listen(self, subject: str, *wake: asyncio.Event) -> Callable[[], Awaitable[None]]:
        """Set events when something comes on a subject; of logs that others write, when the server announces it."""
        kind = subject.split(".")[1]
        return await super().listen(self.logs.news(subject) if kind in ("root", "site", "outbox") else subject, *wake)
