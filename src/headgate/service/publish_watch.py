"""Who sends more than it may by NATS or MQTT: the server counts what each connection sends.

NATS has no rate for a user. So a user or a device that has sent more than its rate allows, for longer than it may
ahead, is put out: its key is revoked for as long as it has sent ahead, which ends its connections, and is then good
again. What it sends until then is taken. Over HTTP each request is refused (`headgate.api.publishing`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.fabric.accounts import DEVICES, PEOPLE, SYSTEM_FILE, Keys
from headgate.fabric.devices import Devices
from headgate.fabric.registry import Registry
from headgate.service.allowances import ByteAllowances
from headgate.wire.logs import Logs

EVERY_S: Final = 1.0
LEAST_S: Final = 5.0
MOST_S: Final = 300.0
"""For how long somebody is put out, at least and at most."""
LEAST_BYTES: Final = 64
"""What a message counts beside its bytes."""
_PAGE: Final = 1024
_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class SentByKey:
    """What a connection has sent since it was made."""

    connection: int
    key: str
    sent_bytes: int


class SentSince:
    """What each key has sent from one look to the next, over all of its connections."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def take(self, found: Iterable[SentByKey]) -> dict[str, int]:
        """Bytes by key, of connections that are open and of those that have ended lately.

        >>> since = SentSince()
        >>> since.take([SentByKey(1, "ada", 100), SentByKey(2, "ada", 50)])
        {'ada': 150}
        >>> since.take([SentByKey(2, "ada", 50), SentByKey(3, "bob", 7), SentByKey(1, "ada", 120)])
        {'bob': 7, 'ada': 20}
        """
        seen, sent = {}, dict[str, int]()
        for each in found:
            seen[each.connection] = each.sent_bytes
            more = each.sent_bytes - self._seen.get(each.connection, 0)
            if more:
                sent[each.key] = sent.get(each.key, 0) + more
        self._seen = seen
        return sent


class PublishWatch:
    """Puts out for a while who sends more than it may."""

    def __init__(
        self, server: EmbeddedServer, logs: Logs, rate_bytes_per_s: float, registry: Callable[[], Registry]
    ) -> None:
        self._server = server
        self._logs = logs
        self._rate = rate_bytes_per_s
        self._allowed = ByteAllowances(rate_bytes_per_s)
        self._registry = registry
        self._sent = {PEOPLE: SentSince(), DEVICES: SentSince()}
        self._until_s: dict[str, float] = {}
        """Until when each key is out."""

    def out(self) -> Mapping[str, float]:
        """The keys that are out, each with the time until which it is."""
        return self._until_s

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with noted(SERVICE, "what users send could not be counted", HeadgateError, OSError, ValueError, KeyError):
                await self._watch()
            await asyncio.sleep(EVERY_S)

    async def _watch(self) -> None:
        async with AsyncExitStack() as stack:
            file = str(self._server.directory / SYSTEM_FILE)
            system = await stack.enter_async_context(
                await Fabric.connect(self._server.url, self._logs, user_credentials=file)
            )
            keys = Keys.open(self._server.directory)
            self._until_s.clear()
            await self._tell(system, keys)  # whoever was out when the service ended is let in again
            while True:
                await self._look(system, keys)
                await asyncio.sleep(EVERY_S)

    async def _look(self, system: Fabric, keys: Keys) -> None:
        names = self._names()
        now_s = time.time()
        changed = False
        for account, since in self._sent.items():
            found = await _connections(system, keys.accounts[account].public)
            for key, size in since.take(each for each in found if each.key in names).items():
                self._allowed.took(key, size, now_s)
        for key, name in names.items():
            wait_s = self._allowed.wait_s(key, now_s)
            if wait_s > 0 and key not in self._until_s:
                self._until_s[key] = now_s + min(max(wait_s, LEAST_S), MOST_S)
                changed = True
                SERVICE.warning(
                    "%r sends more than it may, %.0f bytes a second: its connections are ended, and it is let in again "
                    "in %.0f s",
                    name,
                    self._rate,
                    self._until_s[key] - now_s,
                )
        over = [key for key, until_s in self._until_s.items() if until_s <= now_s]
        for key in over:
            del self._until_s[key]
        if changed or over:
            await self._tell(system, keys)

    def _names(self) -> dict[str, str]:
        """By key, all who are counted: users who are no operators and no programs of the deployment, and devices."""
        users = [each for each in self._registry().users.values() if not each.operator and not each.program]
        found = {key: each.name for each in users for key in (each.key, *each.retiring)}
        devices = Devices.read(self._server.directory).devices.values()
        return {**found, **{each.key: f"device {each.name}" for each in devices}}

    async def _tell(self, system: Fabric, keys: Keys) -> None:
        devices = Devices.read(self._server.directory).revoked
        for account, revoked in ((PEOPLE, self._registry().revoked), (DEVICES, devices)):
            await state(system, keys.account(account, {**revoked, **dict.fromkeys(self._until_s, int(time.time()))}))


async def state(system: Fabric, statement: str) -> None:
    """Tell the server what holds of an account."""
    answer = json.loads(await system.request(_UPDATE, statement.encode()))
    if answer.get("data", {}).get("code") != _OK:
        raise FabricError(f"the server did not take who may connect: {answer.get('error')}")


async def _connections(system: Fabric, account: str) -> list[SentByKey]:
    """The connections of an account that are open, and those that ended lately."""
    found: list[SentByKey] = []
    for more in ({"state": 0}, {"state": 1, "sort": "stop"}):
        offset = 0
        while True:
            question = json.dumps({**more, "auth": True, "limit": _PAGE, "offset": offset}).encode()
            answer = json.loads(await system.request(f"$SYS.REQ.ACCOUNT.{account}.CONNZ", question))
            page: list[Mapping[str, Any]] = answer.get("data", {}).get("connections") or []
            found += [counted(each) for each in page]
            offset += len(page)
            if len(page) < _PAGE or more["state"]:
                break
    return found


def counted(connection: Mapping[str, Any]) -> SentByKey:
    """What the server says that a connection has sent."""
    sent_bytes = connection["in_bytes"] + LEAST_BYTES * connection["in_msgs"]
    return SentByKey(connection["cid"], connection.get("authorized_user", ""), sent_bytes)
