"""Who listens to which topic: sessions that acknowledge, and connections that do not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from headgate.fabric import Fabric
from headgate.fabric.accounts import BRIDGE_FILE, SYSTEM_FILE
from headgate.fabric.devices import TOPICS
from headgate.fabric.keys import read_claims, statement_of
from headgate.fabric.mqtt import DeviceFabric, Session, hears

_PAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class Audience:
    """Who listens to the topic of one subscription.

    `sessions` are consumers of the server's log of messages that are acknowledged, by name. `connections` are all that
    are connected, by number, with the bytes that the server holds for each.
    """

    sessions: frozenset[str] = frozenset()
    connections: dict[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sessions or self.connections)


@dataclass(frozen=True, slots=True)
class _Connection:
    number: int
    pending_bytes: int
    subjects: tuple[str, ...]


class Audiences:
    """Reads who listens from the server: connections from its system account, sessions from the account of devices."""

    def __init__(self, devices: DeviceFabric, system: Fabric, account: str) -> None:
        self._devices = devices
        self._system = system
        self._account = account
        self._sessions: list[Session] = []
        self._connections: list[_Connection] = []

    @classmethod
    async def connect(cls, url: str, directory: Path, devices: DeviceFabric) -> Self:
        """With the credentials in the directory of an embedded server."""
        statement = statement_of((directory / BRIDGE_FILE).read_text(encoding="utf-8"))
        system = await Fabric.connect(url, user_credentials=str(directory / SYSTEM_FILE))
        return cls(devices, system, str(read_claims(statement)["iss"]))

    async def close(self) -> None:
        """Close the connection to the system account."""
        await self._system.close()

    async def refresh(self) -> None:
        """Read all of it anew."""
        self._sessions, self._connections = await asyncio.gather(self._devices.sessions(), self._connected())

    async def _connected(self) -> list[_Connection]:
        found: list[_Connection] = []
        while True:
            question = json.dumps({"subscriptions": True, "limit": _PAGE, "offset": len(found)}).encode()
            answer = json.loads(await self._system.request(f"$SYS.REQ.ACCOUNT.{self._account}.CONNZ", question))
            page: list[Any] = answer.get("data", {}).get("connections") or []
            found += [
                _Connection(each["cid"], each.get("pending_bytes", 0), tuple(each.get("subscriptions_list") or ()))
                for each in page
                if each.get("mqtt_client")
            ]
            if len(page) < _PAGE:
                return found

    def of(self, name: str) -> Audience:
        """Who listens to the topic of a subscription."""
        subject = f"{TOPICS}.{name}"
        return Audience(
            frozenset(each.name for each in self._sessions if hears(each.subject, subject)),
            {
                each.number: each.pending_bytes
                for each in self._connections
                if any(hears(pattern, subject) for pattern in each.subjects)
            },
        )

    def wanted(self, names: list[str]) -> list[str]:
        """The subscriptions that anybody listens to."""
        patterns = {each.subject for each in self._sessions}.union(*(each.subjects for each in self._connections))
        exact = {pattern.removeprefix(f"{TOPICS}.") for pattern in patterns if not {"*", ">"} & set(pattern.split("."))}
        wild = [pattern for pattern in patterns if {"*", ">"} & set(pattern.split("."))]
        return [name for name in names if name in exact or any(hears(pattern, f"{TOPICS}.{name}") for pattern in wild)]
